"""Tables: whether a table fits its schema, and its rows as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedsynth.data.clients import RawClients, clients_from
from fedsynth.data.column import Column
from fedsynth.data.encode import (
    Block,
    CompactRows,
    anchors_of,
    block_entries,
    blocks_of,
    counted_since,
    moments_again,
    read_block,
)
from fedsynth.data.modality import ENDINGS, Modality, Source
from fedsynth.data.schema import Schema, constraint_problems
from fedsynth.data.table_files import write_parts, write_table
from fedsynth.data.values import conform, read_values, write_values
from fedsynth.errors import BadInput, nearest
from fedsynth.late import pd

if TYPE_CHECKING:
    from torch import Tensor


def check(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """Everything in a table that does not fit its schema, a sentence each; empty if it fits.

    >>> from fedsynth.data.schema import Column
    >>> schema = Schema(columns=(Column("age", "integer", min=0, max=99),))
    >>> check(pd.DataFrame({"agee": [3]}), schema)
    ["column 'age' is missing; rename 'agee'?"]
    """
    problems = check_columns(frame, schema)
    if not len(frame):
        problems.append("the table has no rows; expected at least one")
    numbers = {}
    for name in schema.sampled_names:
        column = schema.column(name)
        if column.type != "id" and list(frame.columns).count(name) == 1:
            values = read_values(column, frame[name])
            problems += values.problems
            numbers[name] = values.numbers
    return problems + broken_rules(schema, numbers)


def broken_rules(schema: Schema, numbers: Mapping[str, np.ndarray]) -> list[str]:
    """A sentence for each constraint that rows break, by the numbers of the columns that are there."""
    problems = []
    for rule in schema.rules:
        if all(name in numbers for name in rule.columns):
            broken = ~rule.holds(numbers)
            if broken.any():
                breach = f"constraint {rule.text!r}: {int(broken.sum())} of {len(broken)} rows break it"
                problems.append(f"{breach}; correct or drop them, or take the constraint out of the schema")
    return problems


def valid_rows(
    schema: Schema, numbers: Mapping[str, np.ndarray], columns: set[str] | None = None
) -> np.ndarray:
    """Which rows keep the constraints (on some columns), with what these compute within its bounds."""
    rules = [rule for rule in schema.rules if columns is None or columns & {*rule.columns}]
    kept = np.logical_and.reduce([rule.holds(numbers) for rule in rules])
    for name, rule in schema.derived.items():
        if rule in rules:
            column, values = schema.column(name), numbers[name]
            inside = (values >= column.bounds[0]) & (values <= column.bounds[1])
            kept &= inside | (np.isnan(values) & column.missing)
    for name in anchors_of(schema):
        if columns is None or name in columns:
            kept &= ~(numbers[name] > schema.column(name).bounds[1])
    return kept


def check_columns(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """Columns that are missing or there twice. Those that the schema leaves out may be there or not."""
    unnamed = [name for name in frame.columns if not isinstance(name, str)]
    if unnamed:
        return [f"column name {unnamed[0]!r} is no text; give each column a name"]
    present = list(frame.columns)
    twice = sorted({name for name in schema.sampled_names if present.count(name) > 1})
    problems = [f"column {name!r} is there twice; rename or drop one" for name in twice]
    extra = [name for name in present if name not in schema.sampled_names and name != schema.client]
    for name in schema.names:
        if name not in present:
            problems.append(f"column {name!r} is missing; {_rename(name, extra)}")
    return problems


def _rename(name: str, extra: list[str]) -> str:
    suggestion = nearest(name, extra)
    return (
        f"rename {suggestion.split(chr(39))[1]!r}?"
        if suggestion.startswith("did you mean")
        else "add it or take it out of the schema"
    )


@dataclass(frozen=True)
class Table(Modality):
    """Rows of columns; encoded, vectors of `width` numbers and classes.

    Without a label there is one class, 0, so that a conditional model needs no special case.

    >>> from fedsynth.data.column import Column
    >>> ages = Schema(columns=(Column("age", "integer", min=0, max=3),))
    >>> encoding = Table(ages)
    >>> x, y = encoding.encode(pd.DataFrame({"age": [0, 3]}))
    >>> x
    tensor([[1.0000, 0.0000, 0.0000, 0.0000, 0.1250],
            [0.0000, 0.0000, 0.0000, 1.0000, 0.8750]])
    >>> encoding.decode(x, y)["age"].tolist()
    [0, 3]
    """

    kind: ClassVar[str] = "table"
    ending: ClassVar[str] = ENDINGS["table"]
    expected: ClassVar[str] = "a pandas DataFrame"

    @staticmethod
    def problems(schema: Schema) -> list[str]:
        """Say what in a schema does not fit a table."""
        problems = [
            f"{key!r} is for images or text, not for a table"
            for key in ("height", "width", "channels", "vocabulary", "length")
            if getattr(schema, key) is not None
        ]
        if schema.client is not None and not isinstance(schema.client, str):
            problems.append(f"client {schema.client!r} must be the name of a column")
        problems += constraint_problems(schema)
        if not problems and not schema.feature_columns and not schema.inside:
            problems.append("'columns' must list at least one column besides the label")
        return problems

    def describe(self) -> str:
        """Say how many columns are learned."""
        return f"a table of {len(self.schema.names)} columns"

    def read(self, path: Path | str, column: str | None = None) -> pd.DataFrame:
        """Read the rows of a file, a folder of files or a database by the schema."""
        from fedsynth.data.reading import read_rows

        return read_rows(path, self.schema)

    def clients(self, source: Source) -> RawClients:
        """Read the rows and their owners; without any, each row is somebody's."""
        column = source.client_column
        schema = self.schema.with_client(column) if column else self.schema
        return self.owned(self.plain(type(self)(schema).read(source.path)), source)

    def owned(self, data: pd.DataFrame, source: Source) -> RawClients:
        """Return the owners of rows; without any, each row is somebody's."""
        column, schema, frame = source.client_column, self.schema, data
        if source.alone:
            return RawClients(np.zeros(len(frame), dtype=np.int64), 1, ("this site",), frame)
        if column is None and schema.client in frame.columns:
            frame = frame.drop(columns=schema.client)
        if column is None and source.clients is None:
            return clients_from(frame, clients=len(frame), split="rows")
        how = {"split": source.split, "label": schema.label, "rng": source.rng}
        return clients_from(frame, client_column=column, clients=source.clients, **how)  # type: ignore[arg-type]

    def write(self, data: pd.DataFrame, path: Path | str) -> None:
        """Write a CSV or Parquet file."""
        write_table(data, path)

    def write_parts(self, parts: Iterable[pd.DataFrame], path: Path | str) -> None:
        """Write a CSV or Parquet file part by part; whole where a kind that extends this one has its own files."""
        if type(self).write is Table.write:
            write_parts(parts, path)
        else:
            super().write_parts(parts, path)

    def fits(self, data: Any) -> bool:
        """Tell whether this is a table."""
        return isinstance(self.plain(data), pd.DataFrame)

    def conform(self, data: pd.DataFrame) -> pd.DataFrame:
        """Make values fit columns that were paid for."""
        return conform(self.plain(data), self.schema)

    def check_file(self, path: Path | str, column: str) -> list[str]:
        """Say what in a file does not fit the schema, column by column."""
        return check(self.conform(self.read(path)), self.schema)

    def take(self, data: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
        """Return these rows."""
        return data.iloc[rows].reset_index(drop=True)

    def join(self, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
        """Return the rows of several tables."""
        return parts[0] if len(parts) == 1 else pd.concat(list(parts), ignore_index=True)

    def numbered(self, data: pd.DataFrame, after: int = 0) -> pd.DataFrame:
        """Return drawn rows whose identifiers count on after so many, to the last."""
        counted = np.arange(after + 1.0, after + len(data) + 1)
        ids = [column for column in self.schema.columns if column.type == "id" and column.name in data]
        return data.assign(**{one.name: write_values(one, counted) for one in ids}) if ids else data

    def labels(self, data: pd.DataFrame) -> np.ndarray:
        """Return the label column as text."""
        return data[self.schema.label].astype("string").fillna("").to_numpy()

    def unlabelled(self, data: pd.DataFrame) -> pd.DataFrame:
        """Return the table without its label column."""
        return data.drop(columns=[self.schema.label]) if self.schema.label in data.columns else data

    @property
    def shape(self) -> tuple[int]:
        """The width of an encoded row."""
        return (self.width,)

    def random(self, rows: int, draw: np.random.Generator) -> Tensor:
        """Return encoded rows of chance."""
        import torch

        x = torch.zeros(rows, self.width)
        for block in self.blocks:
            choice = torch.from_numpy(draw.integers(0, block.size, rows))
            x[torch.arange(rows), block.start + choice] = 1.0
            if block.ordered:
                inside = (choice + torch.from_numpy(draw.random(rows)).float()) / block.bins
                x[:, block.place] = torch.where(choice < block.bins, inside, 0.5)
        return x

    @cached_property
    def learned(self) -> tuple[Column, ...]:
        """The columns as they are learned, minus the label: moments after another one as the time since it."""
        anchors, columns = anchors_of(self.schema), self.schema.feature_columns
        return tuple(
            anchors[column.name].since(column, later=True) if column.name in anchors else column
            for column in columns
        )

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Where each column lies in an encoded row."""
        return blocks_of(self.learned)

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        last = self.blocks[-1]
        return last.start + last.width

    def encode(self, data: pd.DataFrame) -> tuple[Tensor, Tensor]:
        """Rows as float32 [rows, width], classes as int64 [rows]; one error tells all that does not fit."""
        rows, y = self._compact(data)
        return rows[:], y

    def compact(self, data: pd.DataFrame) -> tuple[Tensor | CompactRows, Tensor]:
        """The same rows without their zeros; whole where a kind that extends this one encodes in its own way."""
        return self._compact(data) if type(self).encode is Table.encode else self.encode(data)

    def _compact(self, data: pd.DataFrame) -> tuple[CompactRows, Tensor]:
        import torch

        frame = self.plain(data)
        problems = check_columns(frame, self.schema)
        if problems:
            raise BadInput("the table does not fit its schema: " + "; ".join(problems))
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
        counted = counted_since(self.schema, numbers)
        entries = [
            block_entries(column, block, counted[column.name])
            for column, block in zip(self.learned, self.blocks, strict=True)
        ]
        label = self.schema.label_column
        if label is not None:
            y = (numbers[label.name] - label.lowest).astype(np.int64)
        return CompactRows.of(self.blocks, entries), torch.from_numpy(y)

    def numbers(self, x: Tensor, y: Tensor | None = None) -> dict[str, np.ndarray]:
        """The numbers (or places of categories) of all columns but identifiers; NaN where missing.

        An entry's bin says only whether it is missing; an ordered column's value is read off its position.
        """
        rows = x.detach().cpu().numpy()
        if not np.isfinite(rows).all():
            advice = "the generator diverged; train it with smaller steps"
            raise BadInput(f"the rows to decode hold numbers that are not finite: {advice}")
        counted = {
            column.name: read_block(rows, column, block)
            for column, block in zip(self.learned, self.blocks, strict=True)
        }
        numbers = moments_again(self.schema, counted)
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
        return self.frame(self.numbers(x, y), len(x))

    def frame(self, numbers: Mapping[str, np.ndarray], rows: int) -> pd.DataFrame:
        """A table out of the numbers of its columns; identifiers count from 1."""
        counted = np.arange(1.0, rows + 1)
        return pd.DataFrame(
            {
                name: write_values(self.schema.column(name), numbers.get(name, counted))
                for name in self.schema.sampled_names
            }
        )
