"""Rows of a junction tree's distribution in which many columns are known, other values in each row: drawn exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsynth.models.graphical import Columns, JunctionTree, Table, project

_AT_ONCE = 2**23  # numbers of a clique's tables, of as many rows as that allows
_TINY = 1e-300


@dataclass(frozen=True)
class _Part:
    """A clique that has unknown columns: its table by the known ones, over that of the columns it shares above."""

    known: Columns
    shared: Columns  # unknown columns that its parent has too
    fresh: Columns  # unknown columns that are drawn here
    parent: int  # among the parts; -1 if nothing unknown is shared
    table: np.ndarray  # [known, shared, fresh]


def sample_given(
    tree: JunctionTree,
    tables: Sequence[Table],
    known: Mapping[int, np.ndarray],
    rng: np.random.Generator,
) -> np.ndarray:
    """One row [rows, columns] for each row of `known` values, drawn from the distribution given these.

    >>> tree = JunctionTree.over([(0, 1), (1, 2)], (2, 2, 2))
    >>> same = np.eye(2) / 2
    >>> sample_given(tree, [same, same], {0: np.array([0, 1])}, np.random.default_rng(0))
    array([[0, 0, 0],
           [1, 1, 1]])
    """
    rows = len(next(iter(known.values())))
    drawn = np.zeros((rows, len(tree.sizes)), dtype=np.int64)
    for column, values in known.items():
        drawn[:, column] = values
    parts = _parts(tree, tables, set(known))
    widest = max((part.table.shape[1] * part.table.shape[2] for part in parts), default=1)
    step = max(1, _AT_ONCE // widest)
    for start in range(0, rows, step):
        _fill(parts, tree.sizes, drawn[start : start + step], rng)
    return drawn


def _parts(tree: JunctionTree, tables: Sequence[Table], known: set[int]) -> list[_Part]:
    """The cliques that have unknown columns, parents first; others do not matter."""
    parts: list[_Part] = []
    place: dict[int, int] = {}
    for number, (clique, table) in enumerate(zip(tree.cliques, tables, strict=True)):
        above = tree.separators[number]
        shared = tuple(column for column in above if column not in known)
        fresh = tuple(column for column in clique if column not in known and column not in above)
        if not shared and not fresh:
            continue
        fixed = tuple(column for column in clique if column in known)
        whole = project(table, clique, (*fixed, *shared, *fresh))
        under = project(table, clique, (*(c for c in fixed if c in above), *shared)) if above else None
        if under is not None:  # p(clique) / p(what it shares with its parent)
            axes = [tree.sizes[c] if c in above else 1 for c in (*fixed, *shared)]
            ratio = np.divide(1.0, under, out=np.zeros_like(under), where=under > _TINY)
            whole = whole * ratio.reshape(*axes, *[1] * len(fresh))
        sizes = [math.prod(tree.sizes[c] for c in columns) for columns in (fixed, shared, fresh)]
        place[number] = len(parts)
        parent = place[tree.parents[number]] if shared else -1
        parts.append(_Part(fixed, shared, fresh, parent, whole.reshape(sizes)))
    return parts


def _fill(parts: list[_Part], sizes: Sequence[int], drawn: np.ndarray, rng: np.random.Generator) -> None:
    """Draw the unknown columns of these rows: likelihoods are gathered upwards, values drawn downwards."""
    rows = len(drawn)
    beliefs: list[np.ndarray] = []
    for part in parts:
        beliefs.append(part.table[_index(drawn, part.known, sizes)])  # [rows, shared, fresh]
    for number in range(len(parts) - 1, -1, -1):
        part = parts[number]
        if part.parent < 0:
            continue
        above = parts[part.parent]
        message = beliefs[number].sum(axis=2)
        columns = (*above.shared, *above.fresh)
        where = _cells(columns, part.shared, sizes)
        belief = beliefs[part.parent]
        beliefs[part.parent] = belief * message[:, where].reshape(belief.shape)
    for part, belief in zip(parts, beliefs, strict=True):
        if not part.fresh:
            continue
        chances = belief[np.arange(rows), _index(drawn, part.shared, sizes)]
        ends = chances.cumsum(axis=1)
        ends[ends[:, -1] <= 0] = np.arange(1, ends.shape[1] + 1)  # evidence that has no chance: anything
        place = (rng.random(rows)[:, None] * ends[:, -1:] >= ends).sum(axis=1)
        for column in reversed(part.fresh):
            place, drawn[:, column] = np.divmod(place, sizes[column])


def _index(rows: np.ndarray, columns: Columns, sizes: Sequence[int]) -> np.ndarray:
    """The cell of each row in a table of these columns."""
    index = np.zeros(len(rows), dtype=np.int64)
    for column in columns:
        index = index * sizes[column] + rows[:, column]
    return index


def _cells(columns: Columns, onto: Columns, sizes: Sequence[int]) -> np.ndarray:
    """For each cell of a table of `columns`, its cell in a table of some of them."""
    grid = np.indices([sizes[column] for column in columns]).reshape(len(columns), -1)
    index = np.zeros(grid.shape[1], dtype=np.int64)
    for column in onto:
        index = index * sizes[column] + grid[columns.index(column)]
    return index
