"""Values of a column that noise hides, merged; and how values inside a merged one are told apart."""

from __future__ import annotations

import math

import numpy as np

from fedsynth.models.graphical import Measured

_HIDDEN = 3.0  # standard deviations under which a value is not seen
_DIFFERENT = 3.0  # standard deviations by which a value's share must differ from the usual one to count


def merged_values(shares: np.ndarray, noise: float, ordered: int, most: int) -> np.ndarray:
    """The merged value of each value: cells of a number until they are seen above the noise, rare categories as one.

    The first `ordered` values are cells, which only merge with neighbors; the others (categories, zero, missing) stay
    by themselves if they are seen.

    >>> merged_values(np.array([0.1, 0.1, 0.3, 0.1, 0.4]), 0.01, ordered=4, most=3)
    array([0, 0, 1, 1, 2])
    >>> merged_values(np.array([0.5, 0.001, 0.498, 0.001]), 0.01, ordered=0, most=10)
    array([0, 2, 1, 2])
    """
    apart = shares[ordered:]
    order = np.argsort(-apart, kind="stable")
    visible = np.sort(order[apart[order] > _HIDDEN * noise][: most - 1])
    if not ordered and len(visible) >= len(apart) - 1:  # one hidden value is merged with nothing
        visible = np.arange(len(apart))
    cells = _runs(shares[:ordered], noise, most)
    groups = int(cells.max()) + 1 if ordered else 0
    others = np.full(len(apart), groups - 1 if ordered else len(visible))
    others[visible] = groups + np.arange(len(visible))
    return np.concatenate([cells, others])


def _runs(shares: np.ndarray, noise: float, most: int) -> np.ndarray:
    """Neighboring cells in runs, each seen above the noise; few cells stay by themselves where they are seen."""
    total = float(np.maximum(shares, 0).sum())
    enough = _HIDDEN * noise if len(shares) <= most else max(total / most, 2 * _HIDDEN * noise)
    groups, count = np.zeros(len(shares), dtype=np.int64), 0
    mass = clear = 0.0  # of the run: all cells, and those that are seen by themselves
    width = 0
    for place, share in enumerate(shares.tolist()):
        groups[place] = count
        mass, width = mass + share, width + 1
        clear += share if share > _HIDDEN * noise else 0.0
        if clear >= enough or mass >= max(enough, _HIDDEN * noise * math.sqrt(width)):
            count, mass, clear, width = count + 1, 0.0, 0.0, 0
    if width and count:  # what is left at the end is not seen by itself
        groups[groups == count] = count - 1
    return groups


def detailed(shares: np.ndarray, merged: np.ndarray, detail: Measured) -> np.ndarray:
    """The shares of values by a partner's: as if alike inside a merged value, unless they are seen to differ."""
    sums = np.zeros((int(merged.max()) + 1, detail.shares.shape[1]))
    np.add.at(sums, merged, detail.shares)
    expected = inside(shares, merged)[:, None] * np.maximum(sums, 0.0)[merged]
    differs = np.abs(detail.shares - expected) > _DIFFERENT / math.sqrt(float(detail.precision))
    return np.where(differs, np.maximum(detail.shares, 0.0), expected)


def calmed(shares: np.ndarray, merged: np.ndarray, noise: float) -> np.ndarray:
    """Shares drawn towards the mean of their merged value, the more the less they vary beyond the variance of noise.

    >>> calmed(np.array([0.5, 0.2, 0.21, 0.09]), np.array([0, 1, 1, 1]), 1e-4).round(3)
    array([0.5  , 0.199, 0.209, 0.092])
    >>> calmed(np.array([0.5, 0.2, 0.3]), np.array([0, 1, 1]), 0.01)
    array([0.5 , 0.25, 0.25])
    """
    counts = np.bincount(merged)
    mean = (np.bincount(merged, weights=shares) / counts)[merged]
    spread = np.bincount(merged, weights=(shares - mean) ** 2) / np.maximum(counts - 1, 1)
    kept = np.divide(np.maximum(spread - noise, 0.0), spread, out=np.zeros_like(spread), where=spread > 0)
    return np.asarray(mean + (shares - mean) * kept[merged])


def inside(shares: np.ndarray, merged: np.ndarray) -> np.ndarray:
    """The share of each value inside its merged value, in each column of shares; all alike if none is seen.

    >>> inside(np.array([0.3, 0.1, -0.1, 0.0]), np.array([0, 0, 1, 1]))
    array([0.75, 0.25, 0.5 , 0.5 ])
    """
    positive = np.maximum(shares, 0.0)
    mass = np.zeros((int(merged.max()) + 1, *shares.shape[1:]))
    np.add.at(mass, merged, positive)
    alike = (1.0 / np.bincount(merged)[merged]).reshape(-1, *[1] * (shares.ndim - 1))
    return np.where(mass[merged] > 0, positive / np.where(mass > 0, mass, 1.0)[merged], alike)
