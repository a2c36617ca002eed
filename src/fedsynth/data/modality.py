"""A kind of data as one object: read, owned, encoded, decoded, written, taken apart and put together.

`modality_of(schema)` gives the object; nothing else asks for the kind. Another package adds a kind by the entry point
`fedsynth.modalities` (docs/extending.md). A class that extends `Table` is a table to recipes, scores and views as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from fedsynth.errors import BadInput, nearest
from fedsynth.plugins import Plugins, load_plugins

if TYPE_CHECKING:
    from torch import Tensor

    from fedsynth.data.clients import RawClients
    from fedsynth.data.encode import CompactRows
    from fedsynth.data.schema import Schema
    from fedsynth.rng import Rng

Data = Any  # a DataFrame, a pair of images and labels, texts; a further kind decides for itself
Entry = TypeVar("Entry")
_AT_ONCE = 2**24  # numbers of encoded rows that are decoded together
_CLASSES = {
    "table": "table.Table",
    "image": "image.Image",
    "text": "text.Text",
    "linked": "linked_tables.Linked",
}
ENDINGS = {
    "table": ".parquet",
    "image": ".npz",
    "text": ".parquet",
    "linked": "",
}  # of files of synthetic data, known before a class is needed


@dataclass(frozen=True)
class Source:
    """A file of rows, and who owns them: named by a column, dealt to simulated clients, or all of them one client.

    Rows that are in memory already have no path.
    """

    path: Path | str = ""
    client_column: str | None = None  # of an npz file, the array
    clients: int | None = None
    split: str = "uniform"
    rng: Rng | None = None
    text_column: str = "text"
    alone: bool = False


@dataclass(frozen=True)
class Modality:
    """A kind of data under one public schema; what a further kind does not need, it leaves as it is here."""

    schema: Schema
    kind: ClassVar[str]
    ending: ClassVar[str]  # of the file that synthetic data are written to
    expected: ClassVar[str]  # its data, in words
    units: ClassVar[str] = "rows"  # that a sample is counted in
    unconditional: ClassVar[str] = "no such column"  # why a column cannot be the condition of a sample

    def __post_init__(self) -> None:
        if self.kind not in kinds_of(self.schema):
            raise BadInput(
                f"a schema of kind {self.schema.kind!r} has no {self.kind} encoding; expected kind {self.kind!r}"
            )

    @staticmethod
    def problems(schema: Schema) -> list[str]:
        """Say what in a schema does not fit this kind."""
        return []

    def describe(self) -> str:
        """Name the data in a phrase."""
        return f"data of the kind {self.kind}"

    def read(self, path: Path | str, column: str | None = None) -> Data:
        """Read all rows of a file; `column` names the one with the texts, if these are texts."""
        raise NotImplementedError

    def clients(self, source: Source) -> RawClients:
        """Read rows and who owns them."""
        raise NotImplementedError

    def owned(self, data: Data, source: Source) -> RawClients:
        """Return the clients of data in memory, owned as `source` says."""
        raise BadInput(f"data: {self.describe()} cannot be passed in memory; pass the path of their file")

    def write(self, data: Data, path: Path | str) -> None:
        """Write a file (or a folder) by the path's ending, whole or not at all."""
        raise NotImplementedError

    def write_parts(self, parts: Iterable[Data], path: Path | str) -> None:
        """Write the same out of several data with one name; a kind may hold one of them at a time."""
        self.write(self.join(list(parts)), path)

    def encode(self, data: Data) -> tuple[Tensor, Tensor]:
        """Return rows as numbers, and classes as int64 [rows] (0 without a label)."""
        raise NotImplementedError

    def compact(self, data: Data) -> tuple[Tensor | CompactRows, Tensor]:
        """Return the same; rows may be kept in less room, and become whole when they are indexed."""
        return self.encode(data)

    def decode(self, x: Tensor, y: Tensor) -> Data:
        """Return the data that a model's numbers mean."""
        raise NotImplementedError

    def decode_all(self, x: Tensor, y: Tensor) -> Data:
        """Return the same, wide rows a few at a time, which take much room; rows that belong together stay so."""
        if len(x) != len(y):
            return self.decode(x, y)
        few = max(1, _AT_ONCE // max(1, x[0].numel()))
        return self.join([self.decode(*part) for part in zip(x.split(few), y.split(few), strict=True)])

    def take(self, data: Data, rows: np.ndarray) -> Data:
        """Return the rows at these places, or where this mask is true."""
        raise NotImplementedError

    def join(self, parts: Sequence[Data]) -> Data:
        """Return several data as one."""
        raise NotImplementedError

    def numbered(self, data: Data, after: int = 0) -> Data:
        """Return drawn data whose identifiers count on after so many rows, through all parts that were joined."""
        return data

    def plain(self, data: Data) -> Data:
        """Return the data as the kind that this one extends holds them, for scores, pages and encoding."""
        return data

    def size(self, data: Data) -> int:
        """Return the number of rows."""
        return len(data)

    def fits(self, data: Data) -> bool:
        """Tell whether these are data of this kind."""
        return True

    def conform(self, data: Data) -> Data:
        """Make values fit what was learned under noise."""
        return data

    def check_file(self, path: Path | str, column: str) -> list[str]:
        """Say what in a file does not fit the schema."""
        source = Source(path, self.schema.client, text_column=column, alone=self.schema.client is None)
        try:
            self.encode(self.conform(self.clients(source).data))
        except BadInput as error:
            return [str(error)]
        return []

    def labels(self, data: Data) -> np.ndarray | None:
        """Return each row's label as text, empty where it is missing; None if there are none."""
        return None

    def unlabelled(self, data: Data) -> Data:
        """Return the same rows without their labels."""
        return data

    def inputs(self, data: Data) -> Any:
        """Return the plain rows that somebody's own model takes."""
        return self.unlabelled(data)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of an encoded row; None for a length that differs."""
        return (None,)

    def random(self, rows: int, draw: np.random.Generator) -> Tensor:
        """Return encoded rows of chance that fit the schema, for audits."""
        raise BadInput(f"kind={self.kind}: random rows cannot be drawn for it; audit another recipe")


def modality_of(schema: Schema) -> Modality:
    """Return what a schema's kind of data can do."""
    return _modality(schema.kind)(schema)


def kind_problems(schema: Schema) -> list[str]:
    """Say what in a schema does not fit its kind; refused if nobody knows the kind."""
    return _modality(schema.kind).problems(schema)


def kinds_of(schema: Schema) -> tuple[str, ...]:
    """Return the name of a schema's kind of data, and then those of the kinds that it extends."""
    bases = [base for base in _modality(schema.kind).__mro__ if hasattr(base, "kind")]
    return tuple(dict.fromkeys(base.kind for base in bases))


def for_kind(entries: Mapping[str, Entry], schema: Schema, what: str) -> Entry:
    """Return what a room has for a schema's kind of data, or say that it has no `what`."""
    for kind in kinds_of(schema):
        if kind in entries:
            return entries[kind]
    raise BadInput(f"kind={schema.kind}: there are no {what} for it; expected one of {', '.join(entries)}")


def synthetic_endings() -> list[str]:
    """Return the endings of files that synthetic data are written to, of all kinds."""
    return sorted({*ENDINGS.values(), *(one.ending for one in _installed().objects.values())})


def _modality(kind: str) -> type[Modality]:
    modality = _built_in(str(kind)) or _installed().objects.get(str(kind))
    if modality is None:
        known = [*_CLASSES, *_installed().objects]
        raise BadInput(
            f"unknown kind {kind!r}, {_installed().broken.get(str(kind)) or nearest(str(kind), known)}"
        )
    return modality


@cache
def _built_in(kind: str) -> type[Modality] | None:
    """Import a kind when it is needed: tables do without torch, and every class needs the schema, which needs this."""
    if kind not in _CLASSES:
        return None
    file, name = _CLASSES[kind].split(".")
    modality: type[Modality] = getattr(import_module(f"fedsynth.data.{file}"), name)
    return modality


def _installed() -> Plugins:
    return load_plugins("fedsynth.modalities", _problem)


def _problem(name: str, value: Any) -> str | None:
    if not (isinstance(value, type) and issubclass(value, Modality)):
        return f"{getattr(value, '__name__', value)} is no class that extends Modality"
    if value.kind != name or name in _CLASSES:
        return f"the kind is called {value.kind!r}" if value.kind != name else "fedsynth has one of that name"
    return None
