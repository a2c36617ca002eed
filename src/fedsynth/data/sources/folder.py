"""A folder of CSV and Parquet files: one table in several files, or a file for each of several tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fedsynth.data.schema import Schema
from fedsynth.data.table_files import list_tables, read_table
from fedsynth.errors import BadInput


def read_parts(folder: Path, schema: Schema | None = None, *, as_written: bool = False) -> pd.DataFrame:
    """Read one table that lies in several files; all must have the same columns."""
    files = list_tables(folder)
    if not files:
        raise BadInput(f"{folder}: holds no CSV or Parquet file; expected at least one")
    parts = {file: read_table(file, schema, as_written=as_written) for file in sorted(files.values())}
    first, *others = parts
    for file in others:
        different = {*parts[first].columns} ^ {*parts[file].columns}
        if different:
            raise BadInput(
                f"{file}: column {sorted(map(str, different))[0]!r} is in this file or in {first.name}, not in both; "
                "files of one table have the same columns (several tables need a schema of version 2)"
            )
    return pd.concat(list(parts.values()), ignore_index=True)


def read_each(
    folder: Path, schemas: Mapping[str, Schema] | None = None, *, as_written: bool = False
) -> dict[str, pd.DataFrame]:
    """Read the tables of a folder: those that schemas name, or all of them."""
    files = list_tables(folder)
    absent = [name for name in schemas or () if name not in files]
    if absent:
        raise BadInput(
            f"{folder}: has no file {absent[0]}.csv or {absent[0]}.parquet; expected one for each table"
        )
    return {
        name: read_table(
            files[name], None if schemas is None else schemas[name], as_written=as_written, may_be_empty=True
        )
        for name in schemas or files
    }
