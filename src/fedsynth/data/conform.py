"""Rows of paid-for columns made to fit: types, bounds and categories learned under noise need not cover every row."""

from __future__ import annotations

import numpy as np

from fedsynth.data.column import Column
from fedsynth.data.encode import numbers_at
from fedsynth.data.schema import Schema
from fedsynth.data.values import category_places, grains, is_missing, plain_numbers, read_values, write_values
from fedsynth.late import pd

OTHER = "other"  # the category for whatever was too rare to be shown
FITS, ABSENT, UNFIT = 0, 1, 2


def conform(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The table with every value of a `paid` column made to fit it, row by row.

    Numbers are moved to the nearest bound, and rounded in an integer column. What is no number counts as missing; a
    category that the schema does not list is named "other". Where the schema has no such place for it, a value becomes
    the middle of the bounds, or the first category: a schema that leaves a place out has learned that hardly any row
    needs it. A row that then breaks a constraint has the values concerned missing, where they may be; a derived column
    is left out, because it is computed. Columns that are public or inferred are left alone: there a value outside is a
    mistake to report.
    """
    paid = [c for c in schema.columns if schema.provenance.get(c.name) == "paid" and c.name in frame.columns]
    if not paid:
        return frame
    changed = {column.name: _conformed(column, frame[column.name]) for column in paid}
    fitting = frame.assign(**changed).drop(columns=[name for name in schema.derived if name in changed])
    return _ruled(fitting, schema, [column for column in paid if column.missing]) if schema.rules else fitting


def _ruled(frame: pd.DataFrame, schema: Schema, paid: list[Column]) -> pd.DataFrame:
    """The table with values missing where what was moved to a bound breaks a constraint."""
    for rule in schema.rules:
        if all(name in frame.columns for name in rule.columns):
            columns = [schema.column(name) for name in rule.columns]
            broken = ~rule.holds({c.name: read_values(c, frame[c.name]).numbers for c in columns})
            tied = [column.name for column in paid if column in columns]
            frame = frame.assign(**{name: frame[name].mask(broken) for name in tied})
    return frame


def fit_of(column: Column, values: pd.Series) -> np.ndarray:
    """Whether each value has a place in the column (FITS), is missing (ABSENT), or has none (UNFIT), as int64.

    A number beyond the bounds has its place, at the bound.

    >>> fit_of(Column("sex", "binary", categories=("F", "M")), pd.Series(["M", None, "x"])).tolist()
    [0, 1, 2]
    """
    unfit = np.isnan(_numbers(column, values)) if column.numeric else category_places(column, values) < 0
    return np.where(is_missing(column, values), ABSENT, np.where(unfit, UNFIT, FITS)).astype(np.int64)


def _conformed(column: Column, values: pd.Series) -> pd.Series:
    fit = fit_of(column, values)
    if column.numeric:
        numbers = np.where(fit == FITS, np.clip(_numbers(column, values), *column.bounds), np.nan)
        if column.whole:
            numbers = np.round(numbers)
        if not column.missing:
            numbers = np.where(fit == FITS, numbers, numbers_at(column, np.array([0.5])))
        if not column.moment:
            return pd.Series(numbers, values.index)
        return write_values(column, numbers).set_axis(values.index)
    rest = OTHER if OTHER in column.labels else None if column.missing else column.labels[0]
    absent = None if column.missing else rest
    spelled = np.array([*column.labels, absent, rest], dtype=object)  # as listed, ABSENT, UNFIT
    count = len(column.labels)
    at = np.where(fit == FITS, category_places(column, values), count + (fit == UNFIT))
    return pd.Series(spelled[at], values.index, dtype=object)


def _numbers(column: Column, values: pd.Series) -> np.ndarray:
    return grains(column, values) if column.moment else plain_numbers(values)
