"""Data to be judged, as the command line names them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pandas as pd

from fedsynth.assess.scores.holdout import check_apart
from fedsynth.data.modality import Data, modality_of
from fedsynth.data.schema import Schema
from fedsynth.data.table import check, check_columns
from fedsynth.errors import BadInput, nearest

_NAMED = 5  # problems that an error names


def read_judged(path: Path, schema: Schema, text_column: str | None = None, *, ours: bool = False) -> Data:
    """Read data by the schema; rows of our own are made to fit columns that were paid for, as in training."""
    modality = modality_of(schema)
    data = modality.plain(modality.read(path, text_column))
    return modality.conform(data) if ours else data


def check_tables(files: Mapping[str, Data | None], schema: Schema) -> None:
    """Refuse tables of other columns at once: every score would fail, for the same reason."""
    for path, data in files.items():
        problems = check_columns(data, schema) if isinstance(data, pd.DataFrame) else []
        if problems:
            raise BadInput(f"{path}: does not fit the schema: {_first(problems)}")


def check_rows(files: Mapping[str, Data | None], schema: Schema) -> None:
    """Refuse real rows with values that the schema does not allow: after minutes, most scores would fail over them."""
    for path, data in files.items():
        problems = check(data, schema) if isinstance(data, pd.DataFrame) else []
        if problems:
            raise BadInput(f"{path}: does not fit the schema: {_first(problems)}")


def _first(problems: list[str]) -> str:
    rest = len(problems) - _NAMED
    return "; ".join(problems[:_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


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
