"""Linked tables as a kind of data: a folder with one file a table, persons as clients, ids made anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedsynth.data.clients import RawClients
from fedsynth.data.histories import Histories
from fedsynth.data.linked import LinkedRows, LinkedSchema, Unlinked, link
from fedsynth.data.modality import ENDINGS, Modality, Source
from fedsynth.data.reading import read_tables
from fedsynth.data.table_files import write_table
from fedsynth.data.values import conform, write_values
from fedsynth.errors import BadInput

Frames = Mapping[str, pd.DataFrame]
_LINKS = 3  # numbers of an encoded row before its own: table, person, parent


@dataclass(frozen=True)
class HistoryRows:
    """Encoded rows of views."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Linked(Modality):
    """Several tables under one schema: data are frames by name."""

    kind: ClassVar[str] = "linked"
    ending: ClassVar[str] = ENDINGS["linked"]  # a folder
    units: ClassVar[str] = "persons"
    expected: ClassVar[str] = "tables by name, such as those of a folder"

    @cached_property
    def tables(self) -> LinkedSchema:
        """The tables, parents first."""
        return LinkedSchema(self.schema.tables)

    @cached_property
    def histories(self) -> Histories:
        """How the tables are seen as flat ones."""
        return Histories(self.tables)

    def describe(self) -> str:
        """Name the data in a phrase."""
        return "tables " + ", ".join(table.name for table in self.tables.tables)

    def read(self, path: Path | str, column: str | None = None) -> dict[str, pd.DataFrame]:
        """Read the tables of a folder or a database."""
        return read_tables(path, {table.name: table.schema for table in self.tables.tables})

    def clients(self, source: Source) -> RawClients:
        """Every person is a client, with all rows in all tables."""
        return self.owned(self.read(source.path), source)

    def owned(self, data: Frames, source: Source | None = None) -> RawClients:
        """Return the persons of tables, given by name, as clients."""
        source = source or Source()
        for flag, value in (("--client-column", source.client_column), ("--clients", source.clients)):
            if value is not None:
                raise BadInput(
                    f"{flag} {value}: in linked tables each row of {self.tables.root.name!r} is a client"
                )
        absent = [table.name for table in self.tables.tables if table.name not in data]
        if absent:
            raise BadInput(
                f"table {absent[0]!r} is missing; expected a frame for each table of the schema, by name"
            )
        x, y, person = self.histories.encode(link(self.tables, self._conformed(data)))
        root = self.tables.root
        names = data[root.name][root.id].astype(str) if root.id else range(len(data[root.name]))
        return RawClients(person, len(data[root.name]), tuple(map(str, names)), HistoryRows(x, y))

    def check_file(self, path: Path | str, column: str) -> list[str]:
        """Say what in the tables of a folder does not fit, each in a sentence."""
        try:
            self.clients(Source(path))
        except Unlinked as error:
            return [*error.problems]
        except BadInput as error:
            return [str(error)]
        return []

    def _conformed(self, data: Frames) -> Frames:
        """Tables in which every value of a paid column fits it."""
        schemas = {table.name: table.schema for table in self.tables.tables}
        return {name: conform(frame, schemas[name]) for name, frame in data.items() if name in schemas}

    def fits(self, data: object) -> bool:
        """Tell whether these are frames by name, or rows of views."""
        return isinstance(data, HistoryRows | Mapping)

    def encode(self, data: HistoryRows | Frames) -> tuple[Tensor, Tensor]:
        """Return the rows of all views as codes, and the view of each."""
        if isinstance(data, HistoryRows):
            return data.x, data.y
        return self.histories.encode(link(self.tables, data))[:2]

    def pack(self, rows: Mapping[str, LinkedRows]) -> Tensor:
        """Return drawn rows of all tables as one float64 tensor, as `decode` reads them."""
        width = max(len(table.schema.names) for table in self.tables.tables)
        pieces = []
        for place, table in enumerate(self.tables.tables):
            of = rows[table.name]
            numbers = np.zeros((len(of), _LINKS + width))
            numbers[:, 0], numbers[:, 1], numbers[:, 2] = place, of.person, of.parent
            for column, name in enumerate(table.schema.names):
                numbers[:, _LINKS + column] = of.numbers[name]
            pieces.append(torch.from_numpy(numbers))
        return torch.cat(pieces)

    def decode(self, x: Tensor, y: Tensor) -> dict[str, pd.DataFrame]:
        """Return the tables that packed rows mean; ids count from 1."""
        frames = {}
        for place, table in enumerate(self.tables.tables):
            rows = x[x[:, 0] == place].numpy()
            numbers = {name: rows[:, _LINKS + column] for column, name in enumerate(table.schema.names)}
            for name, rule in table.schema.derived.items():
                numbers[name] = rule.computed(numbers)
            columns = {}
            if table.key is not None:
                columns[table.key] = pd.Series(rows[:, 2].astype(np.int64) + 1)
            if table.id is not None:
                columns = {table.id: pd.Series(np.arange(1, len(rows) + 1)), **columns}
            counted = np.arange(1.0, len(rows) + 1)
            for name in table.schema.sampled_names:
                columns[name] = write_values(table.schema.column(name), numbers.get(name, counted))
            frames[table.name] = pd.DataFrame(columns)
        return frames

    def join(self, parts: Sequence[Frames]) -> dict[str, pd.DataFrame]:
        """Return several as one; ids go on counting."""
        joined: dict[str, list[pd.DataFrame]] = {table.name: [] for table in self.tables.tables}
        before = dict.fromkeys(joined, 0)
        for part in parts:
            for table in self.tables.tables:
                frame = part[table.name].copy()
                if table.id is not None:
                    frame[table.id] += before[table.name]
                if table.key is not None and table.parent is not None:
                    frame[table.key] += before[table.parent]
                joined[table.name].append(frame)
            for name, frame in part.items():
                before[name] += len(frame)
        return {name: pd.concat(frames, ignore_index=True) for name, frames in joined.items()}

    def take(self, data: HistoryRows, rows: np.ndarray) -> HistoryRows:
        """Return some rows of views."""
        chosen = torch.from_numpy(np.asarray(rows))
        return HistoryRows(data.x[chosen], data.y[chosen])

    def size(self, data: HistoryRows | Frames) -> int:
        """Return the number of persons, or of rows of views."""
        return len(data) if isinstance(data, HistoryRows) else len(data[self.tables.root.name])

    def write(self, data: Frames, path: Path | str) -> None:
        """Write a folder with a CSV file for each table."""
        folder = Path(path)
        if folder.suffix in (".csv", ".parquet"):
            raise BadInput(
                f"{folder}: linked tables are written into a folder; name it without {folder.suffix!r}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in data.items():
            write_table(frame, folder / f"{name}.csv")
