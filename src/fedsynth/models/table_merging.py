"""Values of a column that noise hides, merged; and how values inside a merged one are told apart."""

from __future__ import annotations

import math

import numpy as np

from fedsynth.models.graphical import Measured

_HIDDEN = 3.0  # standard deviations under which a value is not seen
_DIFFERENT = (
    3.0  # standard deviations by which a value's share must differ from the usual one to count, or more:
)
# so many that noise alone does it in none of the cells
_FEW, _FEW_SPREAD = 2.0, 1.0  # children that a parent usually has, and by how much the logarithm of it varies
_LEAST_DOUBT = 0.02  # of noise's variance that is left where shares are drawn towards usual ones
_TRACE = 1e-9  # a share that is next to nothing


def merged_values(
    shares: np.ndarray,
    noise: float,
    ordered: int,
    most: int,
    *,
    count: bool = False,
    homes: np.ndarray | None = None,
) -> np.ndarray:
    """The merged value of each value: cells of a number until they are seen above the noise, rare categories as one.

    The first `ordered` values are cells, which only merge with neighbors; the others (categories, zero, missing) stay
    by themselves if they are seen. Numbers of children (`count`) that noise hides are at least told apart by doubling.
    Values with a cell in `homes` (others: -1) are numbers in it, and stay by themselves if they have as much as a run.

    >>> merged_values(np.array([0.1, 0.1, 0.3, 0.1, 0.4]), 0.01, ordered=4, most=3)
    array([0, 0, 1, 1, 2])
    >>> merged_values(np.array([0.5, 0.001, 0.498, 0.001]), 0.01, ordered=0, most=10)
    array([0, 2, 1, 2])
    >>> merged_values(np.zeros(9), 0.5, ordered=9, most=32, count=True)
    array([0, 1, 2, 2, 3, 3, 3, 3, 3])
    >>> merged_values(np.array([0.1, 0.3, 0.2, 0.1, 0.3]), 0.01, 2, 4, homes=np.array([-1, -1, 1, 1, -1]))
    array([0, 1, 2, 1, 3])
    """
    if homes is not None and (homes >= 0).any():
        return _with_numbers_in_cells(shares, noise, ordered, most, homes)
    apart = shares[ordered:]
    order = np.argsort(-apart, kind="stable")
    visible = np.sort(order[apart[order] > _HIDDEN * noise][: most - 1])
    if not ordered and len(visible) >= len(apart) - 1:  # one hidden value is merged with nothing
        visible = np.arange(len(apart))
    cells = _runs(shares[:ordered], noise, most, _doublings(ordered) if count else ())
    groups = int(cells.max()) + 1 if ordered else 0
    others = np.full(len(apart), groups - 1 if ordered else len(visible))
    others[visible] = groups + np.arange(len(visible))
    return np.concatenate([cells, others])


def _with_numbers_in_cells(
    shares: np.ndarray, noise: float, ordered: int, most: int, homes: np.ndarray
) -> np.ndarray:
    """Merged values where some belong to a cell, unless they have as much as a run of cells has."""
    inside = homes >= 0
    enough = max(
        float(np.maximum(shares[(np.arange(len(shares)) < ordered) | inside], 0).sum()) / most, 3 * noise
    )
    joined = np.flatnonzero(inside & (shares < enough))
    others, cells = np.delete(np.arange(len(shares)), joined), shares.copy()
    np.add.at(cells, homes[joined], shares[joined])
    merged = np.empty(len(shares), dtype=np.int64)
    merged[others] = merged_values(cells[others], noise, ordered, most)
    merged[joined] = merged[homes[joined]]
    return merged


def _doublings(cells: int) -> tuple[int, ...]:
    """The last cells of 0, 1, 2 to 3, 4 to 7 and so on."""
    return tuple(2**power - 1 for power in range(cells.bit_length()))


def _runs(shares: np.ndarray, noise: float, most: int, ends: tuple[int, ...] = ()) -> np.ndarray:
    """Neighboring cells in runs, each seen above noise or ended; few cells stay by themselves where they are seen.

    A run is seen as soon as its last cells are: the noise of empty ones before them hides nothing.
    """
    most = most if len(shares) <= most else max(1, most - len(ends))
    total = float(np.maximum(shares, 0).sum())
    enough = _HIDDEN * noise if len(shares) <= most else max(total / most, 2 * _HIDDEN * noise)
    least = np.maximum(enough, _HIDDEN * noise * np.sqrt(np.arange(1, len(shares) + 1)))
    groups, count = np.zeros(len(shares), dtype=np.int64), 0
    last = np.zeros(0)  # the sums of the run's last cell, its last two, ...
    clear = 0.0  # the sum of the run's cells that are seen by themselves
    for place, share in enumerate(shares.tolist()):
        groups[place] = count
        last = share + np.concatenate([[0.0], last])
        clear += share if share > _HIDDEN * noise else 0.0
        if clear >= enough or (last >= least[: len(last)]).any() or place in ends:
            count, clear, last = count + 1, 0.0, np.zeros(0)
    if len(last) and count:  # what is left at the end is not seen by itself
        groups[groups == count] = count - 1
    return groups


def detailed(shares: np.ndarray, merged: np.ndarray, detail: Measured) -> np.ndarray:
    """The shares of values by a partner's: as if alike inside a merged value, unless they are seen to differ."""
    sums = np.zeros((int(merged.max()) + 1, detail.shares.shape[1]))
    np.add.at(sums, merged, detail.shares)
    # where the noisy sum is none, values are still as unequal as elsewhere: a fit may give them some mass
    expected = inside(shares, merged)[:, None] * np.maximum(sums, _TRACE)[merged]
    enough = max(_DIFFERENT, math.sqrt(2 * math.log(detail.shares.size)))
    differs = np.abs(detail.shares - expected) > enough / math.sqrt(float(detail.precision))
    return np.where(differs, np.maximum(detail.shares, 0.0), expected)


def calmed(
    shares: np.ndarray,
    merged: np.ndarray,
    noise: float,
    masses: np.ndarray | None = None,
    ordered: int = 0,
    law: np.ndarray | None = None,
) -> np.ndarray:
    """Shares drawn towards the usual ones of their merged value, the more the less they vary beyond noise's variance.

    Usual are equal shares of its mass, by `masses` or by its own sum. The first and the last of the `ordered` cells
    are usually as near to their neighbors as the mass allows: density falls from there on. With a `law`, usual are
    its shares.

    >>> calmed(np.array([0.5, 0.2, 0.21, 0.09]), np.array([0, 1, 1, 1]), 1e-4).round(3)
    array([0.5  , 0.199, 0.209, 0.092])
    >>> calmed(np.array([0.5, 0.2, 0.3]), np.array([0, 1, 1]), 0.01)
    array([0.5 , 0.25, 0.25])
    >>> calmed(np.array([0.5, 0.2, 0.3]), np.array([0, 1, 1]), 0.1, ordered=3).round(3)
    array([0.5  , 0.345, 0.155])
    """
    counts = np.bincount(merged)
    masses = np.bincount(merged, weights=shares) if masses is None else masses
    usual = (masses / counts)[merged]
    runs = (
        np.flatnonzero(np.diff(merged[:ordered])) + 1
    )  # where the second run of cells begins, the third, ...
    if law is not None:
        usual = _with_last(masses[merged] * inside(law, merged), shares, merged, math.sqrt(noise))
    elif len(runs):
        first, last = usual[: runs[0]], usual[runs[-1] : ordered]
        first[::-1], last[:] = _falling(first, usual[runs[0]]), _falling(last, usual[runs[-1] - 1])
    spread = np.bincount(merged, weights=(shares - usual) ** 2) / np.maximum(counts - 1, 1)
    kept = np.divide(np.maximum(spread - noise, 0.0), spread, out=np.zeros_like(spread), where=spread > 0)
    calm = usual + (shares - usual) * kept[merged]
    for group, mass in enumerate(masses):
        calm[merged == group] = _not_negative(calm[merged == group], float(mass))
    return np.asarray(calm)


def _with_last(usual: np.ndarray, shares: np.ndarray, merged: np.ndarray, noise: float) -> np.ndarray:
    """Usual shares in which the last number, which stands for all beyond, has its own share if that is seen."""
    group = merged == merged[-1]
    mass, others = float(usual[group].sum()), float(usual[group][:-1].sum())
    if not _HIDDEN * noise < shares[-1] < mass or others <= 0:
        return usual
    last = usual.copy()
    last[group] *= (mass - shares[-1]) / others
    last[-1] = shares[-1]
    return last


def _not_negative(values: np.ndarray, mass: float) -> np.ndarray:
    """The nearest numbers that are not negative and have this sum (Duchi et al. 2008).

    Cutting negative ones off alone would leave the noise of many empty values as their share.

    >>> _not_negative(np.array([0.6, 0.02, -0.02, 0.01, -0.01]), 0.6)
    array([0.59, 0.01, 0.  , 0.  , 0.  ])
    """
    if mass <= 0:
        return np.zeros_like(values)
    largest = -np.sort(-values)
    excess = (largest.cumsum() - mass) / np.arange(1, len(values) + 1)
    return np.maximum(values - excess[np.count_nonzero(largest > excess) - 1], 0.0)


def _falling(cells: np.ndarray, start: float) -> np.ndarray:
    """Cells of the same sum that begin with a neighbor's share and fall by a constant factor."""
    mass, width = float(cells.sum()), len(cells)
    slow, fast = 0.0, 50.0  # as fast as gives the sum; not at all if even that is too little
    for _ in range(50 if start * width > mass else 0):
        rate = (slow + fast) / 2
        enough = start * -math.expm1(-rate * width) / rate > mass
        slow, fast = (rate, fast) if enough else (slow, rate)
    shape = np.exp(-slow * np.arange(width))
    return np.asarray(mass * shape / shape.sum())


def falling_law(merged: np.ndarray, one: Measured) -> np.ndarray:
    """The shares of 0, 1, 2, ... children that fall by a constant factor, most likely by noisy shares of merged values.

    The last share is that of all numbers from there on. Where noise hides everything, there are few children.

    >>> law = falling_law(np.array([0, 1, 2, 2, 2]), Measured((0,), np.array([0.5, 0.25, 0.25]), 1e4))
    >>> law.round(2)
    array([0.5 , 0.25, 0.12, 0.06, 0.06])
    """
    means = np.geomspace(0.05, 10 * len(merged), 200)
    laws = (means / (1 + means)) ** np.arange(len(merged))[:, None]
    laws[:-1] /= 1 + means
    expected = np.zeros((len(one.shares), len(means)))
    np.add.at(expected, merged, laws)
    precision = np.broadcast_to(one.precision, one.shares.shape)
    apart = precision @ np.square(one.shares[:, None] - expected)
    unusual = np.square(np.log(means / _FEW) / _FEW_SPREAD)
    return np.asarray(laws[:, np.argmin(apart + unusual)])


def toward(one: Measured, usual: np.ndarray) -> Measured:
    """A measured table drawn towards usual shares, the more the less it differs from them beyond noise.

    >>> toward(Measured((0,), np.array([0.9, 0.1]), 100.0), np.array([0.7, 0.3])).shares.round(2)
    array([0.85, 0.15])
    >>> toward(Measured((0,), np.array([0.9, 0.1]), 10.0), np.array([0.7, 0.3])).shares.round(2)
    array([0.7, 0.3])
    """
    unlike = float(np.mean(np.square(one.shares - usual) * one.precision))
    kept = max(0.0, 1 - 1 / max(unlike, 1e-12))
    return Measured(
        one.columns, usual + kept * (one.shares - usual), one.precision / max(1 - kept, _LEAST_DOUBT)
    )


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


def on_simplex(shares: np.ndarray) -> np.ndarray:
    """The distribution that is nearest to noisy shares.

    >>> on_simplex(np.array([0.7, 0.5, -0.1]))
    array([0.6, 0.4, 0. ])
    """
    ordered = np.sort(shares)[::-1]
    cuts = (np.cumsum(ordered) - 1) / np.arange(1, len(shares) + 1)
    return np.maximum(shares - cuts[np.flatnonzero(ordered > cuts)[-1]], 0.0)
