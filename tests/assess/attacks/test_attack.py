import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedsynth.assess.attacks.attack import (
    area,
    attack_curves,
    attack_failures,
    attack_scores,
    least_area,
    roc,
    true_positives_at,
)
from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.errors import BadInput


def normals(shift, count=2000, seed=0):
    draw = np.random.default_rng(seed)
    return draw.standard_normal(count) + shift, draw.standard_normal(count)


def test_area_agrees_with_scikit_learn_with_and_without_ties():
    members, others = normals(0.7)
    for digits in (8, 0):
        both = np.round(np.concatenate([members, others]), digits)
        expected = roc_auc_score(np.repeat([1, 0], 2000), both)
        assert area(both[:2000], both[2000:]) == pytest.approx(expected)


def test_true_positives_are_those_above_the_strictest_threshold():
    others = np.arange(100.0)
    assert true_positives_at(np.array([98.5, 99.5, 98.0, 0.0]), others) == 0.5
    assert true_positives_at(np.full(4, 98.0), others) == 0.0  # 98 of the others costs two false alarms


def test_the_bound_on_the_area_covers_the_truth_as_often_as_stated():
    truth = 0.6914624612740131  # of two normal distributions that are 1 / sqrt(2) apart
    found = [area(*normals(0.5**0.5, 150, seed)) for seed in range(400)]
    missed = np.mean([least_area(auc, 150, 150) > truth for auc in found])
    assert 0.02 < missed < 0.08


def test_a_strong_attack_is_above_a_low_ceiling_and_a_blind_one_is_not():
    strong = attack_scores("attack", *normals(3.0), Ceiling.of(1.0, 1e-5))
    blind = attack_scores("attack", *normals(0.0), Ceiling.of(0.1, 0.0))
    assert [score.detail["above_ceiling"] for score in strong] == [True, True]
    assert [score.detail["above_ceiling"] for score in blind] == [False, False]
    assert [score.name for score in strong] == [
        "attack: AUC",
        "attack: true positives at 1% false positives",
    ]


def test_no_claim_has_no_ceiling_and_scores_are_plain_data():
    scores = attack_scores("attack", *normals(1.0))
    assert scores[0].detail["ceiling"] is None and scores[0].detail["above_ceiling"] is None
    assert len(scores[0].detail["false_positive_rate"]) <= 202
    json.dumps([score.to_dict() for score in scores], allow_nan=False)


def test_curves_are_of_attacks_that_ran():
    scores = [*attack_scores("one", *normals(1.0)), *attack_failures("two", "no rows")]
    curves = attack_curves(scores)
    assert [curve["name"] for curve in curves] == ["one"]
    assert curves[0]["true_positive_rate"][-1] == 1.0


def test_rows_of_one_kind_alone_and_rows_without_a_number_are_refused():
    with pytest.raises(BadInput, match="both"):
        roc(np.zeros(0), np.zeros(3))
    with pytest.raises(BadInput, match="no number"):
        roc(np.array([np.nan]), np.zeros(3))
