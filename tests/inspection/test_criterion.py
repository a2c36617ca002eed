import numpy as np
import pandas as pd
import pytest
from bars import SCHEMA, bars, brighter_side

from fedsynth.data.clients import RawClients
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.inspection.criterion import CRITERIA, criterion_named
from fedsynth.inspection.primary import Installed

PEOPLE = Schema.from_dict(
    {
        "version": 1,
        "label": "ill",
        "columns": [
            {"name": "age", "type": "integer", "min": 0, "max": 99, "missing": True},
            {"name": "sex", "type": "categorical", "categories": ["F", "M"]},
            {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
        ],
    }
)


def table(**columns):
    frame = pd.DataFrame(columns)
    return RawClients(np.zeros(len(frame), dtype=np.int64), 1, ("",), data=frame)


def test_right_and_wrong_are_each_others_rest_where_there_is_a_label():
    raw = bars(0.5)
    model = Installed(brighter_side, SCHEMA)
    right = criterion_named("correct", {}).marks(raw, SCHEMA, model)
    wrong = criterion_named("misclassified", {}).marks(raw, SCHEMA, model)
    assert (right ^ wrong).all()
    assert right[raw.owner >= 30].all() and wrong[raw.owner < 30].all()


def test_a_row_without_a_label_is_neither_right_nor_wrong_but_unlabelled():
    raw = bars(0.0)
    labels = raw.data[1].astype(object)
    labels[:3] = ""
    raw = RawClients(raw.owner, raw.count, (), data=(raw.data[0], labels))
    model = Installed(brighter_side, SCHEMA)
    for name in ("correct", "misclassified"):
        assert not criterion_named(name, {}).marks(raw, SCHEMA, model)[:3].any()
    assert criterion_named("unlabelled", {}).marks(raw, SCHEMA, None).tolist() == [True] * 3 + [False] * 477


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"column": "age", "is": ">", "value": 65}, [False, True, False]),
        ({"column": "age", "is": "!=", "value": 70}, [True, False, False]),
        ({"column": "sex", "is": "==", "value": "F"}, [True, False, True]),
    ],
)
def test_a_rule_compares_a_column_and_a_missing_value_never_meets_it(rule, expected):
    rows = table(age=[30, 70, None], sex=["F", "M", "F"], ill=["no", "yes", "no"])
    assert criterion_named("rule", rule).marks(rows, PEOPLE, None).tolist() == expected


def test_a_rule_is_checked_against_the_schema():
    rows = table(age=[30], sex=["F"], ill=["no"])
    with pytest.raises(BadInput, match="did you mean 'age'"):
        criterion_named("rule", {"column": "agee", "is": ">", "value": 3}).marks(rows, PEOPLE, None)
    with pytest.raises(BadInput, match="needs a number"):
        criterion_named("rule", {"column": "age", "is": ">", "value": "old"}).marks(rows, PEOPLE, None)
    with pytest.raises(BadInput, match="unknown comparison"):
        criterion_named("rule", {"column": "age", "is": "=>", "value": 3})


def test_unknown_words_are_found_and_bytes_have_none():
    schema = Schema(kind="text", vocabulary=("a", "red", "cat"), length=8)
    rows = RawClients(np.zeros(2, dtype=np.int64), 1, ("",), data=("a red cat", "a blue cat"))
    criterion = criterion_named("out_of_vocabulary", {})
    assert criterion.marks(rows, schema, None).tolist() == [False, True]
    with pytest.raises(BadInput, match="bytes"):
        criterion.marks(rows, Schema(kind="text", vocabulary="bytes"), None)


def test_scores_are_held_against_a_public_threshold():
    rows = table(age=[10, 50, 90], sex=["F"] * 3, ill=["no"] * 3)
    model = Installed(lambda frame: frame["age"].to_numpy() / 100, PEOPLE)
    assert criterion_named("unlikely", {"threshold": 0.4}).marks(rows, PEOPLE, model).tolist() == [
        True,
        False,
        False,
    ]
    assert criterion_named("told_apart", {"threshold": 0.4}).marks(rows, PEOPLE, model).tolist() == [
        False,
        True,
        True,
    ]


def test_a_model_of_a_table_never_sees_the_label():
    seen = []
    rows = table(age=[10], sex=["F"], ill=["no"])
    criterion_named("unlikely", {"threshold": 0.0}).marks(
        rows, PEOPLE, Installed(lambda frame: seen.append(list(frame)) or np.zeros(1), PEOPLE)
    )
    assert seen == [["age", "sex"]]


def test_a_misspelt_criterion_is_answered_with_the_nearest():
    with pytest.raises(BadInput, match="did you mean 'misclassified'"):
        criterion_named("missclassified", {})


@pytest.mark.parametrize("name", CRITERIA)
def test_keys_that_a_criterion_does_not_know_are_named(name):
    with pytest.raises(BadInput, match="colour is not one of its keys"):
        criterion_named(name, {"colour": "red"})


def test_thresholds_out_of_range_are_refused():
    with pytest.raises(BadInput, match="accuracy_below=1.5"):
        criterion_named("weak_slices", {"accuracy_below": 1.5})
    with pytest.raises(BadInput, match="expected a number"):
        criterion_named("unlikely", {"threshold": "low"})
