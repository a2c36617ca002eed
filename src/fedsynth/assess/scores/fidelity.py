"""Does it look alike: every column by itself, and every pair of columns. Mixed types, missing values allowed.

The scores are those of SDMetrics 0.32, so that they can be compared with other people's: 1 is a perfect match.
They compare with real rows, which no privacy budget pays for: the results are internal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import ks_2samp

from fedsynth.assess.scores.score import Score, failure
from fedsynth.assess.scores.tables import Tables
from fedsynth.data.column import Column
from fedsynth.errors import BadInput

_BINS = 10  # of a number that is paired with a category, over the range of the real values


def ks_complement(real: np.ndarray, synthetic: np.ndarray) -> float:
    """1 minus the largest distance between the two cumulative distributions; missing values do not count.

    >>> ks_complement(np.array([1.0, 2.0, np.nan]), np.array([1.0, 2.0]))
    1.0
    """
    real, synthetic = _present(real, synthetic)
    return float(1 - ks_2samp(real, synthetic, method="asymp").statistic)


def tv_complement(real: np.ndarray, synthetic: np.ndarray) -> float:
    """1 minus the total variation distance between the shares of the categories; missing values do not count.

    >>> tv_complement(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]))
    0.75
    """
    return _overlap(*_present(real, synthetic))


def correlation_similarity(
    real: tuple[np.ndarray, np.ndarray], synthetic: tuple[np.ndarray, np.ndarray]
) -> float:
    """1 minus half the difference of Pearson's correlations, over rows where neither value is missing.

    >>> up, down = np.array([1.0, 2.0]), np.array([2.0, 1.0])
    >>> round(correlation_similarity((up, up), (up, down)), 6)
    0.0
    """
    return 1 - abs(_correlation(*real) - _correlation(*synthetic)) / 2


def contingency_similarity(
    real: tuple[np.ndarray, np.ndarray], synthetic: tuple[np.ndarray, np.ndarray]
) -> float:
    """1 minus the total variation distance between the shares of pairs of values; missing is a value.

    >>> a = np.array([0.0, 1.0])
    >>> contingency_similarity((a, a), (a, a[::-1]))
    0.0
    """
    first, second = _codes(real[0], synthetic[0]), _codes(real[1], synthetic[1])
    joined = first * (second.max() + 1) + second
    return _overlap(joined[: len(real[0])], joined[len(real[0]) :])


def column_shapes(tables: Tables) -> Score:
    """How alike each column is by itself: the mean of KS and total variation complements."""
    return average("column shapes", {column.name: _shape(tables, column) for column in tables.columns})


def column_pairs(tables: Tables) -> Score:
    """How alike each pair of columns is: the mean of correlation and contingency similarities."""
    pairs = combinations(tables.columns, 2)
    return average(
        "column pairs", {f"{one.name}, {other.name}": _pair(tables, one, other) for one, other in pairs}
    )


def missing_values(tables: Tables) -> Score:
    """How alike the shares of missing values are, by column."""
    return average("missing values", {column.name: _absent(tables, column) for column in tables.columns})


Part = Callable[[], float]


def _shape(tables: Tables, column: Column) -> Part:
    measure = ks_complement if column.numeric else tv_complement
    return lambda: measure(*tables.both(column))


def _pair(tables: Tables, one: Column, other: Column) -> Part:
    def score() -> float:
        first, second = tables.both(one), tables.both(other)
        if one.numeric and other.numeric:
            return correlation_similarity((first[0], second[0]), (first[1], second[1]))
        first = _binned(*first) if one.numeric else first
        second = _binned(*second) if other.numeric else second
        return contingency_similarity((first[0], second[0]), (first[1], second[1]))

    return score


def _absent(tables: Tables, column: Column) -> Part:
    def score() -> float:
        real, synthetic = tables.both(column)
        return float(1 - abs(np.isnan(real).mean() - np.isnan(synthetic).mean()))

    return score


def average(name: str, parts: Mapping[str, Part], *, detail: Mapping[str, Any] | None = None) -> Score:
    """The mean of a score's parts; a part that cannot be measured is named with its reason and left out."""
    values: dict[str, float] = {}
    failed: dict[str, str] = {}
    for part, compute in parts.items():
        try:
            values[part] = compute()
        except BadInput as error:
            failed[part] = str(error)
    detail = {"parts": values, "failed": failed, **(detail or {})}
    if not values:
        reason = next(iter(failed.values()), "there is nothing to compare")
        return failure(name, reason, detail=detail)
    return Score(name, float(np.mean(list(values.values()))), detail=detail)


def _present(real: np.ndarray, synthetic: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kept = real[~np.isnan(real)], synthetic[~np.isnan(synthetic)]
    for what, values in zip(("real", "synthetic"), kept, strict=True):
        if not len(values):
            raise BadInput(f"all {what} values are missing")
    return kept


def _overlap(real: np.ndarray, synthetic: np.ndarray) -> float:
    """1 minus the total variation distance between the shares of values."""
    codes = _codes(real, synthetic)
    size = int(codes.max()) + 1
    first, second = (
        np.bincount(part, minlength=size) / len(part) for part in (codes[: len(real)], codes[len(real) :])
    )
    return float(1 - np.abs(first - second).sum() / 2)


def _codes(real: np.ndarray, synthetic: np.ndarray) -> np.ndarray:
    """The values of both, one after the other, numbered from 0; missing values share one number."""
    return np.unique(np.concatenate([real, synthetic]), return_inverse=True)[1]


def _binned(real: np.ndarray, synthetic: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which tenth of the real values' range a number lies in; what lies beyond counts to the last one."""
    present, _ = _present(real, synthetic)
    edges = np.histogram_bin_edges(present, bins=_BINS)[1:-1]
    first, second = (
        np.where(np.isnan(values), np.nan, np.digitize(values, edges)) for values in (real, synthetic)
    )
    return first, second


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    there = ~(np.isnan(one) | np.isnan(other))
    one, other = one[there], other[there]
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        raise BadInput("a column is constant, so its correlation is not defined")
    return float(np.corrcoef(one, other)[0, 1])
