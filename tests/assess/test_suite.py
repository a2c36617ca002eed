import json

import numpy as np
import pandas as pd
import pytest
from small_tables import SCHEMA, shuffled, table

from fedsynth.assess.suite import Evaluation, evaluate
from fedsynth.assess.table_steps import PAIR_ROWS, SEEN, UNSEEN
from fedsynth.errors import BadInput
from fedsynth.research.datasets import adult, data_folder

REAL, FRESH, TEST = table(), table(key="fresh"), table(300, "test")


@pytest.fixture(scope="module")
def good() -> Evaluation:
    return evaluate(REAL, FRESH, SCHEMA, test=TEST)


@pytest.fixture(scope="module")
def independent() -> Evaluation:
    return evaluate(REAL, shuffled(REAL), SCHEMA, test=TEST)


def test_every_score_has_a_value_on_good_data(good):
    assert [score.name for score in good.scores if score.failed] == []
    assert len({score.name for score in good.scores}) == len(good.scores) > 25


def test_a_fresh_draw_ranks_above_independent_columns(good, independent):
    for name in ("column pairs", "gradient boosting: auc", "order of models: rank correlation"):
        assert good[name].value > independent[name].value
    for name in ("3-way marginals: average variation distance", "correlation matrix distance"):
        assert good[name].value < independent[name].value
    assert good["detection by gradient boosting: AUC"].value < 0.6 < 0.8
    assert independent["detection by gradient boosting: AUC"].value > 0.8


def test_useful_rows_help_and_useless_ones_harm(good, independent):
    name = "few rows: AUC gained by adding synthetic rows"
    assert good[name].value > independent[name].value
    name = "rare class: AUC gained by adding synthetic rows"
    assert good[name].value > independent[name].value


def test_details_are_plain_and_enough_for_plots(good):
    details = json.loads(json.dumps(good.details, allow_nan=False))
    assert details["internal"].startswith("internal") and details["rows"] == {
        "real": 600,
        "synthetic": 600,
        "test": 300,
    }
    for column in details["columns"]:
        assert len(column["bins"]) == len(column["real"]) == len(column["synthetic"])
        assert sum(column["real"]) == pytest.approx(1.0)
        assert column["edges"] is None or len(column["edges"]) == len(column["bins"]) + 1
    matrix = np.array(details["associations"]["real"], dtype=float)
    assert matrix.shape == (6, 6) and np.allclose(matrix, matrix.T)
    distances = [part["distance"] for part in details["marginals"]]
    assert distances == sorted(distances, reverse=True)


def test_saved_and_loaded_is_the_same(good, tmp_path):
    good.save(tmp_path / "out")
    again = Evaluation.load(tmp_path / "out")
    assert again.to_dict() == json.loads(json.dumps(good.to_dict()))


def test_the_source_of_the_test_rows_is_told(good):
    assert good["mlp: auc"].detail["test"] == UNSEEN
    small = evaluate(REAL[:100], FRESH[:100], SCHEMA)
    assert small["gradient boosting: auc"].detail["test"] == SEEN
    assert "attacks" not in small.details and good.details["attacks"][0]["auc"] < 0.7


def test_what_was_measured_is_kept(tmp_path, monkeypatch):
    plain = SCHEMA.with_label(None)
    first = evaluate(REAL[:150], FRESH[:150], plain, cache=tmp_path)
    kept = len(list(tmp_path.iterdir()))
    monkeypatch.setattr("fedsynth.assess.table_steps.detection", None)  # would fail if it were run again
    again = evaluate(REAL[:150], FRESH[:150], plain, cache=tmp_path)
    assert again == first and len(list(tmp_path.iterdir())) == kept == 8
    other = evaluate(REAL[:150], FRESH[1:151], plain, cache=tmp_path)
    assert "unexpected" in other["detection by gradient boosting: AUC"].failed


def test_progress_counts_the_pieces():
    seen = []
    evaluate(REAL[:60], FRESH[:60], SCHEMA.with_label(None), progress=lambda *told: seen.append(told))
    assert seen[-1] == ("done", len(seen) - 1, len(seen) - 1)
    assert [done for _, done, _ in seen] == list(range(len(seen)))


def test_other_columns_fail_every_score_with_the_reason():
    found = evaluate(REAL, FRESH.rename(columns={"age": "years"}), SCHEMA, test=TEST)
    assert all("column 'age' is missing" in score.failed for score in found.scores)


def test_no_rows_fail_every_score_with_the_reason():
    found = evaluate(REAL, FRESH.iloc[:0], SCHEMA, test=TEST)
    assert all("no rows" in score.failed for score in found.scores)


def test_an_all_missing_column_spares_the_other_scores():
    gone = FRESH[:150].assign(age=pd.array([pd.NA] * 150, dtype="Int64"))
    found = evaluate(REAL[:150], gone, SCHEMA, test=TEST[:100])
    assert [score.name for score in found.scores if score.failed] == []
    assert "missing" in found["column shapes"].detail["failed"]["age"]


def test_one_class_fails_usefulness_alone():
    found = evaluate(REAL[:150], FRESH[:150].assign(ill="no"), SCHEMA, test=TEST[:100])
    failed = {score.name for score in found.scores if score.failed}
    assert {"mlp: auc", "order of models: rank correlation"} <= failed
    assert "one class, 'no'" in found["mlp: auc"].failed
    assert found["column shapes"].value is not None
    assert "none of class" in found["rare class: AUC gained by adding synthetic rows"].failed


def test_a_test_table_of_other_columns_spares_what_needs_none():
    found = evaluate(REAL, FRESH, SCHEMA, test=TEST.drop(columns="age"))
    assert "test table" in found["mlp: auc"].failed and found["column pairs"].value is not None


def test_a_sampler_is_asked_for_the_rare_class():
    asked = []

    def sampler(name, rows):
        asked.append((name, rows))
        return FRESH[FRESH["ill"] == name].sample(rows, replace=True, random_state=1)

    evaluate(REAL[:100], FRESH[:100], SCHEMA, test=TEST[:100], sampler=sampler)
    assert len(asked) == 3 and len({name for name, _ in asked}) == 1


def test_large_tables_are_cut_where_the_score_says_so():
    from small_tables import table as make

    big = make(PAIR_ROWS + 1000)[["weight", "sex"]]
    schema = type(SCHEMA)(columns=(SCHEMA.columns[1], SCHEMA.columns[4]))
    found = evaluate(big, big[:100], schema)
    assert found["column pairs"].detail["rows"] == [PAIR_ROWS, 100]


def test_something_else_than_a_table_is_refused():
    with pytest.raises(BadInput, match="DataFrame"):
        evaluate(REAL, ["a text"], SCHEMA)


@pytest.mark.skipif(data_folder() is None, reason="FEDSYNTH_DATA names no folder with adult.parquet")
def test_adult_ranks_a_fresh_half_above_independent_columns():
    rows, schema = adult()
    rows = rows.sample(4000, random_state=0)
    real, fresh = rows.iloc[:2000], rows.iloc[2000:]
    unlabelled = schema.with_label(None)
    near, far = (evaluate(real, other, unlabelled) for other in (fresh, shuffled(real)))
    assert near["column pairs"].value > far["column pairs"].value
    for name in (
        "2-way marginals: average variation distance",
        "correlation matrix distance",
        "detection by gradient boosting: AUC",
    ):
        assert near[name].value < far[name].value
