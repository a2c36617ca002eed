"""The optimal Gaussian mechanism for one-shot and repeated local budgets, and a thesis's heuristic to compare with.

Balle and Wang 2018 give the least noise for one release; the thesis on federated VAEs quotes it as equation 4.4.8.
T equal Gaussian releases are one with 1/sqrt(T) of the noise, so T rounds need exactly sqrt(T) times as much. Its own
equations 4.4.10-11 spread the budget as epsilon / sqrt(T) instead, which is an order of magnitude and adds too little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp_accounting import GaussianDpEvent, get_sigma_gaussian

from fedsynth.errors import BadInput
from fedsynth.privacy.accountant import answer
from fedsynth.privacy.events import repeat


@dataclass(frozen=True)
class LegacyNoise:
    """The noise that a published heuristic asks for, with its real cost."""

    noise_multiplier: float
    claimed_epsilon: float
    true_epsilon: float


def analytic_noise(epsilon: float, delta: float, rounds: int = 1) -> float:
    """The least noise, relative to the sensitivity, for `rounds` unsampled Gaussian releases at (epsilon, delta).

    Under replace-one the sensitivity is twice the clip.

    >>> round(analytic_noise(1.0, 1e-5), 3), round(analytic_noise(8.0, 1e-5, rounds=100), 2)
    (3.731, 6.0)
    """
    _check(epsilon, delta, rounds)
    return math.sqrt(rounds) * float(get_sigma_gaussian(epsilon, delta))


def legacy_noise(epsilon: float, delta: float, rounds: int) -> LegacyNoise:
    """Equations 4.4.10-11 of the thesis, which claim epsilon for `rounds` rounds, and the epsilon that they give.

    >>> found = legacy_noise(8.0, 1e-5, rounds=100)
    >>> round(found.noise_multiplier, 2), round(found.true_epsilon, 1)
    (4.57, 11.2)
    """
    _check(epsilon, delta, rounds)
    noise = float(get_sigma_gaussian(epsilon / math.sqrt(rounds), delta))
    true = answer(repeat(GaussianDpEvent(noise), rounds), delta).epsilon
    return LegacyNoise(noise, epsilon, true)


def _check(epsilon: float, delta: float, rounds: int) -> None:
    if not (epsilon > 0 and 0 < delta < 1 and rounds >= 1):
        raise BadInput(
            f"epsilon={epsilon}, delta={delta}, rounds={rounds}: epsilon is above 0, delta between 0 and 1, "
            "rounds 1 or more"
        )
