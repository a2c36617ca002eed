"""Rows to numbers and back, from the schema alone: nothing is ever fitted on rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedsynth.data.column import DEFAULT_BINS, Column
from fedsynth.data.schema import Schema
from fedsynth.data.table import broken_rules, check_columns
from fedsynth.data.values import places, read_values, write_values
from fedsynth.errors import BadInput


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
class TableEncoding:
    """How rows of a table become vectors of `width` numbers and classes, and how they come back.

    Without a label there is one class, 0, so that a conditional model needs no special case.

    >>> ages = Schema(columns=(Column("age", "integer", min=0, max=3),))
    >>> encoding = TableEncoding(ages)
    >>> x, y = encoding.encode(pd.DataFrame({"age": [0, 3]}))
    >>> x
    tensor([[1.0000, 0.0000, 0.0000, 0.0000, 0.1250],
            [0.0000, 0.0000, 0.0000, 1.0000, 0.8750]])
    >>> encoding.decode(x, y)["age"].tolist()
    [0, 3]
    """

    schema: Schema
    blocks: tuple[Block, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.schema.kind != "table":
            raise BadInput(
                f"a schema of kind {self.schema.kind!r} has no table encoding; expected kind 'table'"
            )
        object.__setattr__(self, "blocks", _blocks(self.schema.feature_columns))

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        last = self.blocks[-1]
        return last.start + last.width

    @property
    def classes(self) -> int:
        """How many classes y can have: those of the label, or one."""
        return max(1, len(self.schema.classes))

    def encode(self, frame: pd.DataFrame) -> tuple[Tensor, Tensor]:
        """Rows as float32 [rows, width], classes as int64 [rows]; one error tells all that does not fit."""
        problems = check_columns(frame, self.schema)
        if problems:
            raise BadInput("the table does not fit its schema: " + "; ".join(problems))
        x = np.zeros((len(frame), self.width), dtype=np.float32)
        y = np.zeros(len(frame), dtype=np.int64)
        numbers = {}
        for column in self.schema.columns:
            if column.name in self.schema.sampled_names and column.type != "id" and column.name in frame:
                values = read_values(column, frame[column.name])
                problems += values.problems
                numbers[column.name] = values.numbers
        problems += broken_rules(self.schema, numbers)
        if problems:
            raise BadInput("the table does not fit its schema: " + "; ".join(problems))
        for column, block in zip(self.schema.feature_columns, self.blocks, strict=True):
            _fill(x, column, block, numbers[column.name])
        label = self.schema.label_column
        if label is not None:
            y = (numbers[label.name] - label.lowest).astype(np.int64)
        return torch.from_numpy(x), torch.from_numpy(y)

    def numbers(self, x: Tensor, y: Tensor | None = None) -> dict[str, np.ndarray]:
        """The numbers (or places of categories) of all columns but identifiers; NaN where missing.

        An entry's bin says only whether it is missing; an ordered column's value is read off its position.
        """
        rows = x.detach().cpu().numpy()
        if not np.isfinite(rows).all():
            advice = "the generator diverged; train it with smaller steps"
            raise BadInput(f"the rows to decode hold numbers that are not finite: {advice}")
        numbers = {
            column.name: _read(rows, column, block)
            for column, block in zip(self.schema.feature_columns, self.blocks, strict=True)
        }
        label = self.schema.label_column
        if label is not None:
            if y is None:
                raise BadInput(f"the schema has the label {label.name!r}; give decode the classes y as well")
            numbers[label.name] = y.detach().cpu().numpy().astype(np.float64) + label.lowest
        for name, rule in self.schema.derived.items():
            numbers[name] = rule.computed(numbers)
        return numbers

    def decode(self, x: Tensor, y: Tensor | None = None) -> pd.DataFrame:
        """A table in the schema's order of columns and in its dtypes, all learned values within bounds.

        Derived columns are computed, identifiers count from 1.
        """
        numbers = self.numbers(x, y)
        counted = np.arange(1.0, len(x) + 1)
        return pd.DataFrame(
            {
                name: write_values(self.schema.column(name), numbers.get(name, counted))
                for name in self.schema.sampled_names
            }
        )


def _blocks(columns: tuple[Column, ...]) -> tuple[Block, ...]:
    blocks: list[Block] = []
    start = 0
    for column in columns:
        blocks.append(Block(column.name, start, bins_of(column), column.missing, column.ordered))
        start += blocks[-1].width
    return tuple(blocks)


def _fill(x: np.ndarray, column: Column, block: Block, numbers: np.ndarray) -> None:
    """Write one column's entries into the rows of x; a missing value has the neutral position 1/2."""
    missing = np.isnan(numbers)
    bins = np.nan_to_num(numbers)
    if block.ordered:
        at = np.where(missing, 0.5, positions(column, np.where(missing, column.lowest, numbers)))
        x[:, block.place] = at
        bins = np.minimum(np.floor(at * block.bins), block.bins - 1)
    entry = np.where(missing, block.size - 1, bins).astype(np.int64)
    x[np.arange(len(x)), block.start + entry] = 1.0


def _read(rows: np.ndarray, column: Column, block: Block) -> np.ndarray:
    """One column's numbers (or places of categories), NaN where missing."""
    entry = rows[:, block.start : block.place].argmax(axis=1)
    missing = (entry == block.bins) & block.missing
    numbers = numbers_at(column, rows[:, block.place]) if block.ordered else entry.astype(np.float64)
    return np.where(missing, np.nan, numbers)


@dataclass(frozen=True)
class ImageEncoding:
    """How images become bytes [rows, channels, height, width] and classes, and how they come back."""

    schema: Schema

    def __post_init__(self) -> None:
        if self.schema.kind != "image":
            raise BadInput(
                f"a schema of kind {self.schema.kind!r} has no image encoding; expected kind 'image'"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        schema = self.schema
        assert schema.channels and schema.height and schema.width
        return schema.channels, schema.height, schema.width

    @property
    def classes(self) -> int:
        """How many classes y can have: those of the label, or one."""
        return max(1, len(self.schema.classes))

    def encode(self, images: np.ndarray, labels: np.ndarray | None = None) -> tuple[Tensor, Tensor]:
        """X uint8 [rows, channels, height, width] and y int64 [rows]."""
        channels, height, width = self.shape
        expected = (height, width) if channels == 1 and images.ndim == 3 else (height, width, channels)
        if images.dtype != np.uint8 or images.shape[1:] != expected:
            complaint = f"images are {images.dtype} of shape {images.shape[1:]}"
            raise BadInput(
                f"{complaint}, but the schema says uint8 of shape {expected}; convert them or correct the schema"
            )
        x = np.ascontiguousarray(images.reshape(-1, height, width, channels).transpose(0, 3, 1, 2))
        return torch.from_numpy(x.copy()), torch.from_numpy(self._classes(labels, len(images)))

    def decode(self, x: Tensor, y: Tensor | None = None) -> tuple[np.ndarray, np.ndarray | None]:
        """uint8 [rows, height, width(, 3)] and the labels' names; x may be bytes or numbers in [0, 1]."""
        x = x.detach().cpu()
        if x.dtype != torch.uint8:
            x = (x.clamp(0, 1) * 255).round().to(torch.uint8)
        images = x.reshape(-1, *self.shape).permute(0, 2, 3, 1).numpy()
        if self.shape[0] == 1:
            images = images[..., 0]
        if y is None or not self.schema.classes:
            return np.ascontiguousarray(images), None
        return np.ascontiguousarray(images), np.array(self.schema.classes)[y.detach().cpu().numpy()]

    def _classes(self, labels: np.ndarray | None, rows: int) -> np.ndarray:
        if self.schema.label is None:
            return np.zeros(rows, dtype=np.int64)
        if labels is None or len(labels) != rows:
            complaint = f"{'no' if labels is None else len(labels)} labels for {rows} images"
            raise BadInput(
                f"{complaint}, but the schema has the label {self.schema.label!r}; give one for each image"
            )
        codes = places(labels, self.schema.classes)
        if (codes < 0).any():
            example = str(np.asarray(labels)[codes < 0][0])
            expected = ", ".join(self.schema.classes)
            raise BadInput(
                f"label {example!r} is not in the schema; expected {expected}; correct it or add it"
            )
        return codes
