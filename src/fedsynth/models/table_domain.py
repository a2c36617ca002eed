"""The finest values that a table's columns are counted in, read off encoded rows and written back into them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedsynth.data.column import Column
from fedsynth.data.encode import Block, moments_again, numbers_at, positions
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.models.table_spikes import SpikedColumn
from fedsynth.rng import Rng

if TYPE_CHECKING:
    from torch import Tensor


FINEST = 128  # cells of a column of numbers
SPIKES = 32  # single numbers of a column that stand by themselves, at most
LARGEST_GRID = 2**17  # numbers that a column may have, to be looked at one by one
Spikes = tuple[
    tuple[int, ...], ...
]  # of each column: which of its numbers stand by themselves; -1: not known


@dataclass(frozen=True)
class Grid:
    """All numbers that a column of numbers may have, by the schema: its whole numbers, or its decimals."""

    column: Column
    numbers: int

    @classmethod
    def of(cls, column: Column) -> Grid | None:
        """The grid of a column; None if it has too many numbers, so few that each is a value, or no decimals."""
        if not column.numeric or (column.values or FINEST + 1) <= FINEST:
            return None
        if column.values is None and column.decimals is None:
            return None
        low, high = column.bounds
        numbers = column.values or int(math.floor((high - low) * 10 ** (column.decimals or 0) + 1.5))
        return cls(column, numbers) if numbers <= LARGEST_GRID else None

    def at(self, places: np.ndarray) -> np.ndarray:
        """The numbers at these places of the grid."""
        low, high = self.column.bounds
        if self.column.values is not None:
            return low + np.asarray(places, dtype=np.float64)
        return np.minimum(np.round(low + np.asarray(places) / 10**self._decimals, self._decimals), high)

    def places(self, at: Tensor) -> Tensor:
        """Where on the grid the numbers at these positions of encoded rows lie."""
        column, (low, high) = self.column, self.column.bounds
        span = high - low + column.whole
        position = at.double()
        distance = (position * math.log1p(span)).expm1() if column.scale == "log" else position * span
        place = distance.floor() if column.whole else (distance * 10**self._decimals).round()
        return place.long().clamp(0, self.numbers - 1)

    @property
    def _decimals(self) -> int:
        return self.column.decimals or 0


def open_spikes(schema: Schema, most_cells: int) -> Spikes:
    """Room for the numbers that will stand by themselves, in columns whose grids and spikes fill so many cells."""
    grids = [Grid.of(column) for column in Table(schema).learned]
    spikes: dict[int, tuple[int, ...]] = {}
    known = ((grid.numbers, place) for place, grid in enumerate(grids) if grid is not None)
    for numbers, place in sorted(known):
        most_cells -= numbers + 1 + SPIKES
        if most_cells >= 0:
            spikes[place] = (-1,) * SPIKES
    return tuple(spikes.get(place, ()) for place in range(len(grids))) if spikes else ()


@dataclass(frozen=True)
class Axis:
    """One column: its categories, few whole numbers or equal cells of its range; then numbers by themselves.

    These are zero and the spikes; missing is last.
    """

    block: Block
    cells: int
    middles: tuple[float, ...] = ()  # positions of the few values of an ordered column, ascending
    zero: float | None = None  # the position of 0 where many rows may have just that value
    grid: Grid | None = None
    spikes: tuple[int, ...] = ()  # places on the grid

    @classmethod
    def of(cls, column: Column, block: Block, finest: int = FINEST, spikes: tuple[int, ...] = ()) -> Axis:
        """The axis of a column: each category or whole number where there are few, else cells of its range."""
        if not block.ordered:
            return cls(block, block.bins)
        if column.values is not None and column.values <= finest:
            lowest = column.bounds[0] if column.numeric else 0
            return cls(block, column.values, _positions(column, lowest + np.arange(column.values)))
        if not column.numeric:
            return cls(block, finest)
        low, high = column.bounds
        zero = _positions(column, np.zeros(1))[0] if low <= 0 <= high else None
        return cls(block, finest, zero=zero, grid=Grid.of(column) if spikes else None, spikes=spikes)

    @property
    def first_spike(self) -> int:
        """The value of the first spike."""
        return self.cells + (self.zero is not None)

    @property
    def size(self) -> int:
        """How many values there are."""
        return self.first_spike + len(self.spikes) + self.block.missing

    @property
    def alone(self) -> np.ndarray:
        """The numbers that stand by themselves; NaN for spikes that are not known."""
        zero = [0.0] if self.zero is not None else []
        known = self.grid.at(np.maximum(self.spikes, 0)) if self.grid else np.empty(0)
        return np.concatenate([zero, np.where(np.array(self.spikes) < 0, np.nan, known)])

    @property
    def ordered(self) -> int:
        """How many of the values, the first ones, have an order."""
        return self.cells if self.block.ordered else 0

    def codes(self, x: Tensor) -> Tensor:
        """The values of encoded rows [..., width]."""
        import torch

        block = self.block
        entry = x[..., block.start : block.place].argmax(-1)
        if not block.ordered:
            return entry
        at = x[..., block.place].contiguous()
        if self.middles:
            middles = torch.tensor(self.middles, device=x.device)
            code = torch.bucketize(at, (middles[1:] + middles[:-1]) / 2)
        else:
            code = (at * self.cells).to(torch.int64).clamp(0, self.cells - 1)
        if self.grid is not None and max(self.spikes) >= 0:
            order = torch.tensor(self.spikes, device=x.device).argsort()
            spikes, place = torch.tensor(self.spikes, device=x.device)[order], self.grid.places(at)
            near = torch.searchsorted(spikes, place).clamp(max=len(spikes) - 1)
            code = torch.where(spikes[near] == place, self.first_spike + order[near], code)
        if self.zero is not None:
            code = torch.where(at == self.zero, self.cells, code)
        return torch.where(entry == block.bins, self.size - 1, code) if block.missing else code

    def grid_places(self, x: Tensor) -> Tensor:
        """The places on the grid of encoded rows [..., width]; the last is for zero and missing."""
        import torch

        assert self.grid is not None
        at = x[..., self.block.place].contiguous()
        apart = at == self.zero if self.zero is not None else torch.zeros_like(at, dtype=torch.bool)
        if self.block.missing:
            apart = apart | (x[..., self.block.start : self.block.place].argmax(-1) == self.block.bins)
        return torch.where(apart, self.grid.numbers, self.grid.places(at))

    def grid_cells(self) -> np.ndarray:
        """The cell of each number of the grid; -1 for zero, which has its own, and for the last, which is no number."""
        assert self.grid is not None
        numbers = self.grid.at(np.arange(self.grid.numbers))
        at = positions(self.grid.column, numbers).astype(np.float32)
        cells = (at * np.float32(self.cells)).astype(np.int64).clip(0, self.cells - 1)
        return np.append(np.where((numbers == 0) & (self.zero is not None), -1, cells), -1)

    def write(self, x: Tensor, codes: Tensor, uniform: Tensor) -> None:
        """Put values into rows of x; a number lies anywhere in its cell, one of a few values where it belongs."""
        import torch

        block, rows = self.block, torch.arange(len(x))
        missing = (codes == self.size - 1) if block.missing else torch.zeros(len(x), dtype=torch.bool)
        entry = codes
        if block.ordered:
            cell = codes.clamp(max=self.cells - 1)
            at = torch.tensor(self.middles)[cell] if self.middles else (cell + uniform) / self.cells
            if alone := self._alone_at:
                own = codes - self.cells
                at = torch.where(own >= 0, torch.tensor(alone)[own.clamp(0, len(alone) - 1)], at)
            x[:, block.place] = torch.where(missing, 0.5, at)
            entry = (at * block.bins).to(torch.int64).clamp(0, block.bins - 1)
        x[rows, block.start + torch.where(missing, block.size - 1, entry)] = 1.0

    @property
    def _alone_at(self) -> tuple[float, ...]:
        """The positions of the numbers that stand by themselves."""
        zero = () if self.zero is None else (self.zero,)
        if self.grid is None:
            return zero
        return (*zero, *_positions(self.grid.column, self.grid.at(np.maximum(self.spikes, 0))))

    def numbers(self, column: Column, codes: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """The numbers (or places of categories) of rows with these values, as if encoded and read back."""
        numbers: np.ndarray
        if self.middles:
            few = np.append(numbers_at(column, np.array(self.middles, dtype=np.float32)), np.nan)
            return few[codes]
        if not self.block.ordered:
            numbers = codes.astype(np.float64)
        else:
            at = (np.minimum(codes, self.cells - 1).astype(np.float32) + uniform) / np.float32(self.cells)
            if alone := self._alone_at:
                own = codes - self.cells
                at = np.where(own >= 0, np.array(alone, dtype=np.float32)[own.clip(0, len(alone) - 1)], at)
            numbers = numbers_at(column, at)
        if self.block.missing:
            numbers[codes == self.size - 1] = np.nan
        return numbers


def _positions(column: Column, numbers: np.ndarray) -> tuple[float, ...]:
    """Where numbers lie in an encoded row, as float32 has them."""
    return tuple(float(at) for at in positions(column, numbers).astype(np.float32))


@dataclass(frozen=True)
class TableDomain:
    """All columns of a table, the label's last."""

    schema: Schema
    finest: int = FINEST  # cells of a column of numbers, at most
    spikes: Spikes = ()  # numbers that stand by themselves; none: of no column

    def with_spikes(self, spikes: Spikes) -> TableDomain:
        """The same with these spikes."""
        return self if spikes == self.spikes else replace(self, spikes=spikes)

    @cached_property
    def encoding(self) -> Table:
        """How rows are encoded."""
        return Table(self.schema)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The columns that are features."""
        learned, blocks = self.encoding.learned, self.encoding.blocks
        spikes: Sequence[tuple[int, ...]] = self.spikes or [()] * len(learned)
        columns = zip(learned, blocks, spikes, strict=True)
        return tuple(Axis.of(column, block, self.finest, own) for column, block, own in columns)

    @cached_property
    def grids(self) -> tuple[int, ...]:
        """How many numbers each column may have, if it has spikes: the last stands for zero and missing."""
        grids = tuple(axis.grid.numbers + 1 if axis.grid else 0 for axis in self.axes)
        return (*grids, *((0,) if self.schema.classes else ())) if any(grids) else ()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each column has."""
        label = (len(self.schema.classes),) if self.schema.classes else ()
        return (*(axis.size for axis in self.axes), *label)

    @cached_property
    def ordered(self) -> tuple[int, ...]:
        """How many values of each column have an order."""
        return (*(axis.ordered for axis in self.axes), *((0,) if self.schema.classes else ()))

    @property
    def label(self) -> int | None:
        """Which column is the label."""
        return len(self.axes) if self.schema.classes else None

    def codes(self, x: Tensor, y: Tensor) -> Tensor:
        """The values of encoded rows, [..., columns]."""
        import torch

        columns = [axis.codes(x) for axis in self.axes]
        return torch.stack([*columns, y] if self.schema.classes else columns, dim=-1)

    def grid_places(self, x: Tensor) -> dict[int, Tensor]:
        """Where the numbers of encoded rows lie on the grids of columns with spikes."""
        return {place: axis.grid_places(x) for place, axis in enumerate(self.axes) if axis.grid}

    def rows(self, codes: Tensor, rng: Rng) -> Tensor:
        """Encoded rows [rows, width] with these values, [rows, columns]."""
        import torch

        x = torch.zeros(len(codes), self.encoding.width)
        uniform = torch.from_numpy(self._uniform(len(codes), rng))
        for place, axis in enumerate(self.axes):
            axis.write(x, codes[:, place], uniform[place])
        return x

    def numbers(self, codes: np.ndarray, rng: Rng) -> dict[str, np.ndarray]:
        """Return the numbers that `rows` would be decoded to, of all learned columns; much faster."""
        uniform = self._uniform(len(codes), rng)
        numbers = {
            column.name: axis.numbers(column, codes[:, place], uniform[place])
            for place, (column, axis) in enumerate(zip(self.encoding.learned, self.axes, strict=True))
        }
        numbers = moments_again(self.schema, numbers)
        label = self.schema.label_column
        if label is not None:
            numbers[label.name] = codes[:, -1].astype(np.float64) + label.lowest
        return numbers

    def _uniform(self, rows: int, rng: Rng) -> np.ndarray:
        """Where numbers lie in their cells, [columns, rows]."""
        return rng.at("within").floats(len(self.axes), rows)


def spiked_columns(domain: TableDomain) -> tuple[tuple[int, SpikedColumn], ...]:
    """The columns whose numbers are looked at one by one."""
    return tuple(
        (place, SpikedColumn(axis.grid_cells(), axis.first_spike, len(axis.spikes)))
        for place, axis in enumerate(domain.axes)
        if axis.grid
    )
