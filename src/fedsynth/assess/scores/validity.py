"""Whether values are allowed, whether all kinds of them are there, and whether rows are new.

Validity is measured against the public schema. What SDMetrics calls adherence, measured against the real rows,
stands beside it in the detail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from fedsynth.assess.scores.fidelity import average
from fedsynth.assess.scores.score import Score, failure
from fedsynth.assess.scores.tables import Tables
from fedsynth.data.column import Column
from fedsynth.errors import BadInput

COVERAGE, BOUNDARIES, CATEGORIES, NEW_ROWS = (
    "coverage",
    "boundary validity",
    "category validity",
    "new rows",
)


def range_coverage(real: np.ndarray, synthetic: np.ndarray) -> float:
    """Which share of the real values' range the synthetic values span (SDMetrics' RangeCoverage).

    >>> range_coverage(np.array([0.0, 10.0]), np.array([5.0, 20.0]))
    0.5
    """
    real, synthetic = real[~np.isnan(real)], synthetic[~np.isnan(synthetic)]
    if not len(real) or not len(synthetic):
        raise BadInput(f"all {'synthetic' if len(real) else 'real'} values are missing")
    low, high = real.min(), real.max()
    if low == high:
        raise BadInput("the real values are constant, so they have no range")
    lost = max(synthetic.min() - low, 0) + max(high - synthetic.max(), 0)
    return float(max(0.0, 1 - lost / (high - low)))


def category_coverage(real: np.ndarray, synthetic: np.ndarray) -> float:
    """Which share of the categories that real rows have turns up in synthetic ones (SDMetrics').

    >>> category_coverage(np.array([0.0, 1.0, np.nan]), np.array([1.0, 2.0]))
    0.5
    """
    known = np.unique(real[~np.isnan(real)])
    if not len(known):
        raise BadInput("all real values are missing")
    return float(np.isin(known, synthetic).mean())


def coverage(tables: Tables) -> Score:
    """How much of the real values' range and categories turns up, the mean over columns."""

    def part(column: Column) -> Callable[[], float]:
        measure = range_coverage if column.numeric else category_coverage
        return lambda: measure(tables.real[column.name], tables.synthetic[column.name])

    return average(COVERAGE, {column.name: part(column) for column in tables.columns})


def validity(tables: Tables) -> list[Score]:
    """Which share of the synthetic values lies within the schema's bounds, and in its lists of categories."""
    return [
        _valid(BOUNDARIES, tables, [column for column in tables.columns if column.numeric]),
        _valid(CATEGORIES, tables, [column for column in tables.columns if not column.numeric]),
    ]


def _valid(name: str, tables: Tables, columns: list[Column]) -> Score:
    if not columns:
        kind = "numbers" if name == BOUNDARIES else "categories"
        return failure(name, f"the schema has no columns of {kind}, so there is nothing to check")

    def part(column: Column) -> Callable[[], float]:
        return lambda: 1 - tables.outside[column.name]

    beside = {column.name: _adherence(tables, column) for column in columns}
    return average(
        name, {column.name: part(column) for column in columns}, detail={"adherence_to_real": beside}
    )


def _adherence(tables: Tables, column: Column) -> float | None:
    """The share of synthetic values within the real range or among the real categories; None without any."""
    real, synthetic = (
        values[~np.isnan(values)] for values in (tables.real[column.name], tables.synthetic[column.name])
    )
    if not len(real) or not len(synthetic):
        return None
    if column.numeric:
        return float(((synthetic >= real.min()) & (synthetic <= real.max())).mean())
    return float(np.isin(synthetic, np.unique(real)).mean())


def new_rows(tables: Tables, test: Tables | None = None) -> Score:
    """Which share of the synthetic rows equals no real row, value by value; missing equals missing.

    Rows of few columns with few values coincide by chance: the share for real rows that the generator never
    saw stands beside it as `test`, if there are any.
    """
    known = np.unique(_hashes(tables.real, tables))
    synthetic = _hashes(tables.synthetic, tables)
    detail = {
        "copies": int(np.isin(synthetic, known).sum()),
        "distinct": float(len(np.unique(synthetic)) / len(synthetic)),
        "test": None if test is None else float(1 - np.isin(_hashes(test.synthetic, test), known).mean()),
    }
    return Score(NEW_ROWS, float(1 - np.isin(synthetic, known).mean()), detail=detail)


def _hashes(table: Mapping[str, np.ndarray], tables: Tables) -> np.ndarray:
    """64 bits a row: among two million rows, two that differ share their bits with a chance of 1 in 10^7."""
    frame = pd.DataFrame({column.name: table[column.name] for column in tables.columns}, copy=False)
    return pd.util.hash_pandas_object(frame, index=False).to_numpy()
