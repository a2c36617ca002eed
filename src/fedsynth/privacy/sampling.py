"""Poisson sampling in time that grows with the sample, not with the population."""

from __future__ import annotations

import math

import numpy as np

from fedsynth.errors import BadInput
from fedsynth.rng import Rng


def most_drawn(expected: float) -> int:
    """How many no Poisson draw of this expectation exceeds, but for a chance of under 10^-9.

    >>> most_drawn(1024.0)
    1255
    """
    return math.ceil(expected + 7 * math.sqrt(expected) + 7)


def poisson_sample(population: int, rate: float, rng: Rng) -> np.ndarray:
    """Each of `population` members independently with probability `rate`, in ascending order; may be empty.

    Draws the gaps between members, which are geometric, so a cohort of 1,000 costs the same out of any population.

    >>> poisson_sample(5, 1.0, Rng(0))
    array([0, 1, 2, 3, 4])
    >>> sizes = [len(poisson_sample(10_000, 0.01, Rng(7).at(i))) for i in range(200)]
    >>> 95 < sum(sizes) / 200 < 105
    True
    """
    if not 0 < rate <= 1:
        raise BadInput(
            f"rate={rate}: a Poisson sampling rate lies in (0, 1]; for a fixed cohort use FixedCohort(size)"
        )
    if rate == 1:
        return np.arange(population)
    chosen: list[np.ndarray] = []
    last, block = -1, 0
    while last < population:
        expected = (population - last) * rate
        count = int(expected + 4 * math.sqrt(expected + 1)) + 8
        uniforms = rng.at("gaps", block).uniforms(count)
        gaps = np.floor(np.log(uniforms) / math.log1p(-rate)) + 1
        positions = last + np.cumsum(gaps)
        chosen.append(positions[positions < population])
        last, block = positions[-1], block + 1
    return np.concatenate(chosen).astype(np.int64)
