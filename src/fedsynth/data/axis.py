"""The values that a column is counted in: its categories, few whole numbers, or cells of its range."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsynth.data.column import Column
from fedsynth.data.encode import numbers_at, positions

FINEST = 128  # cells of a column of numbers


@dataclass(frozen=True)
class CountAxis:
    """One column's values as codes: categories, whole numbers or cells of its range; then zero, then missing."""

    column: Column

    @property
    def few(self) -> bool:
        """Whether each value has a code of its own."""
        return self.column.values is not None and (self.column.values <= FINEST or not self.column.ordered)

    @property
    def cells(self) -> int:
        """How many codes the values have, but for zero and missing."""
        return int(self.column.values or 0) if self.few else len(self._ranges[0])

    @property
    def places(self) -> np.ndarray:
        """Where each ordered code begins in the column's range, in [0, 1)."""
        return np.arange(self.ordered) / max(1, self.ordered) if self.few else self._ranges[0] / FINEST

    @property
    def zero(self) -> bool:
        """Whether 0, which many rows may have, is by itself."""
        return not self.few and self.column.numeric and self.column.bounds[0] <= 0 <= self.column.bounds[1]

    @property
    def size(self) -> int:
        """How many codes there are."""
        return self.cells + self.zero + self.column.missing

    @property
    def ordered(self) -> int:
        """How many of the codes, the first ones, have an order."""
        return self.cells if self.column.ordered else 0

    def codes(self, numbers: np.ndarray) -> np.ndarray:
        """The codes of numbers (or places of categories); NaN is missing.

        >>> CountAxis(Column("age", "integer", min=18, max=20, missing=True)).codes(np.array([18, 20, np.nan]))
        array([0, 2, 3])
        """
        absent = np.isnan(numbers)
        filled = np.where(absent, self.column.lowest, numbers)
        if self.few:
            codes = (filled - self.column.lowest).astype(np.int64)
        else:
            codes = self._ranges[0].searchsorted(self._cell(filled))
            if self.zero:
                codes[filled == 0] = self.cells
        codes[absent] = self.size - 1
        return codes

    def numbers(self, codes: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Numbers that have these codes, anywhere in a cell; NaN where missing."""
        if self.few:
            numbers = codes + float(self.column.lowest)
        else:
            cells, first, last = self._ranges
            code = np.minimum(codes, len(cells) - 1)
            numbers = numbers_at(self.column, (cells[code] + uniform) / FINEST).clip(first[code], last[code])
            if self.zero:
                numbers[codes == self.cells] = 0.0
        if self.column.missing:
            numbers[codes == self.size - 1] = np.nan
        return numbers

    def _cell(self, numbers: np.ndarray) -> np.ndarray:
        """In which of many cells of the range numbers lie."""
        return np.minimum((positions(self.column, numbers) * FINEST).astype(np.int64), FINEST - 1)

    @cached_property
    def _ranges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The cells that a number can lie in, and the first and last number of each: small ones are far apart."""
        unit, (low, high) = self._unit, self.column.bounds
        edges = numbers_at(self.column, np.arange(FINEST + 1) / FINEST)
        if unit is None:
            return np.arange(FINEST), edges[:-1], edges[1:]
        near = np.round(edges / unit)[:, None] + np.arange(-2, 3)
        near = np.unique(np.clip(np.round(near * unit, self.column.decimals or 0), low, high))
        near = near[near != 0] if self.zero else near
        cells, begins = np.unique(self._cell(near), return_index=True)
        return cells, near[begins], near[np.append(begins[1:], len(near)) - 1]

    @property
    def _unit(self) -> float | None:
        """How far neighboring numbers are apart; None if any number can be."""
        if self.column.decimals is not None:
            return float(10.0**-self.column.decimals)
        return 1.0 if self.column.whole else None
