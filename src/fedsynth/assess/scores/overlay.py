"""Plain data for plots of a table: how values of each column are spread, and how columns are related."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsynth.assess.scores.column_summary import column_alerts, column_summary
from fedsynth.assess.scores.tables import Tables, cells, coarse
from fedsynth.data.column import Column
from fedsynth.data.encode import bins_of, numbers_at

_MOST_CELLS = 10  # of a column in the view of a pair
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
        "summary": {"real": column_summary(column, real), "synthetic": column_summary(column, synthetic)},
        "alerts": column_alerts(column, real, synthetic),
    }


def overlap(column: Mapping[str, Any]) -> float | None:
    """The share of rows that both histograms of a column have in common: what one sees; None without real ones.

    >>> round(overlap({"real": [0.5, 0.5], "synthetic": [0.7, 0.3]}), 3)
    0.8
    """
    real, synthetic = column.get("real"), column["synthetic"]
    if not real or column.get("failed") or not sum(real) or not sum(synthetic):
        return None
    return 1 - sum(abs(r - s) for r, s in zip(real, synthetic, strict=True)) / 2


def _axis(column: Column) -> tuple[list[str], list[float] | None, int]:
    """Texts of the bins, edges between numbers (None for categories), and how many bins there are."""
    if not column.numeric:
        return list(column.labels), None, len(column.labels)
    size = bins_of(column)
    low, high = column.bounds
    if column.values == size:
        return list(column.labels), [low - 0.5 + step for step in range(size + 1)], size
    edges = [float(edge) for edge in numbers_at(column, np.linspace(0, 1, size + 1))]
    spelled = [_spelled(column, edge, 6) for edge in edges]
    return [f"{a} to {b}" for a, b in zip(spelled, spelled[1:], strict=False)], edges, size


def _spelled(column: Column, edge: float, digits: int) -> str:
    """An edge as people write it: no powers of ten."""
    if column.moment:
        return column.text(edge)
    return f"{edge:,.0f}" if abs(edge) >= 10**digits else f"{edge:.{digits}g}"


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
    """How columns are related, as matrices: Pearson's correlation of two ordered columns, otherwise Cramer's V.

    None where it is not defined because a column is constant. Missing is a value for Cramer's V.
    """
    columns = tables.fitting
    return {
        "names": [column.name for column in columns],
        "real": _matrix(columns, [tables.real[column.name] for column in columns]),
        "synthetic": _matrix(columns, [tables.synthetic[column.name] for column in columns]),
    }


def changed_pairs(relations: Mapping[str, Any]) -> list[tuple[float, int, int]]:
    """Pairs of columns by how much their relation changed, most first: the change, and the places of both."""
    real, synthetic = relations["real"], relations["synthetic"]
    pairs = [
        (synthetic[i][j] - real[i][j], j, i)
        for i in range(len(relations["names"]))
        for j in range(i)
        if real[i][j] is not None and synthetic[i][j] is not None
    ]
    return sorted(pairs, key=lambda pair: -abs(pair[0]))


def pair_views(tables: Tables, relations: Mapping[str, Any], most: int = 6) -> list[dict[str, Any]]:
    """The joint shares of the pairs of columns whose relation changed most, real and synthetic."""
    views = []
    for change, *places in changed_pairs(relations)[:most]:
        one, other = (tables.fitting[place] for place in places)
        axes = [_few_cells(column, tables) for column in (one, other)]
        joint = []
        for side in (0, 1):
            codes = axes[0][1][side] * len(axes[1][0]) + axes[1][1][side]
            counts = np.bincount(codes, minlength=len(axes[0][0]) * len(axes[1][0])) / len(codes)
            joint.append(counts.reshape(len(axes[0][0]), len(axes[1][0])).round(5).tolist())
        views.append(
            {
                "columns": [one.name, other.name],
                "bins": [axes[0][0], axes[1][0]],
                "real": joint[0],
                "synthetic": joint[1],
                "change": change,
            }
        )
    return views


def _few_cells(column: Column, tables: Tables) -> tuple[list[str], list[np.ndarray]]:
    """At most ten cells of a column with their names, and the cell of each real and synthetic value."""
    names = [*cell_names(column), "missing"]
    codes = [coarse(column, side[column.name]) for side in (tables.real, tables.synthetic)]
    counts = sum(np.bincount(code, minlength=len(names)) for code in codes)
    kept = np.flatnonzero(counts) if np.count_nonzero(counts) <= _MOST_CELLS else None
    if kept is None:
        frequent = np.argsort(-np.asarray(counts), kind="stable")[: _MOST_CELLS - 1]
        kept = np.sort(frequent)
        names = [*names, "others"]
    places = np.full(len(names), len(kept))
    places[kept] = np.arange(len(kept))
    shown = [names[place] for place in kept]
    rest = [] if len(kept) == np.count_nonzero(counts) else ["others"]
    return [*shown, *rest], [places[code] for code in codes]


def cell_names(column: Column) -> list[str]:
    """The names of the cells that `coarse` tells apart, without the one for missing values."""
    count = cells(column) - 1
    if not column.numeric or (column.values is not None and column.values <= count):
        return list(column.labels)
    edges = [float(edge) for edge in numbers_at(column, np.linspace(0, 1, count + 1))]
    spelled = [_spelled(column, edge, 3) for edge in edges]
    return [f"{a} to {b}" for a, b in zip(spelled, spelled[1:], strict=False)]


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
