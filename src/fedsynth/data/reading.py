"""All ways to name rows: a file, a folder, a FHIR export, or a TOML file that describes a source.

```toml
kind = "sql"                                     # sql, duckdb, omop or fhir: docs/data-sources.md
url = "postgresql://reader@db.example.org/ehr"
password_variable = "EHR_PASSWORD"
view = "research.patients"
```
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from fedsynth.data.configuration import build, check, keys_of, read_file
from fedsynth.data.schema import Schema
from fedsynth.data.sources.duck import Duck
from fedsynth.data.sources.fhir import Fhir, export_files
from fedsynth.data.sources.folder import read_each, read_parts
from fedsynth.data.sources.frames import ONE, Frames
from fedsynth.data.sources.omop import Omop
from fedsynth.data.sources.sql import Sql
from fedsynth.data.sources.visits import CONCEPTS, unlisted
from fedsynth.data.table_files import list_tables, read_table
from fedsynth.errors import BadInput, nearest


class RowSource(Protocol):
    """A way to read tables; its fields are the keys of the TOML file."""

    def read(self, folder: Path, names: Collection[str] | None = None, cell_by_cell: bool = False) -> Frames:
        """Return the tables of these names (or all of them); relative paths count from `folder`.

        `cell_by_cell` refuses types that would be guessed from all rows: for columns that are paid for.
        """


KINDS: dict[str, type[Any]] = {"sql": Sql, "duckdb": Duck, "omop": Omop, "fhir": Fhir}


def read_rows(path: Path | str, schema: Schema | None = None, *, as_written: bool = False) -> pd.DataFrame:
    """Read one table: a file, a folder of its files, or a source."""
    place = Path(path)
    if is_source(place):
        frames = _read_source(place, None, cell_by_cell=as_written or _pays([schema]))
        if [*frames] != [ONE]:
            raise BadInput(
                f"{place}: holds several tables ({', '.join(frames)}) and the schema has one; draft a schema from it, "
                "or name one table by view or query"
            )
        return frames[ONE]
    if place.is_dir():
        return read_parts(place, schema, as_written=as_written)
    return read_table(place, schema, as_written=as_written)


def read_tables(
    path: Path | str, schemas: Mapping[str, Schema] | None = None, *, as_written: bool = False
) -> dict[str, pd.DataFrame]:
    """Read linked tables: a folder with a file for each, or a source; those that schemas name, or all."""
    place = Path(path)
    if not is_source(place):
        return read_each(place, schemas, as_written=as_written)
    frames = _read_source(place, schemas, cell_by_cell=_pays((schemas or {}).values()))
    absent = [name for name in schemas or () if name not in frames]
    if absent:
        raise BadInput(
            f"{place}: has no rows of table {absent[0]!r}; {nearest(absent[0], frames)}; take it out of the schema, or "
            "check the source"
        )
    return dict(frames)


def read_all(path: Path | str, *, paid: bool = False) -> pd.DataFrame | dict[str, pd.DataFrame]:
    """Read rows as they are written, for drafting: one table, or several if they have different columns.

    Where the rows pay for the draft (`paid`), a table without any is there too: that it has some is learned of rows.
    """
    place = Path(path)
    if is_source(place):
        frames = dict(_read_source(place, None, cell_by_cell=paid))
        return frames[ONE] if [*frames] == [ONE] else frames
    if place.is_dir():
        tables = read_tables(place, as_written=True)
        columns = {tuple(sorted(map(str, frame.columns))) for frame in tables.values()}
        return read_rows(place, as_written=True) if len(columns) == 1 < len(tables) else tables
    return read_rows(place, as_written=True)


def is_source(path: Path) -> bool:
    """Tell whether a path names a TOML file that describes a source, or a folder with a FHIR export."""
    return path.suffix == ".toml" or (path.is_dir() and bool(export_files(path)))


def holds_tables(path: Path) -> bool:
    """Tell whether a path names rows of tables, not images or texts."""
    return is_source(path) or (path.is_dir() and bool(list_tables(path)))


def _pays(schemas: Iterable[Schema | None]) -> bool:
    """Tell whether some column was paid for: values that do not fit it are moved, and not refused."""
    return any(schema is not None and "paid" in schema.provenance.values() for schema in schemas)


def _read_source(place: Path, schemas: Mapping[str, Schema] | None, *, cell_by_cell: bool) -> Frames:
    if place.is_dir():
        return _some(_conformed(Fhir(".").read(place, schemas), None, schemas), cell_by_cell)
    keys = read_file(place)
    kind = keys.pop("kind", None)
    if kind not in KINDS:
        raise BadInput(f"{place}: kind={kind!r}: {nearest(str(kind), KINDS)}")
    try:
        check(keys, keys_of(KINDS[kind]))
        source = build(KINDS[kind], keys)
        frames = source.read(place.resolve().parent, schemas, cell_by_cell)
        frames = _conformed(frames, getattr(source, "unlisted", None), schemas)
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from None
    frames = _some(frames, cell_by_cell) if kind in ("omop", "fhir") else frames
    empty = next((name for name, frame in frames.items() if frame.empty), None)
    if empty is not None and not cell_by_cell:
        raise BadInput(f"{place}: {empty or 'the table'} has no rows; expected at least one")
    return frames


def _some(frames: Frames, empty_too: bool) -> Frames:
    """Return the tables that have rows; all of them where it would tell something that one has none."""
    return {name: frame for name, frame in frames.items() if empty_too or len(frame)}


def _conformed(frames: Frames, instead: str | None, schemas: Mapping[str, Schema] | None) -> Frames:
    """Return the tables with codes that the schema does not list treated as the source says."""
    if instead is None or schemas is None:
        return frames
    listed = {
        name: schemas[name].column(column).categories or ()
        for name, column in CONCEPTS.items()
        if name in schemas and column in schemas[name].names
    }
    return unlisted(frames, listed, instead)
