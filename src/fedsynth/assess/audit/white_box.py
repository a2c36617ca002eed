"""The white-box reading of canaries: each is a run of its own, because its direction has noise of its own."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import norm

from fedsynth.assess.attacks.audit_bound import EpsilonBound, upper_rate
from fedsynth.assess.audit.canary import CanaryObservations
from fedsynth.assess.audit.noise_family import NoiseFamily
from fedsynth.errors import BadInput

WHITE_BOX = "white box, each canary a run of its own"
_THRESHOLDS = 200


def white_box(
    observed: CanaryObservations, family: NoiseFamily, delta: float, confidence: float
) -> EpsilonBound:
    """Bound epsilon from below as if each canary were a run of its own; the noise of two must be independent.

    The guesses are held against everything that a noise multiplier claims (its whole privacy profile, not one
    delta alone). The bound is the epsilon of the largest noise that could have let so many guesses be right
    (after Nasr et al. 2023). That the bound is above the claim does not depend on the kind of noise; how far
    above it is does.
    """
    each = 1.0 - (1.0 - confidence) / 2.0  # the better of two thresholds is taken
    readings = [_read(rates, family) for rates in (even_rates(observed, each), judged_rates(observed, each))]
    factor, (false, missed) = min(readings, key=lambda reading: reading[0] or math.inf)
    detail = {
        "canaries": len(observed.inside),
        "false_positive_rate": false,
        "true_positive_rate": 1.0 - missed,
    }
    if factor is None:
        return EpsilonBound(WHITE_BOX, 0.0, confidence, detail)
    return EpsilonBound(WHITE_BOX, family.epsilon(factor, delta), confidence, {**detail, "noise": factor})


def _read(rates: tuple[float, float], family: NoiseFamily) -> tuple[float | None, tuple[float, float]]:
    """The least noise, in units of the claimed one, that does not allow these rates; None if any does."""
    false, missed = rates

    def allowed(factor: float) -> bool:
        return bool(1.0 - missed <= family.curve(factor).true_positive_rate(false))

    return (None if 1.0 - missed <= false else family.least_excluded(allowed)), rates


def even_rates(observed: CanaryObservations, confidence: float) -> tuple[float, float]:
    """The largest rates of false positives and of misses that are possible, where both answers are equally likely."""
    each = 1.0 - (1.0 - confidence) / 2.0
    false, missed = _upper_rates(observed.scores, observed.inside, np.zeros(1), each)
    return float(false[0]), float(missed[0])


def judged_rates(observed: CanaryObservations, confidence: float) -> tuple[float, float]:
    """The largest rates of false positives and of misses that are possible, at a threshold chosen on other canaries."""
    half = len(observed.inside) // 2
    thresholds = np.quantile(observed.scores[:half], np.linspace(0, 1, _THRESHOLDS + 2)[1:-1])
    each = 1.0 - (1.0 - confidence) / 2.0
    false, missed = _upper_rates(observed.scores[:half], observed.inside[:half], thresholds, each)
    separation = norm.ppf(1.0 - missed) - norm.ppf(false)
    best = thresholds[[int(np.argmax(np.nan_to_num(separation, nan=-np.inf, posinf=-np.inf)))]]
    false, missed = _upper_rates(observed.scores[half:], observed.inside[half:], best, each)
    return float(false[0]), float(missed[0])


def _upper_rates(
    scores: np.ndarray, inside: np.ndarray, thresholds: np.ndarray, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    members, others = np.sort(scores[inside]), np.sort(scores[~inside])
    if not len(members) or not len(others):
        raise BadInput("all canaries fell on one side; use more of them")
    missed = np.searchsorted(members, thresholds, side="right")
    false = len(others) - np.searchsorted(others, thresholds, side="right")
    return (
        np.asarray(upper_rate(false, len(others), confidence)),
        np.asarray(upper_rate(missed, len(members), confidence)),
    )
