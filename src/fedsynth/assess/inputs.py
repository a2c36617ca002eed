"""Data to be judged, as the command line names them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pandas as pd

from fedsynth.assess.scores.holdout import check_apart
from fedsynth.assess.suite import Data
from fedsynth.data.conform import conform
from fedsynth.data.image import read_images
from fedsynth.data.schema import Schema
from fedsynth.data.table import check_columns, read_table
from fedsynth.errors import BadInput, nearest


def read_judged(path: Path, schema: Schema, text_column: str, *, ours: bool = False) -> Data:
    """Read a table, images or texts; rows of our own are made to fit columns that were paid for, as in training."""
    if schema.kind == "table":
        frame = read_table(path, schema)
        return conform(frame, schema) if ours else frame
    return read_images(path) if schema.kind == "image" else _texts(path, text_column)


def _texts(path: Path, column: str) -> list[str]:
    """The lines of a .txt file, or a column of a table or of JSON lines."""
    name = path.name.lower()
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file; check the path")
    try:
        if name.endswith(".txt"):
            return path.read_text(encoding="utf-8").splitlines()
        lines = name.endswith((".jsonl", ".jsonl.gz"))
        frame = pd.read_json(path, lines=True, dtype=False) if lines else read_table(path)
    except ValueError as error:
        raise BadInput(f"{path}: cannot be read as texts ({error}); check the file") from None
    if column not in frame.columns:
        raise BadInput(f"{path}: has no column {column!r}; name it with --text-column")
    return [str(text) for text in frame[column].dropna()]


def check_tables(files: Mapping[Path | None, Data | None], schema: Schema) -> None:
    """Refuse tables of other columns at once: every score would fail, for the same reason."""
    for path, data in files.items():
        problems = check_columns(data, schema) if isinstance(data, pd.DataFrame) else []
        if problems:
            raise BadInput(f"{path}: does not fit the schema: {'; '.join(problems)}")


def owned(schema: Schema, column: str | None, files: Mapping[str, Data | None]) -> Schema:
    """Give the schema the client column that the command line names.

    Refused where a table lacks it, and where somebody has rows in both tables: they are no test of each other.
    """
    tables = {name: data for name, data in files.items() if isinstance(data, pd.DataFrame)}
    for name, table in tables.items():
        if column is not None and column not in table.columns:
            raise BadInput(
                f"--client-column {column}: {name} has no such column; {nearest(column, table.columns)}"
            )
    with_owner = schema if column is None else schema.with_client(column)
    for real, test in pairwise(tables.values()):
        check_apart(real, test, with_owner)
    return with_owner
