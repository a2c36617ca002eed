"""Rows drawn down a junction tree: its tables are laid out once, then each piece of rows is a search per clique."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsynth.models.graphical import Columns, JunctionTree, Table, project


@dataclass(frozen=True)
class _Step:
    """A clique: the chances of its new columns given those that are known, summed up line by line, end to end."""

    shared: Columns
    fresh: Columns
    width: int  # of a line
    ends: np.ndarray
    values: tuple[np.ndarray, ...]  # of each new column, at each place of a line

    @classmethod
    def of(cls, tree: JunctionTree, clique: Columns, shared: Columns, table: Table) -> _Step:
        """The step that draws the columns of a clique that are not shared."""
        fresh = tuple(column for column in clique if column not in shared)
        lines = project(table, clique, (*shared, *fresh)).reshape(
            math.prod(tree.sizes[column] for column in shared), -1
        )
        width = lines.shape[1]
        lines = np.where(lines.sum(axis=1, keepdims=True) > 0, lines, 1.0 / width)
        lines = lines / lines.sum(axis=1, keepdims=True)
        ends = np.cumsum(lines, axis=1) + np.arange(len(lines))[:, None]
        values = np.unravel_index(np.arange(width), [tree.sizes[column] for column in fresh])
        return cls(shared, fresh, width, ends.ravel(), values)

    def draw(self, drawn: np.ndarray, sizes: Sequence[int], rng: np.random.Generator) -> None:
        """Fill the new columns of rows, [columns, rows]."""
        given = np.zeros(drawn.shape[1], dtype=np.int64)
        for column in self.shared:
            given = given * sizes[column] + drawn[column]
        order, uniform = spaced(given, rng)
        given = given[order]
        positions = _reached(self.ends, given + uniform)
        place = np.empty_like(positions)
        place[order] = (positions - given * self.width).clip(0, self.width - 1)
        for column, values in zip(self.fresh, self.values, strict=True):
            np.take(values, place, out=drawn[column], mode="clip")  # places are inside: nothing to check


@dataclass(frozen=True)
class TreeSampler:
    """Draws each clique's new columns given those of its parent; `known` are columns of the first clique."""

    tree: JunctionTree
    tables: Sequence[Table]
    known: Columns = ()

    @cached_property
    def _steps(self) -> list[_Step]:
        tree = self.tree
        separators = (self.known, *tree.separators[1:])
        return [
            _Step.of(tree, clique, shared, table)
            for clique, shared, table in zip(tree.cliques, separators, self.tables, strict=True)
            if set(clique) - set(shared)
        ]

    def draw(
        self, rows: int, rng: np.random.Generator, known: Mapping[int, np.ndarray] | None = None
    ) -> np.ndarray:
        """Rows [rows, columns] that have the known values."""
        drawn = np.zeros((len(self.tree.sizes), rows), dtype=np.int64)
        for column in self.known:
            drawn[column] = (known or {})[column]
        for step in self._steps:
            step.draw(drawn, self.tree.sizes, rng)
        return drawn.T


def sample(tree: JunctionTree, tables: Sequence[Table], rows: int, rng: np.random.Generator) -> np.ndarray:
    """Rows [rows, columns] of the tree's distribution."""
    return TreeSampler(tree, tables).draw(rows, rng)


def _reached(ends: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """How many ends each number has reached; both ascend, so the fewer are looked up among the others.

    >>> _reached(np.array([1.0, 2.0]), np.array([0.5, 1.0, 1.5, 2.5]))
    array([0, 1, 1, 2])
    """
    if len(ends) >= len(numbers):
        return np.searchsorted(ends, numbers, side="right")
    first = np.searchsorted(numbers, ends)
    return np.cumsum(np.bincount(first, minlength=len(numbers) + 1)[:-1])


def spaced(groups: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows by group, in chance order, and for each a uniform number: evenly spaced and ascending in each group.

    So rows have the shares they stand for.

    >>> order, uniform = spaced(np.array([1, 0, 1, 0]), np.random.default_rng(0))
    >>> np.sort(order[:2]), (uniform * 2).astype(int)
    (array([1, 3]), array([0, 1, 0, 1]))
    """
    count = len(groups)
    if groups.max(initial=0) < 2**16:
        groups = groups.astype(np.uint16)  # these are sorted several times faster
    order = rng.permutation(count)
    sizes = np.bincount(groups)
    if len(sizes) > 1:
        order = order[np.argsort(groups[order], kind="stable")]
    uniform = rng.random(count)
    uniform += np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    uniform /= np.repeat(sizes, sizes)
    return order, uniform
