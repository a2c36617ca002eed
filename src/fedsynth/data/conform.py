"""Rows of paid-for columns made to fit: types, bounds and categories learned under noise need not cover every row."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedsynth.data.column import Column
from fedsynth.data.encode import numbers_at
from fedsynth.data.schema import Schema
from fedsynth.data.values import places

OTHER = "other"  # the category for whatever was too rare to be shown
FITS, ABSENT, UNFIT = 0, 1, 2


def conform(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The table with every value of a `paid` column made to fit it, row by row.

    Numbers are moved to the nearest bound, and rounded in an integer column. What is no number counts as missing; a
    category that the schema does not list is named "other". Where the schema has no such place for it, a value becomes
    the middle of the bounds, or the first category: a schema that leaves a place out has learned that hardly any row
    needs it. Columns that are public or inferred are left alone: there a value outside is a mistake to report.
    """
    paid = [c for c in schema.columns if schema.provenance.get(c.name) == "paid" and c.name in frame.columns]
    if not paid:
        return frame
    changed = {column.name: _conformed(column, frame[column.name]) for column in paid}
    return frame.assign(**changed)


def fit_of(column: Column, values: pd.Series) -> np.ndarray:
    """Whether each value has a place in the column (FITS), is missing (ABSENT), or has none (UNFIT), as int64.

    A number beyond the bounds has its place, at the bound.

    >>> fit_of(Column("sex", "binary", categories=("F", "M")), pd.Series(["M", None, "x"])).tolist()
    [0, 1, 2]
    """
    unfit = np.isnan(_numbers(values)) if column.numeric else places(values, column.labels) < 0
    return np.where(values.isna(), ABSENT, np.where(unfit, UNFIT, FITS)).astype(np.int64)


def _conformed(column: Column, values: pd.Series) -> pd.Series:
    fit = fit_of(column, values)
    if column.numeric:
        numbers = np.clip(_numbers(values), *column.bounds)
        if column.type == "integer":
            numbers = np.round(numbers)
        middle = float(numbers_at(column, np.array([0.5]))[0])
        return pd.Series(numbers if column.missing else np.where(fit == FITS, numbers, middle), values.index)
    rest = OTHER if OTHER in column.labels else None if column.missing else column.labels[0]
    absent = None if column.missing else rest
    spelled = np.array([*column.labels, absent, rest], dtype=object)  # as listed, ABSENT, UNFIT
    count = len(column.labels)
    at = np.where(fit == FITS, places(values, column.labels), count + (fit == UNFIT))
    return pd.Series(spelled[at], values.index, dtype=object)


def _numbers(values: pd.Series) -> np.ndarray:
    plain = values.astype(object) if isinstance(values.dtype, pd.CategoricalDtype) else values
    return pd.to_numeric(plain, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
