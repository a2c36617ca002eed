"""Plain data for plots of a table: how values of each column are spread, and how columns go together."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsynth.assess.scores.tables import Tables, cells, coarse
from fedsynth.data.column import Column
from fedsynth.data.encode import bins_of, numbers_at

_MOST_CATEGORIES = 50  # shown of a column; the rest is put together


def column_overlays(tables: Tables) -> list[dict[str, Any]]:
    """For every column the shares of real and synthetic values in the schema's bins, and of missing values."""
    return [_overlay(tables, column) for column in tables.columns]


def _overlay(tables: Tables, column: Column) -> dict[str, Any]:
    real, synthetic = tables.real[column.name], tables.synthetic[column.name]
    bins, edges, size = _axis(column)
    shares = [_shares(column, numbers, size) for numbers in (real, synthetic)]
    shown: dict[str, Any] = {"bins": bins, "edges": edges, "real": shares[0], "synthetic": shares[1]}
    if edges is None and size > _MOST_CATEGORIES:
        shown.update(_frequent(bins, *shares))
    return {
        "name": column.name,
        "type": column.type,
        **shown,
        "missing_real": float(np.isnan(real).mean()),
        "missing_synthetic": float(np.isnan(synthetic).mean()),
        "failed": tables.problems.get(column.name),
    }


def _axis(column: Column) -> tuple[list[str], list[float] | None, int]:
    """Texts of the bins, edges between numbers (None for categories), and how many bins there are."""
    if not column.numeric:
        return list(column.labels), None, len(column.labels)
    size = bins_of(column)
    low, high = column.bounds
    if column.values == size:
        return list(column.labels), [low - 0.5 + step for step in range(size + 1)], size
    edges = [float(edge) for edge in numbers_at(column, np.linspace(0, 1, size + 1))]
    spelled = [column.text(edge) if column.moment else f"{edge:.6g}" for edge in edges]
    return [f"{a} to {b}" for a, b in zip(spelled, spelled[1:], strict=False)], edges, size


def _shares(column: Column, numbers: np.ndarray, size: int) -> list[float]:
    there = numbers[~np.isnan(numbers)]
    counts = np.bincount(coarse(column, there, size), minlength=size)[:size]
    return [float(share) for share in counts / max(1, len(there))]


def _frequent(bins: list[str], real: list[float], synthetic: list[float]) -> dict[str, Any]:
    """The categories that are most frequent in either table; all others as one."""
    order = np.argsort(-np.maximum(real, synthetic), kind="stable")
    kept, rest = order[: _MOST_CATEGORIES - 1], order[_MOST_CATEGORIES - 1 :]
    together = [
        [*(shares[i] for i in kept), float(sum(shares[i] for i in rest))] for shares in (real, synthetic)
    ]
    return {
        "bins": [*(bins[i] for i in kept), f"{len(rest)} others"],
        "real": together[0],
        "synthetic": together[1],
    }


def associations(tables: Tables) -> dict[str, Any]:
    """How columns go together, as matrices: Pearson's correlation of two ordered columns, else Cramer's V.

    None where it is not defined because a column is constant. Missing is a value for Cramer's V.
    """
    columns = tables.fitting
    return {
        "names": [column.name for column in columns],
        "real": _matrix(columns, [tables.real[column.name] for column in columns]),
        "synthetic": _matrix(columns, [tables.synthetic[column.name] for column in columns]),
    }


def _matrix(columns: tuple[Column, ...], numbers: list[np.ndarray]) -> list[list[float | None]]:
    codes = [coarse(column, values) for column, values in zip(columns, numbers, strict=True)]
    sizes = [cells(column) for column in columns]
    matrix: list[list[float | None]] = [[1.0] * len(columns) for _ in columns]
    for i in range(len(columns)):
        for j in range(i):
            if columns[i].ordered and columns[j].ordered:
                value = pearson(numbers[i], numbers[j])
            else:
                value = cramers_v(codes[i], codes[j], sizes[i], sizes[j])
            matrix[i][j] = matrix[j][i] = value
    return matrix


def pearson(one: np.ndarray, other: np.ndarray) -> float | None:
    """Pearson's correlation where neither is missing; None if one is constant there.

    >>> round(pearson(np.array([1.0, 2.0, np.nan]), np.array([2.0, 1.0, 0.0])), 6)
    -1.0
    """
    there = ~(np.isnan(one) | np.isnan(other))
    one, other = one[there], other[there]
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(np.clip(np.corrcoef(one, other)[0, 1], -1, 1))


def cramers_v(one: np.ndarray, other: np.ndarray, ones: int, others: int) -> float | None:
    """Cramer's V of two codes with `ones` and `others` values: 0 independent, 1 one tells the other.

    >>> a = np.array([0, 0, 1, 1])
    >>> cramers_v(a, 1 - a, 2, 2), cramers_v(a, a[[0, 2, 1, 3]], 2, 2)
    (1.0, 0.0)
    """
    table = np.bincount(one * others + other, minlength=ones * others).reshape(ones, others).astype(float)
    table = table[table.any(axis=1)][:, table.any(axis=0)]
    fewest = min(table.shape) - 1
    if fewest < 1:
        return None
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    chi_squared = ((table - expected) ** 2 / expected).sum()
    return float(np.sqrt(chi_squared / table.sum() / fewest))
