import re
from dataclasses import replace

import pytest
from small_run import scored

from fedsynth.assess.report.privacy_chapter import epsilon_scale
from fedsynth.assess.report.verdict import chosen_utility, faithful, private, useful
from fedsynth.assess.scores.score import Score, failure
from fedsynth.privacy.statement import Statement

CLAIM = Statement(
    unit="client", adjacency="add-remove", trust="central", sampling="poisson", epsilon=1.0, delta=1e-5,
    accountant="pld", private=True, simulation=False, projection=None, releases=(), caveats=(), text="",
)  # fmt: skip


@pytest.mark.parametrize(
    ("epsilon", "level", "grade"),
    [
        (0.5, "good", "Strongly"), (1.0, "good", "Strongly"), (1.1, "fair", "Reasonably"), (3.0, "fair", "Reasonably"),
        (8.0, "fair", "Weakly"), (10.1, "bad", "Hardly"),
    ],
)  # fmt: skip
def test_the_grade_follows_epsilon(epsilon, level, grade):
    found = private(replace(CLAIM, epsilon=epsilon))
    assert (found.level, found.grade) == (level, grade)


def test_the_sentence_says_what_a_guess_can_become():
    assert (
        "from 50% to at most 73.2% sure about one client (epsilon 1, delta 1e-05)" in private(CLAIM).sentence
    )


@pytest.mark.parametrize(
    "change",
    [
        {"simulation": True, "epsilon": None, "private": False},
        {"epsilon": None, "private": False},
        {"private": False},
        {"audited": {"epsilon_lower": 1.5, "confidence": 0.95, "method": "one run"}},
    ],
)
def test_no_promise_is_never_called_private(change):
    found = private(replace(CLAIM, **change))
    assert found.level == "bad" and found.grade not in ("Strongly", "Reasonably")


def test_faithful_goes_by_the_lower_score_and_names_the_weakest_column():
    found = faithful(scored().scores)
    assert (found.level, found.grade) == ("fair", "Fair")
    assert "weakest column is age with 80%" in found.sentence


def test_detection_counts_and_the_columns_that_give_rows_away_are_named():
    close = [
        Score("column shapes", 0.97, detail={"parts": {"age": 0.9}, "overlap": {"age": 0.96, "bmi": 0.95}})
    ]
    name, blamed = "detection by gradient boosting: AUC", {"bmi": 0.3, "age": 0.01}
    assert faithful(close).grade == "Close"
    found = faithful([*close, Score(name, 0.988, "min", (0.5, 1.0), detail={"blamed": blamed})])
    assert (found.level, found.grade) == ("bad", "Rough")
    assert (
        "can almost always tell synthetic rows from real ones (AUC 0.988; 0.5 is guessing), mostly by bmi, age"
        in found.sentence
    )
    assert "weakest column is bmi with 95%" in found.sentence  # by what the histograms show
    spread = faithful([*close, Score(name, 0.9, "min", (0.5, 1.0), detail={"blamed": {}})])
    assert spread.grade == "Fair" and "many columns together" in spread.sentence


def test_an_epsilon_beyond_all_meaning_is_one_sentence():
    assert "at most practically 100% sure about" in private(replace(CLAIM, epsilon=60.0)).sentence


def test_without_scores_nothing_is_claimed():
    assert faithful([]).level == useful([]).level == "none"
    assert "all are missing" in faithful([failure("column shapes", "all are missing")]).sentence


def test_useful_is_the_share_of_what_real_rows_teach_beyond_guessing():
    assert "That is 90% of what real rows teach" in useful(scored().scores).sentence


def test_useful_says_where_the_test_rows_come_from():
    assert "on real rows that the generator never saw;" in useful(scored().scores).sentence


def test_useless_labels_and_failures_are_told():
    beside = {"train_on_real": 0.5, "majority": 0.5}
    assert useful([Score("mlp: auc", 0.5, detail=beside)]).level == "none"
    assert "one class" in useful([failure("mlp: auc", "one class", detail=beside)]).sentence


def test_the_classifier_that_learns_most_from_real_rows_decides():
    worse = Score("mlp: auc", 0.6, detail={"train_on_real": 0.7, "majority": 0.5})
    assert chosen_utility([worse, *scored().scores]).name == "gradient boosting: auc"


def test_of_many_classes_accuracy_decides():
    area = Score("cnn: auc", 0.97, detail={"train_on_real": 0.99, "majority": 0.5})
    accuracy = Score("cnn: accuracy", 0.5, detail={"train_on_real": 0.9, "majority": 0.1})
    assert chosen_utility([area, accuracy]).name == "cnn: accuracy"
    assert chosen_utility([area]).name == "cnn: auc"


BOUND = {"epsilon_lower": 6.5, "confidence": 0.95, "method": "white box"}


@pytest.mark.parametrize(
    ("audited", "names"),
    [
        (None, ["Claimed"]),
        (BOUND, ["Claimed", "Audited"]),
        (
            {**BOUND, "white_box": BOUND, "one_run": {**BOUND, "epsilon_lower": 4.3}},
            ["Claimed", "Audited, white-box", "Audited, one run"],
        ),
    ],
    ids=["no audit", "an audit of before", "both bounds"],
)
def test_the_scale_has_the_claim_and_every_bound_of_the_audit(audited, names):
    drawn = str(epsilon_scale(replace(CLAIM, audited=audited), []))
    assert re.findall(r">([A-Z][^<:]*): at (?:most|least) ", drawn) == names
