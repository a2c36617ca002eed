"""How an attack did: its ROC curve, what it finds at 1% false alarms, and what the privacy claim would allow.

An attack gives every row a number, high where it believes that the row was trained on. Rows that were (members) and
rows that were not are then compared. Everything here uses real rows: the results are internal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from fedsynth.assess.attacks.audit_bound import upper_rate
from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.assess.scores.score import Score, failure
from fedsynth.errors import BadInput

RATE = 0.01  # of false positives at which true positives are told
CONFIDENCE = 0.95
_POINTS = 200  # of a curve that is kept for plots
MEASURES = ("AUC", "true positives at 1% false positives")


def roc(members: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates over all thresholds, from (0, 0) to (1, 1); equal numbers move both at once.

    >>> roc(np.array([2.0, 1.0]), np.array([1.0, 0.0]))
    (array([0. , 0. , 0.5, 1. ]), array([0. , 0.5, 1. , 1. ]))
    """
    if not len(members) or not len(others):
        raise BadInput(
            f"{len(members)} members and {len(others)} others: an attack is judged on both; give rows of each"
        )
    scores = np.concatenate([members, others]).astype(np.float64)
    if np.isnan(scores).any():
        raise BadInput("the attack gave a row no number; expected one for each row")
    thresholds = np.unique(scores)[::-1]
    rates_of_sides = [
        (len(side) - np.searchsorted(np.sort(side), thresholds, side="left")) / len(side)
        for side in (others, members)
    ]
    false, true = (np.concatenate([[0.0], rates]) for rates in rates_of_sides)
    return false, true


def area(members: np.ndarray, others: np.ndarray) -> float:
    """The area under the ROC curve: how often a member has a higher number than another row.

    >>> area(np.array([2.0, 1.0]), np.array([1.0, 0.0]))
    0.875
    """
    false, true = roc(members, others)
    return float(np.trapezoid(true, false))


def least_area(auc: float, members: int, others: int, confidence: float = CONFIDENCE) -> float:
    """A lower confidence bound of the area (Hanley and McNeil 1982)."""
    first, second = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc) + (members - 1) * (first - auc**2) + (others - 1) * (second - auc**2)
    spread = math.sqrt(max(variance, 0.0) / (members * others))
    return max(0.0, auc - float(norm.ppf(confidence)) * spread)


def true_positives_at(members: np.ndarray, others: np.ndarray, rate: float = RATE) -> float:
    """The share of members found at the strictest threshold with at most `rate` false positives."""
    false, true = roc(members, others)
    return float(true[false <= rate].max())


def attack_scores(
    name: str,
    members: np.ndarray,
    others: np.ndarray,
    ceiling: Ceiling | None = None,
    detail: Mapping[str, Any] | None = None,
) -> list[Score]:
    """The attack's two scores, `name: AUC` and `name: true positives at 1% false positives`; low is good.

    The detail has the curve (`false_positive_rate`, `true_positive_rate`), the lower end of the number's 95%
    confidence interval (`at_least`), the `ceiling`, what it allows this number to be (`allowed`) and whether
    `at_least` is above that (`above_ceiling`), which for a true claim and an honest test happens rarely.
    """
    auc, true_positives = area(members, others), true_positives_at(members, others)
    false, true = _thinned(*roc(members, others))
    best = float(np.max(true - false))
    shared = {
        **(detail or {}),
        "members": len(members),
        "others": len(others),
        "accuracy": (1.0 + best) / 2.0,
        "false_positive_rate": false.tolist(),
        "true_positive_rate": true.tolist(),
        "ceiling": None if ceiling is None else ceiling.to_dict(),
    }
    count = round(true_positives * len(members))
    false_alarms = math.floor(RATE * len(others))
    # the threshold was picked on these very rows, so its false positive rate is known only up to chance
    likely = float(upper_rate(false_alarms, len(others), CONFIDENCE))
    lowest = 1.0 - float(upper_rate(len(members) - count, len(members), CONFIDENCE))
    measured = [
        (auc, least_area(auc, len(members), len(others)), None if ceiling is None else ceiling.auc),
        (true_positives, lowest, None if ceiling is None else float(ceiling.true_positive_rate(likely))),
    ]
    return [
        Score(
            f"{name}: {measure}",
            value,
            "min",
            detail={
                **shared,
                "at_least": least,
                "allowed": limit,
                "above_ceiling": None if limit is None else bool(least > limit),
            },
        )
        for measure, (value, least, limit) in zip(MEASURES, measured, strict=True)
    ]


def attack_failures(name: str, reason: str) -> list[Score]:
    """The attack's scores where it could not be run."""
    return [failure(f"{name}: {measure}", reason, goal="min") for measure in MEASURES]


def attack_curves(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """The data for a plot of all attacks: name, curve, area and ceiling of each; failed attacks are left out.

    An attack by shadow generators also says how many there were, of how many rows, and whether they were narrowed.
    """
    return [
        {
            "name": score.name.removesuffix(": AUC"),
            "auc": score.value,
            **{
                key: score.detail[key]
                for key in ("false_positive_rate", "true_positive_rate", "ceiling", "above_ceiling")
            },
            **{key: score.detail[key] for key in ("runs", "size", "narrowed") if key in score.detail},
        }
        for score in scores
        if score.name.endswith(": AUC") and score.value is not None
    ]


def _thinned(false: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The curve at so many points that a plot looks the same, densest where false positives are rare."""
    if len(false) <= _POINTS:
        return false, true
    even = np.linspace(0, len(false) - 1, _POINTS // 2)
    early = np.geomspace(1, len(false) - 1, _POINTS // 2)
    kept = np.unique(np.concatenate([[0], even, early]).round().astype(int))
    return false[kept], true[kept]
