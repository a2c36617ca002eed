import json

import pytest

from fedsynth.assess.scores.score import Score, failure, load_scores, over_seeds, save_scores
from fedsynth.errors import BadInput
from fedsynth.research.across_runs import across_runs


def test_scores_survive_the_file_with_the_keys_that_are_promised(tmp_path):
    scores = [
        over_seeds("accuracy", [0.8, 0.9], (1, 2), detail={"majority": 0.7}),
        failure("auc", "one class", (1,)),
    ]
    save_scores(scores, tmp_path / "scores.json")
    assert load_scores(tmp_path / "scores.json") == scores
    entry = json.loads((tmp_path / "scores.json").read_text())[0]
    assert set(entry) == {"name", "value", "goal", "range", "spread", "seeds", "detail", "failed"}


def test_the_spread_is_the_standard_deviation_over_seeds_and_none_for_one():
    assert over_seeds("x", [0.2, 0.4, 0.6]).spread == pytest.approx(0.2)
    assert over_seeds("x", [0.2]).spread is None


@pytest.mark.parametrize("value, failed", [(None, None), (0.5, "why"), (float("nan"), None)])
def test_a_score_has_a_number_or_a_reason_but_never_both_or_nan(value, failed):
    with pytest.raises(BadInput):
        Score("x", value, failed=failed)


def test_a_file_that_holds_no_scores_is_refused(tmp_path):
    (tmp_path / "scores.json").write_text('[{"name": "x"}]')
    with pytest.raises(BadInput, match="scores.json"):
        load_scores(tmp_path / "scores.json")


def test_runs_are_merged_by_name_and_one_failure_fails_the_score():
    first = [Score("auc", 0.7, detail={"majority": 0.5, "parts": 1}), Score("f1", 0.5)]
    second = [Score("auc", 0.9, detail={"majority": 0.5, "parts": 2}), failure("f1", "one class")]
    auc, f1 = across_runs([first, second], (1, 2))
    assert auc.value == pytest.approx(0.8) and auc.detail == {"majority": 0.5, "runs": [0.7, 0.9]}
    assert f1.value is None and f1.failed == "1 of 2 runs: one class"
