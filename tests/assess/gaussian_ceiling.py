"""The most that unsampled Gaussian releases allow an attacker, by the closed form."""

import math

import numpy as np
from scipy.stats import norm

from fedsynth.assess.attacks.ceiling import _EPSILONS, Ceiling


def gaussian_ceiling(noise_multiplier, rounds=1):
    """The ceiling of `rounds` releases, from the closed form of their privacy profile."""
    shift = math.sqrt(rounds) / noise_multiplier
    upper = norm.cdf(shift / 2 - _EPSILONS / shift)
    lower = np.exp(_EPSILONS) * norm.cdf(-shift / 2 - _EPSILONS / shift)
    deltas = np.clip(upper - lower, 0.0, 1.0).tolist()
    return Ceiling(tuple(zip(_EPSILONS.tolist(), deltas, strict=True)))
