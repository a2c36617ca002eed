"""Rows of a database as a table that looks as if it had been read from a Parquet file."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd

from fedsynth.errors import BadInput

Frames = Mapping[str, pd.DataFrame]
ONE = ""  # the name of the table, where a source has only one
_SIMPLE = (str, datetime.date, datetime.time)


def frame_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """Return rows as a table with a dtype a column; whole numbers stay whole beside missing ones.

    >>> frame_of(["age", "dose"], [(7, Decimal("1.5")), (None, None)]).dtypes.astype(str).to_dict()
    {'age': 'Int64', 'dose': 'float64'}
    """
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise BadInput(f"column {twice[0]!r} is there twice; give one of them another name with AS")
    values = zip(*rows, strict=True) if rows else ([] for _ in names)
    return pd.DataFrame({name: _column(name, list(each)) for name, each in zip(names, values, strict=True)})


def _column(name: str, values: list[Any]) -> pd.Series:
    kinds = {type(value) for value in values if value is not None}
    empty = None in values
    if not kinds:
        return pd.Series(values, dtype=object)
    if kinds == {bool}:
        return pd.Series(values, dtype="boolean" if empty else "bool")
    if kinds == {int}:
        return pd.Series(values, dtype="Int64" if empty else "int64")
    if kinds <= {int, float, Decimal}:
        return pd.Series([np.nan if value is None else float(value) for value in values])
    if kinds == {UUID}:
        return pd.Series([None if value is None else str(value) for value in values])
    if kinds == {datetime.datetime}:
        # wall-clock time: what people in the house read off the clock
        return pd.to_datetime(
            pd.Series([None if value is None else value.replace(tzinfo=None) for value in values])
        )
    if all(issubclass(kind, _SIMPLE) for kind in kinds):
        return pd.Series(values)
    wrong = next(kind for kind in kinds if not issubclass(kind, _SIMPLE))
    raise BadInput(
        f"column {name!r} holds {wrong.__name__}; expected numbers, texts, dates or times: convert it in the query, or "
        "leave it out"
    )
