"""Numbers that stand by themselves: those that many rows have exactly, seen above noise among all that are possible.

A column that is asked for in equal cells is asked for number by number too, where its schema says which numbers it may
have. What stands out of its cell by more than noise does anywhere becomes a value of its own, as zero always is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsynth.models.graphical import Measured

_SEEN = 0.5  # standard deviations by which a number must pass the largest of as many that are noise alone


@dataclass(frozen=True)
class SpikedColumn:
    """A column whose numbers are looked at one by one; its values from `first` on are its spikes."""

    cells: np.ndarray  # of each number of the grid: its cell; -1 for zero and what is no number
    first: int
    most: int

    def least(self, noise: float) -> float:
        """The least excess that is seen under noise of this standard deviation, whatever the other numbers do.

        >>> round(SpikedColumn(np.array([0, 0, 1, 1, -1]), 2, 2).least(0.01), 3)
        0.022
        """
        return (math.sqrt(2 * math.log(max(2, int((self.cells >= 0).sum())))) + _SEEN) * noise

    @property
    def none(self) -> tuple[int, ...]:
        """No spikes."""
        return (-1,) * self.most

    def spikes(self, on_grid: Measured, column: Measured) -> tuple[int, ...]:
        """The numbers that stand out of their cells the most; -1 where there are no more.

        >>> column = Measured((0,), np.array([0.2, 0.6, 0.0, 0.0, 0.2]), 1e4)
        >>> on_grid = Measured((0,), np.array([0.1, 0.1, 0.5, 0.1, 0.2]), 1e4)
        >>> SpikedColumn(np.array([0, 0, 1, 1, -1]), 2, 2).spikes(on_grid, column)
        (2, -1)
        """
        numbers = np.flatnonzero(self.cells >= 0)
        cells, noise = self.cells[numbers], 1 / math.sqrt(float(on_grid.precision))
        usual = np.maximum(column.shares, 0.0)[cells] / np.bincount(cells)[cells]
        excess = on_grid.shares[numbers] - usual
        clear_of_noise = excess > self.least(noise)
        order = np.argsort(-np.where(clear_of_noise, excess, -np.inf), kind="stable")
        best = numbers[order[: min(self.most, int(clear_of_noise.sum()))]]
        return (*best.tolist(), *[-1] * (self.most - len(best)))

    def apart(self, column: Measured, on_grid: Measured, spikes: tuple[int, ...]) -> Measured:
        """The column with its spikes, which were counted on the grid and in their cells, as values of their own.

        >>> column = Measured((0,), np.array([0.2, 0.6, 0.0, 0.0, 0.2]), 1e4)
        >>> on_grid = Measured((0,), np.array([0.1, 0.1, 0.5, 0.1, 0.2]), 1e4)
        >>> of = SpikedColumn(np.array([0, 0, 1, 1, -1]), 2, 2)
        >>> of.apart(column, on_grid, (2, -1)).shares.round(6).tolist()
        [0.2, 0.1, 0.5, 0.0, 0.2]
        """
        shares = self.known(column, spikes).shares
        for value, spike in enumerate(spikes, self.first):
            if spike >= 0:
                shares[value] = on_grid.shares[spike]
                shares[self.cells[spike]] -= on_grid.shares[spike]
        return replace(column, shares=shares)

    def known(self, one: Measured, spikes: tuple[int, ...]) -> Measured:
        """A table whose first column this is, with nothing for spikes that are not known: no row has them."""
        shares = one.shares.copy()
        shares[~self.exist(spikes, len(shares))] = 0.0
        return replace(one, shares=shares)

    def exist(self, spikes: tuple[int, ...], size: int) -> np.ndarray:
        """Which values rows may have: all but spikes that are not known.

        >>> SpikedColumn(np.array([0, 0, 1, 1, -1]), 2, 2).exist((2, -1), 5)
        array([ True,  True,  True, False,  True])
        """
        exist = np.ones(size, dtype=bool)
        exist[self.first : self.first + self.most] = np.array(spikes) >= 0
        return exist

    def homes(self, spikes: tuple[int, ...], size: int) -> np.ndarray:
        """The cell that each value belongs to if it is a spike, else -1; unknown spikes belong to the first.

        >>> SpikedColumn(np.array([0, 0, 1, 1, -1]), 2, 2).homes((2, -1), 5)
        array([-1, -1,  1,  0, -1])
        """
        homes = np.full(size, -1)
        homes[self.first : self.first + self.most] = np.maximum(self.cells[np.maximum(spikes, 0)], 0)
        homes[self.first : self.first + self.most][np.array(spikes) < 0] = 0
        return homes


def values_apart(
    tables: Sequence[Measured],
    spiked: Sequence[tuple[int, SpikedColumn]],
    spikes: Sequence[tuple[int, ...]],
    sizes: Sequence[int],
) -> list[Measured]:
    """Tables whose columns have values as they are, with known spikes as values and nothing for the others.

    Where numbers were asked for one by one, they are the spikes, and their tables are left out.
    """
    many, of = len(sizes), dict(spiked)
    on_grids = {one.columns[0] - 2 * many: one for one in tables if one.columns[0] >= 2 * many}
    measured = []
    for one in tables:
        column = one.columns[0] % many
        if column in on_grids and one.columns == (column,):
            measured.append(of[column].apart(one, on_grids[column], spikes[column]))
        elif one.columns[0] < 2 * many:
            whole = column in of and len(one.shares) == sizes[column]
            measured.append(of[column].known(one, spikes[column]) if whole else one)
    return measured
