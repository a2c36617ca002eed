"""Lower bounds on epsilon from the errors of an attack on many runs, with and without a client."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsynth.assess.attacks.audit_bound import upper_rate
from fedsynth.errors import BadInput


def bound_from_errors(
    false_positives: np.ndarray | int,
    false_negatives: np.ndarray | int,
    trials_without: int,
    trials_with: int,
    delta: float,
    confidence: float = 0.95,
) -> Any:
    """Epsilon's lower bound from an attack's errors: guessed "with" without the client, and the reverse.

    Any test of an (epsilon, delta) mechanism has FPR * exp(epsilon) + FNR >= 1 - delta, and the same with the
    errors swapped (Kairouz, Oh and Viswanath 2015). Both rates are raised to what the trials leave possible.

    >>> round(float(bound_from_errors(10, 500, 10_000, 1_000, delta=0.0)), 2)
    5.54
    """
    each = 1.0 - (1.0 - confidence) / 2.0  # both rates must be right at once
    positive = upper_rate(false_positives, trials_without, each)
    negative = upper_rate(false_negatives, trials_with, each)
    gain = np.maximum((1.0 - delta - negative) / positive, (1.0 - delta - positive) / negative)
    return np.log(np.maximum(gain, 1.0))


def bound_from_scores(
    scores_with: np.ndarray, scores_without: np.ndarray, delta: float, confidence: float = 0.95
) -> float:
    """Epsilon's lower bound from many runs with and without the client; a high score says "with".

    The threshold is chosen on one half of the runs and judged on the other, so that the choice costs nothing.
    Scores must come in no particular order.

    >>> same = np.linspace(0, 1, 2000) * np.tile([1, -1], 1000)
    >>> bound_from_scores(same, same, delta=0.0)
    0.0
    """
    if min(len(scores_with), len(scores_without)) < 4:
        raise BadInput("an audit needs at least 4 runs on each side")
    judge_with, choose_with = np.array_split(np.asarray(scores_with, dtype=np.float64), 2)
    judge_without, choose_without = np.array_split(np.asarray(scores_without, dtype=np.float64), 2)
    thresholds = _thresholds(np.concatenate([choose_with, choose_without]))
    chosen = _bounds(choose_with, choose_without, thresholds, delta, confidence)
    best = thresholds[[int(np.argmax(chosen))]]
    return float(_bounds(judge_with, judge_without, best, delta, confidence)[0])


def _thresholds(scores: np.ndarray) -> np.ndarray:
    """Candidates at quantiles that are dense in both tails, between the scores rather than on them."""
    scores = np.unique(scores)
    tail = np.geomspace(1, max(len(scores) // 2, 1), 150).astype(int)
    places = np.unique(np.concatenate([tail - 1, len(scores) - tail]))
    following = scores[np.minimum(places + 1, len(scores) - 1)]
    return (scores[places] + following) / 2.0


def _bounds(
    with_client: np.ndarray, without: np.ndarray, thresholds: np.ndarray, delta: float, confidence: float
) -> np.ndarray:
    """The bound of guessing "with" above each threshold."""
    false_negatives = np.searchsorted(np.sort(with_client), thresholds, side="right")
    false_positives = len(without) - np.searchsorted(np.sort(without), thresholds, side="right")
    bounds = bound_from_errors(
        false_positives, false_negatives, len(without), len(with_client), delta, confidence
    )
    return np.asarray(bounds, dtype=np.float64)
