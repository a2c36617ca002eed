"""What an attack proves about epsilon: lower bounds that hold with a stated confidence.

An audit plays the distinguishing game against a mechanism. If it wins more often than (epsilon, delta)
allows, the claim is false. Nothing is assumed about the noise: the bounds use the definition of
differential privacy alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import beta, binom

from fedsynth.errors import BadInput


@dataclass(frozen=True)
class Bound:
    """What one way of reading the canaries proves: epsilon is at least `epsilon_lower`, with this confidence."""

    method: str
    epsilon_lower: float
    confidence: float
    detail: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {**self.headline(), **self.detail}

    def headline(self) -> dict[str, Any]:
        """What a statement says of it."""
        return {"epsilon_lower": self.epsilon_lower, "confidence": self.confidence, "method": self.method}


def upper_rate(events: np.ndarray | int, trials: int, confidence: float) -> Any:
    """The largest rate that `events` of `trials` leave possible (Clopper and Pearson 1934, one-sided).

    >>> round(float(upper_rate(0, 100, 0.95)), 4)
    0.0295
    """
    events = np.asarray(events)
    return np.where(events >= trials, 1.0, beta.ppf(confidence, events + 1, np.maximum(trials - events, 1)))


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
    found = bound_from_errors(
        false_positives, false_negatives, len(without), len(with_client), delta, confidence
    )
    return np.asarray(found, dtype=np.float64)


def bound_from_one_run(
    correct: int, guesses: int, canaries: int, delta: float, confidence: float = 0.95
) -> float:
    """Epsilon's lower bound from one run into which each of `canaries` went by the toss of a fair coin.

    The attack guesses for `guesses` of them whether they were in and abstains from the others (Steinke, Nasr
    and Jagielski 2023, Corollary 5.4).

    >>> round(bound_from_one_run(correct=990, guesses=1000, canaries=1000, delta=1e-6), 2)
    4.06
    """
    if not 0 <= correct <= guesses <= canaries:
        raise BadInput(f"correct={correct}, guesses={guesses}, canaries={canaries}: each is at most the next")
    low, high = 0.0, 50.0
    if _one_run_p_value(correct, guesses, canaries, low, delta) > 1.0 - confidence:
        return 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2.0
        rejected = _one_run_p_value(correct, guesses, canaries, middle, delta) <= 1.0 - confidence
        low, high = (middle, high) if rejected else (low, middle)
    return low


def _one_run_p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """How likely an (epsilon, delta) mechanism is to let so many guesses be right, at most."""
    accuracy = 1.0 / (1.0 + math.exp(-epsilon))
    by_chance = float(binom.sf(correct - 1, guesses, accuracy))
    fewer = np.arange(1, correct + 1)
    just_below = np.cumsum(binom.pmf(correct - fewer, guesses, accuracy)) / fewer
    worst = float(just_below.max()) if correct else 0.0
    return min(1.0, by_chance + 2.0 * canaries * delta * worst)
