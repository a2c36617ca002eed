"""A column's values as entries of an encoded row and back, from the schema alone: nothing is ever fitted on rows.

Moments may be learned as the time since another moment: how long a stay was says more than its two dates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedsynth.data.column import DEFAULT_BINS, LARGEST_RANGE, Column

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedsynth.data.schema import Schema

DAYS = ("date", "timestamp")
_NEAR = 1.25  # times a column's own range: further from another moment it is learned as it is (a visit, from a birth)


@dataclass(frozen=True)
class Block:
    """Where one column lies in an encoded row.

    `size` softmax entries (the bins, then the missing entry if there is one), and for an ordered column one
    more number: the position in [0, 1], of which the bin is a rounding.

    >>> block = Block("bmi", start=3, bins=32, missing=True, ordered=True)
    >>> block.size, block.width, block.place
    (33, 34, 36)
    """

    column: str
    start: int
    bins: int
    missing: bool
    ordered: bool

    @property
    def size(self) -> int:
        """How many softmax entries the block has."""
        return self.bins + self.missing

    @property
    def width(self) -> int:
        """How many numbers the block has."""
        return self.size + self.ordered

    @property
    def place(self) -> int:
        """Where the position of an ordered block lies in the row."""
        return self.start + self.size


def bins_of(column: Column) -> int:
    """How many bins a column's head has: its categories, or the resolution of its range."""
    if not column.numeric:
        return len(column.labels)
    wanted = column.bins or DEFAULT_BINS
    return wanted if column.values is None else min(wanted, column.values)


def positions(column: Column, numbers: np.ndarray) -> np.ndarray:
    """Where numbers (or places of categories) of an ordered column lie in [0, 1], in float64.

    Whole numbers and categories lie in the middle of their cell: rounding to float32 cannot move them out.

    >>> positions(Column("grade", "ordinal", categories=("low", "high")), np.array([0.0, 1.0]))
    array([0.25, 0.75])
    """
    if column.type == "ordinal":
        return (numbers + 0.5) / len(column.labels)
    low, high = column.bounds
    distance, span = (
        (numbers - low, high - low) if column.type == "continuous" else (numbers - low + 0.5, high - low + 1)
    )
    return np.log1p(distance) / np.log1p(span) if column.scale == "log" else distance / span


def numbers_at(column: Column, at: np.ndarray) -> np.ndarray:
    """The inverse of `positions`; the result lies within the bounds, rounded as the schema says."""
    at = np.clip(at.astype(np.float64), 0.0, 1.0)
    if column.type == "ordinal":
        return np.minimum(np.floor(at * len(column.labels)), len(column.labels) - 1)
    low, high = column.bounds
    span = high - low + column.whole
    distance = np.expm1(at * np.log1p(span)) if column.scale == "log" else at * span
    if column.whole:
        return low + np.clip(np.floor(distance), 0, high - low)
    numbers = low + distance
    rounded = numbers if column.decimals is None else np.round(numbers, column.decimals)
    return np.clip(rounded, low, high)


@dataclass(frozen=True)
class CompactRows:
    """Encoded rows of a table without their zeros: an index or a slice gives rows whole, float32 [..., width].

    A column of 900 codes takes one number per row instead of 900.
    """

    ones: Tensor  # [rows, columns] int32: where each row has a one
    positions: Tensor  # [rows, ordered columns] float32
    places: Tensor  # [ordered columns] int64: where the positions lie
    width: int

    @classmethod
    def of(cls, blocks: Sequence[Block], entries: Sequence[tuple[np.ndarray, np.ndarray]]) -> CompactRows:
        """Rows from the entries and positions of each block."""
        import torch

        ordered = [place for place, block in enumerate(blocks) if block.ordered]
        rows = len(entries[0][0])
        ones = np.empty((rows, len(blocks)), dtype=np.int32)
        positions = np.empty((rows, len(ordered)), dtype=np.float32)
        for place, (entry, _) in enumerate(entries):
            ones[:, place] = entry
        for column, place in enumerate(ordered):
            positions[:, column] = entries[place][1]
        places = torch.tensor([blocks[place].place for place in ordered], dtype=torch.int64)
        return cls(
            torch.from_numpy(ones), torch.from_numpy(positions), places, blocks[-1].start + blocks[-1].width
        )

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        import torch

        ones = self.ones[rows].to(torch.int64)
        whole = torch.zeros(*ones.shape[:-1], self.width, device=ones.device)
        whole.scatter_(-1, ones, 1.0)
        whole[..., self.places] = self.positions[rows]
        return whole

    def ordered(self, order: Tensor) -> CompactRows:
        """The rows in another order."""
        return CompactRows(self.ones[order], self.positions[order], self.places, self.width)

    def to(self, device: torch.device | str) -> CompactRows:
        """The same rows on another device."""
        return CompactRows(
            self.ones.to(device), self.positions.to(device), self.places.to(device), self.width
        )


def blocks_of(columns: tuple[Column, ...]) -> tuple[Block, ...]:
    """Lay the columns side by side."""
    blocks: list[Block] = []
    start = 0
    for column in columns:
        blocks.append(Block(column.name, start, bins_of(column), column.missing, column.ordered))
        start += blocks[-1].width
    return tuple(blocks)


def block_entries(column: Column, block: Block, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where a row has a one for this column, and its position; a missing value has the neutral position 1/2."""
    missing = np.isnan(numbers)
    bins = at = np.nan_to_num(numbers)
    if block.ordered:
        at = np.where(missing, 0.5, positions(column, np.where(missing, column.lowest, numbers)))
        bins = np.minimum(np.floor(at * block.bins), block.bins - 1)
    return block.start + np.where(missing, block.size - 1, bins).astype(np.int64), at


def read_block(rows: np.ndarray, column: Column, block: Block) -> np.ndarray:
    """One column's numbers (or places of categories), NaN where missing."""
    entry = rows[:, block.start : block.place].argmax(axis=1)
    missing = (entry == block.bins) & block.missing
    numbers = numbers_at(column, rows[:, block.place]) if block.ordered else entry.astype(np.float64)
    return np.where(missing, np.nan, numbers)


@dataclass(frozen=True)
class Anchor:
    """The moment that others are counted from."""

    name: str
    column: Column

    def grains(self, column: Column, numbers: np.ndarray | float) -> np.ndarray:
        """The anchor's moments as whole grains of another column, counted from that column's first moment.

        >>> anchor = Anchor("at", Column("at", "date", min="2020-01-01", max="2020-12-31"))
        >>> anchor.grains(Column("taken", "timestamp", min="2020-01-02", max="2020-12-31", grain="hour"), 2.0)
        np.float64(24.0)
        """
        seconds = self.column.first_second - column.first_second + numbers * self.column.grain_seconds
        return np.floor(seconds / column.grain_seconds)

    def since(self, column: Column, later: bool) -> Column:
        """A column as the time since the anchor; `later` says that it never lies before."""
        first, last = (float(self.grains(column, end)) for end in self.column.bounds)
        high = column.bounds[1] - first
        return whole_numbers(column, 0 if later else -last, high, log=later)

    def near(self, column: Column) -> bool:
        """Whether the time since the anchor says more of a later moment than its date."""
        low, high = column.bounds
        return self.since(column, later=True).bounds[1] <= _NEAR * (high - low)


def whole_numbers(column: Column, low: float, high: float, log: bool) -> Column:
    """A column of whole numbers, however many there are."""
    scale = "log" if log else "linear"
    low, high = int(low), int(max(high, low + 1))
    many = high - low >= LARGEST_RANGE[scale]
    kind = {"type": "continuous", "decimals": 0} if many else {"type": "integer"}
    return Column(column.name, min=low, max=high, scale=scale, missing=column.missing, **kind)


def anchors_of(schema: Schema) -> dict[str, Anchor]:
    """The moments that a constraint puts after another of the same row, and that other, each before those that follow.

    An anchor is always there: from a missing one nothing can be counted. It is near: of a visit long after a birth the
    date says more than the age. Of several the one in the longest chain is
    taken: with `discharge >= admission` and `discharge >= transfer >= admission` discharge counts from transfer.

    >>> from fedsynth.data.schema import Schema
    >>> days = {"min": "2020-01-01", "max": "2020-12-31"}
    >>> stay = (Column("admission", "date", **days), Column("discharge", "date", **days))
    >>> anchor = anchors_of(Schema(columns=stay, constraints=("discharge >= admission",)))["discharge"]
    >>> anchor.name, anchor.since(stay[1], later=True).allowed()
    ('admission', '0 to 365')
    """
    moments = {column.name: column for column in schema.feature_columns if column.type in DAYS}
    earlier: dict[str, set[str]] = {name: set() for name in moments}
    for rule in schema.rules:
        if rule.order is not None and {*rule.order} <= {*moments}:
            later, before = rule.order
            anchor = Anchor(before, moments[before])
            if not anchor.column.missing and anchor.near(moments[later]):
                earlier[later].add(before)
    depth: dict[str, int] = {}
    anchors: dict[str, Anchor] = {}
    while True:
        ready = [name for name in moments if name not in depth and earlier[name] <= {*depth}]
        if not ready:
            return anchors  # what is left is in a circle, and learned as it is
        for name in ready:
            nearest = max(sorted(earlier[name]), key=lambda one: depth[one], default=None)
            depth[name] = 0 if nearest is None else 1 + depth[nearest]
            if nearest is not None:
                anchors[name] = Anchor(nearest, moments[nearest])


def counted_since(schema: Schema, numbers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The numbers of all columns, moments that have an anchor as the time since it."""
    counted = {
        name: numbers[name] - anchor.grains(schema.column(name), numbers[anchor.name])
        for name, anchor in anchors_of(schema).items()
    }
    return {**numbers, **counted}


def moments_again(schema: Schema, numbers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of `counted_since`; moments may lie beyond their bounds."""
    moments = dict(numbers)
    for name, anchor in anchors_of(schema).items():
        moments[name] = numbers[name] + anchor.grains(schema.column(name), moments[anchor.name])
    return moments
