"""The finest values that a table's columns are counted in, read off encoded rows and written back into them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedsynth.data.column import Column
from fedsynth.data.encode import Block, numbers_at, positions
from fedsynth.data.schema import Schema
from fedsynth.data.since import moments_again
from fedsynth.data.table import Table
from fedsynth.rng import Rng

if TYPE_CHECKING:
    from torch import Tensor


FINEST = 128  # cells of a column of numbers


@dataclass(frozen=True)
class Axis:
    """One column: its categories, few whole numbers or equal cells of its range; then zero by itself, then missing."""

    block: Block
    cells: int
    middles: tuple[float, ...] = ()  # positions of the few values of an ordered column, ascending
    zero: float | None = None  # the position of 0 where many rows may have just that value

    @classmethod
    def of(cls, column: Column, block: Block, finest: int = FINEST) -> Axis:
        """The axis of a column: each category or whole number where there are few, else cells of its range."""
        if not block.ordered:
            return cls(block, block.bins)
        if column.values is not None and column.values <= finest:
            lowest = column.bounds[0] if column.numeric else 0
            return cls(block, column.values, _positions(column, lowest + np.arange(column.values)))
        low, high = column.bounds
        zero = _positions(column, np.zeros(1))[0] if low <= 0 <= high else None
        return cls(block, finest, zero=zero)

    @property
    def size(self) -> int:
        """How many values there are."""
        return self.cells + (self.zero is not None) + self.block.missing

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
        if self.zero is not None:
            code = torch.where(at == self.zero, self.cells, code)
        return torch.where(entry == block.bins, self.size - 1, code) if block.missing else code

    def write(self, x: Tensor, codes: Tensor, uniform: Tensor) -> None:
        """Put values into rows of x; a number lies anywhere in its cell, one of a few values where it belongs."""
        import torch

        block, rows = self.block, torch.arange(len(x))
        missing = (codes == self.size - 1) if block.missing else torch.zeros(len(x), dtype=torch.bool)
        entry = codes
        if block.ordered:
            cell = codes.clamp(max=self.cells - 1)
            at = torch.tensor(self.middles)[cell] if self.middles else (cell + uniform) / self.cells
            if self.zero is not None:
                at = torch.where(codes == self.cells, self.zero, at)
            x[:, block.place] = torch.where(missing, 0.5, at)
            entry = (at * block.bins).to(torch.int64).clamp(0, block.bins - 1)
        x[rows, block.start + torch.where(missing, block.size - 1, entry)] = 1.0

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
            if self.zero is not None:
                at[codes == self.cells] = self.zero
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

    @cached_property
    def encoding(self) -> Table:
        """How rows are encoded."""
        return Table(self.schema)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The columns that are features."""
        pairs = zip(self.encoding.learned, self.encoding.blocks, strict=True)
        return tuple(Axis.of(column, block, self.finest) for column, block in pairs)

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

    def rows(self, codes: Tensor, rng: Rng) -> Tensor:
        """Encoded rows [rows, width] with these values, [rows, columns]."""
        import torch

        x = torch.zeros(len(codes), self.encoding.width)
        uniform = torch.from_numpy(self._uniform(len(codes), rng))
        for place, axis in enumerate(self.axes):
            axis.write(x, codes[:, place], uniform[place])
        return x

    def numbers(self, codes: np.ndarray, rng: Rng) -> dict[str, np.ndarray]:
        """What `rows` would be decoded to, of all columns that are learned; much faster."""
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
