"""The shares of ordered cells under noise, by the mean of all ways to cut them into runs of equal cells.

A run is empty or has any share; runs of any length, and of the lengths that the noisy shares speak for, are weighed
by their probability given those (change points as in Barry and Hartigan 1992, with levels that are not negative).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedsynth.late import special
from fedsynth.models.graphical import Measured

_LEVELS = 0.25 ** np.arange(6)  # of a cell's share: the spreads of runs that are not empty
_PARTS = 16  # that the values of a column are seen as, if it has more
_VISIBLE = 0.2  # of the usual share of such a part: more noise hides it
_EMPTY = 0.5  # the chance of an empty run
_ENDS = (1 / 64, 1 / 16, 1 / 4)  # chances that a run ends after a cell


def rounds_needed(columns: Sequence[Measured]) -> int:
    """How many answers as noisy as these show what the columns look like, each in a few parts.

    >>> rounds_needed([Measured((0,), np.full(4, 0.25), 1e4)]), rounds_needed([Measured((0,), np.full(4, 0.25), 100.0)])
    (1, 4)
    """
    sizes = np.array([one.shares.size for one in columns])
    variances = np.array([1 / float(np.mean(one.precision)) for one in columns])
    parts = np.minimum(sizes, _PARTS)
    noise = variances * sizes / parts * parts**2  # of a part, over its usual share, squared
    return max(1, math.ceil(float(noise.mean()) / _VISIBLE**2))


def whole(one: Measured) -> Measured:
    """The column with shares that sum to one: what is missing, or too much, is as likely to be noise of any value.

    >>> whole(Measured((0,), np.array([0.5, 0.4]), 1.0)).shares
    array([0.55, 0.45])
    """
    return replace(one, shares=one.shares + (1 - one.shares.sum()) / one.shares.size)


def smooth_column(one: Measured, ordered: int) -> np.ndarray:
    """The shares of a column whose first values are cells in an order; the others are left as they are."""
    others = one.shares[ordered:]
    mass = max(0.0, 1 - float(np.maximum(others, 0.0).sum()))
    deviation = 1 / math.sqrt(float(np.mean(one.precision)))
    return np.concatenate([smooth_cells(one.shares[:ordered], deviation, mass), others])


def smooth_cells(shares: np.ndarray, deviation: float, mass: float) -> np.ndarray:
    """The expected shares of ordered cells of this mass, given noisy ones and their noise's standard deviation.

    What is missing to the mass, or too much, goes to the cells that are least certain.

    >>> smooth_cells(np.array([0.11, 0.09, 0.1, 0.52, 0.01, -0.01, 0.0]), 0.01, 0.82).round(2)
    array([0.1 , 0.1 , 0.1 , 0.52, 0.  , 0.  , 0.  ])
    """
    count = len(shares)
    first, last = np.arange(count)[:, None], np.arange(count)
    width = np.maximum(last - first + 1, 1)
    sums = np.concatenate([[0.0], np.cumsum(shares)])
    filled, levels, squares = _filled((sums[1:] - sums[:-1, None]) / width, deviation**2 / width)
    some = math.log1p(-_EMPTY) + filled
    runs = np.logaddexp(math.log(_EMPTY), some)
    sure = np.exp(some - runs)
    estimates, doubts, evidence = [], [], []
    for end in _ENDS:
        prior = np.where(last < first, -np.inf, (width - 1) * math.log1p(-end) + math.log(end))
        chances, total = _chances(runs + prior)
        estimates.append(_covering(chances * levels * sure))
        doubts.append(_covering(chances * (squares * sure - np.square(levels * sure)) * width))
        evidence.append(total)
    weights = np.exp(np.array(evidence) - max(evidence))
    weights /= weights.sum()
    estimate, doubt = weights @ np.array(estimates), weights @ np.array(doubts)
    return np.maximum(estimate + (mass - estimate.sum()) * doubt / doubt.sum(), 0.0)


def _filled(means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of runs that are not empty: how much likelier that makes their mean, as a logarithm, their level, its square."""
    logs, levels, squares = [], [], []
    for spread in _LEVELS:
        whole = spread**2 + variances
        middle, around = means * spread**2 / whole, spread * np.sqrt(variances / whole)
        above = special.log_ndtr(middle / around)  # levels are not negative
        density = np.exp(-0.5 * (middle / around) ** 2 - above) / math.sqrt(2 * math.pi)
        better = 0.5 * np.log(variances / whole) + 0.5 * means**2 * (1 / variances - 1 / whole)
        logs.append(math.log(2 / len(_LEVELS)) + better + above)
        levels.append(middle + around * density)
        squares.append(middle * levels[-1] + around**2)
    most = np.max(logs, axis=0)
    weights = np.exp(np.array(logs) - most)
    whole = weights.sum(axis=0)
    return (
        most + np.log(whole),
        (weights * levels).sum(axis=0) / whole,
        (weights * squares).sum(axis=0) / whole,
    )


def _chances(runs: np.ndarray) -> tuple[np.ndarray, float]:
    """The chance of each run [first cell, last cell], and the logarithm of the sum over all ways to cut the cells."""
    count = len(runs)
    before, after = np.zeros(count + 1), np.zeros(count + 1)
    for place in range(count):
        before[place + 1] = np.logaddexp.reduce(before[: place + 1] + runs[: place + 1, place])
    for place in range(count - 1, -1, -1):
        after[place] = np.logaddexp.reduce(runs[place, place:] + after[place + 1 :])
    return np.exp(np.minimum(before[:-1, None] + runs + after[1:] - before[-1], 0.0)), float(before[-1])


def _covering(runs: np.ndarray) -> np.ndarray:
    """The sum of all runs [first cell, last cell] that cover each cell."""
    begun = np.cumsum(runs, axis=0)
    return np.asarray(np.triu(begun).sum(axis=1))
