"""Lower bounds on epsilon that an attack proves with a stated confidence.

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
class EpsilonBound:
    """The result of one way of reading the canaries: epsilon is at least `epsilon_lower`, with this confidence."""

    method: str
    epsilon_lower: float
    confidence: float
    detail: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {**self.headline(), **self.detail}

    def headline(self) -> dict[str, Any]:
        """The numbers that a statement shows."""
        return {"epsilon_lower": self.epsilon_lower, "confidence": self.confidence, "method": self.method}


def upper_rate(events: np.ndarray | int, trials: int, confidence: float) -> Any:
    """The largest rate that `events` of `trials` leave possible (Clopper and Pearson 1934, one-sided).

    >>> round(float(upper_rate(0, 100, 0.95)), 4)
    0.0295
    """
    events = np.asarray(events)
    return np.where(events >= trials, 1.0, beta.ppf(confidence, events + 1, np.maximum(trials - events, 1)))


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
