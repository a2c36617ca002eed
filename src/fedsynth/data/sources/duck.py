"""Queries over CSV, Parquet and DuckDB files by DuckDB, in memory; nothing is written to disk or fetched."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fedsynth.data.sources.frames import Frames
from fedsynth.data.sources.sql import is_query, queries
from fedsynth.errors import BadInput

_TYPED = re.compile(r"\b(?:all_varchar\s*=\s*(?:true|1)|columns\s*=)", re.IGNORECASE)


@dataclass(frozen=True)
class FileReader:
    """DuckDB in memory, with the files of a folder as tables."""

    connection: Any

    def select(self, query: str) -> pd.DataFrame:
        """Return the rows of a query."""
        frame = self.connection.execute(query).df()
        twice = frame.columns[frame.columns.duplicated()]
        if len(twice):
            raise BadInput(f"column {twice[0]!r} is there twice; give one of them another name with AS")
        return frame

    def tables(self, schema: str | None = None) -> dict[str, str]:
        """Return the files' tables as they are written in a query, by lower-case name."""
        names = self.connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        return {str(name).lower(): f'"{name}"' for (name,) in names}

    def add(self, files: Mapping[str, Path], kinds: Mapping[str, str]) -> None:
        """Make each file a table of its name; columns whose names end so have this type, the others are texts.

        Each cell is read by itself, and missing if it is nothing of that type: a type that is guessed from a whole
        column lets one row change the others.
        """
        for name, path in files.items():
            place = str(path).replace("'", "''")
            rows = (
                f"read_parquet('{place}')"
                if path.suffix == ".parquet"
                else f"read_csv('{place}', all_varchar = true, header = true)"
            )
            named = [column for column, *_ in self.connection.execute(f"DESCRIBE FROM {rows}").fetchall()]
            columns = ", ".join(f'{_cast(column, kinds)} AS "{column}"' for column in named)
            self.connection.execute(f'CREATE VIEW "{name}" AS SELECT {columns} FROM {rows}')

    def guesses_types(self, query: str) -> bool:
        """Tell whether a query reads a CSV file whose columns get their types from all rows together."""
        plan = "".join(str(line) for line in self.connection.execute(f"EXPLAIN {query}").fetchall())
        return plan.count("READ_CSV") > len(_TYPED.findall(query))


def _cast(column: str, kinds: Mapping[str, str]) -> str:
    """Return a column as its type, cell by cell; ids as texts, 7.0 as 7."""
    kind = next((kind for end, kind in kinds.items() if column.lower().endswith(end)), "VARCHAR")
    plain = f'"{column}"'
    if kind == "ID":
        return rf"regexp_replace(CAST({plain} AS VARCHAR), '\.0+$', '')"
    return f"TRY_CAST({plain} AS {kind})"


@contextmanager
def open_files(folder: Path, database: Path | None = None) -> Iterator[FileReader]:
    """Open DuckDB on files; relative paths in queries count from `folder`."""
    try:
        import duckdb
    except ImportError:
        raise BadInput(
            "kind='duckdb': DuckDB is not installed; run pip install 'fedsynth[databases]'"
        ) from None
    if database is not None and not database.is_file():
        raise BadInput(f"database: there is no file {database}; check the path")
    alone: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "temp_directory": "",  # rows that do not fit into memory are an error, not a file in /tmp
        "file_search_path": str(folder.resolve()),
    }
    try:
        with duckdb.connect(str(database or ":memory:"), database is not None, alone) as connection:
            yield FileReader(connection)
    except duckdb.Error as error:
        raise BadInput(
            f"DuckDB: {str(error).strip().splitlines()[0]}; check the query and its files"
        ) from None


@dataclass(frozen=True)
class Duck:
    """One table or several, each a query over files, or a view of a DuckDB file."""

    query: str | None = None
    view: str | None = None
    tables: Mapping[str, str] = field(default_factory=dict)
    database: str | None = None

    def read(self, folder: Path, names: Collection[str] | None = None, cell_by_cell: bool = False) -> Frames:
        """Return the rows."""
        wanted = queries(self.view, self.query, self.tables, names)
        texts = {name: text if is_query(text) else f"FROM {text}" for name, text in wanted.items()}
        with open_files(folder, None if self.database is None else folder / self.database) as reader:
            for text in texts.values() if cell_by_cell else ():
                if reader.guesses_types(text):
                    raise BadInput(
                        "query: DuckDB guesses the types of a CSV file from all rows, so that one row would change "
                        "what is paid for others; read it as read_csv('FILE', all_varchar = true) and cast where needed"
                    )
            return {name: reader.select(text) for name, text in texts.items()}
