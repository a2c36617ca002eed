"""Rows from noisy distributions of every two columns: a network where a column has the label and one other as parents.

The part of CALM that comes after the answers (Zhang et al. 2018): distributions are made non-negative and consistent
with one another, then a graphical model is fitted. Edges are taken where two columns depend on each other, given the
label, by more than the noise explains; tables of three columns are the ones of largest entropy that agree with the
three distributions of two (iterative proportional fitting).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from fedsynth.research.baselines.bayes_network import Network, Pair

_ROUNDS = 60  # of proportional fitting
_LEAST = 1e-6  # no cell is impossible
Joint = Callable[[int, int], np.ndarray]  # of two columns; of one, if they are equal


def on_simplex(table: np.ndarray) -> np.ndarray:
    """The nearest distribution: what is negative becomes zero, the rest pays for it evenly (norm-sub).

    >>> on_simplex(np.array([0.9, 0.3, -0.2]))
    array([0.8, 0.2, 0. ])
    """
    flat = np.sort(table.ravel())[::-1]
    excess = (np.cumsum(flat) - 1.0) / np.arange(1, len(flat) + 1)
    last = int(np.nonzero(flat > excess)[0][-1])
    return np.maximum(table - excess[last], 0.0)


def fitted(start: np.ndarray, margins: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
    """Proportional fitting of a table of three columns: sum over axis `a` becomes the margin given for it."""
    table = start
    for _ in range(_ROUNDS):
        for axis, margin in margins:
            table = table * np.expand_dims(margin / np.maximum(table.sum(axis), 1e-300), axis)
    return table


@dataclass(frozen=True)
class MarginalNetwork:
    """Fits the network; `worth` [columns, columns] is of how many honest answers each distribution is worth.

    `label` is the last column if there is one. An edge needs a deviation of `surprise` standard deviations.
    """

    sizes: tuple[int, ...]
    joint: Joint
    worth: np.ndarray
    honest: np.ndarray  # [columns, columns], share of answers that were true
    label: bool
    surprise: float = 4.0

    def fit(self) -> Network:
        """The network, label first."""
        columns = len(self.sizes) - self.label
        by_class = self._class_shares(columns)
        parents = self._forest(columns, by_class)
        structure, tables = [], []
        if self.label:
            structure.append(Pair(columns, ()))
            tables.append(self._root())
        for column in _ordered(parents):
            before = ((columns,) if self.label else ()) + (
                () if parents[column] is None else (parents[column],)
            )
            structure.append(Pair(column, tuple(p for p in before if p is not None)))
            tables.append(self._table(column, parents[column], by_class))
        return Network(self.sizes, tuple(structure), tuple(tables))

    def _root(self) -> np.ndarray:
        """The balance of classes; a single even one without a label."""
        label = len(self.sizes) - 1
        return on_simplex(self.joint(label, label)) if self.label else np.ones(1)

    def _class_shares(self, columns: int) -> list[np.ndarray]:
        """P(class, value) of each column, consistent with the balance of classes."""
        balance = np.maximum(self._root(), _LEAST)
        shares = []
        for column in range(columns):
            pair = self.joint(column, columns) if self.label else self.joint(column, column)[:, None]
            least = _LEAST + 0.5 / max(1.0, self.worth[column, columns if self.label else column])
            table = np.maximum(on_simplex(pair), least * balance).T  # [classes, values]
            shares.append(table / table.sum(1, keepdims=True) * balance[:, None] / balance.sum())
        return shares

    def _expected(self, first: int, second: int, by_class: list[np.ndarray]) -> np.ndarray:
        """P of two columns if they are independent given the class."""
        balance = by_class[first].sum(1)
        return np.einsum("ca,cb,c->ab", by_class[first], by_class[second], 1 / balance)

    def _forest(self, columns: int, by_class: list[np.ndarray]) -> list[int | None]:
        """The parent of each column: a spanning forest of the most surprising pairs (Kruskal)."""
        surprises = sorted(
            ((self._surprise(a, b, by_class), a, b) for a, b in combinations(range(columns), 2)), reverse=True
        )
        group = list(range(columns))
        near: list[list[int]] = [[] for _ in range(columns)]
        for surprise, a, b in surprises:
            if surprise < self.surprise:
                break
            if group[a] != group[b]:
                group = [group[b] if g == group[a] else g for g in group]
                near[a].append(b)
                near[b].append(a)
        parents: list[int | None] = [None] * columns
        visited: set[int] = set()
        for root in range(columns):
            queue = [] if root in visited else [root]
            visited.update(queue)
            while queue:
                column = queue.pop()
                for other in (other for other in near[column] if other not in visited):
                    parents[other] = column
                    visited.add(other)
                    queue.append(other)
        return parents

    def _surprise(self, first: int, second: int, by_class: list[np.ndarray]) -> float:
        """The largest deviation of a cell from independence given the class, in standard deviations of the noise."""
        worth, honest = self.worth[first, second], self.honest[first, second]
        if worth <= 1:
            return 0.0
        expected = self._expected(first, second, by_class)
        chance = honest * expected + (1 - honest) / expected.size
        deviation = np.sqrt(chance * (1 - chance) / worth)
        return float((np.abs(self.joint(first, second) - expected) / np.maximum(deviation, 1e-9)).max())

    def _table(self, column: int, parent: int | None, by_class: list[np.ndarray]) -> np.ndarray:
        """Shares by class, parent and value."""
        own = by_class[column]
        if parent is None:
            return own if self.label else own[0]
        other = by_class[parent]
        balance = own.sum(1)
        start = np.einsum("ca,cb,c->cab", other, own, 1 / balance)
        pair = np.maximum(on_simplex(self.joint(parent, column)), _LEAST)
        pair = fitted(pair[None], [(2, other.sum(0)[None]), (1, own.sum(0)[None])])[0]
        table = fitted(start, [(0, pair), (2, other), (1, own)])
        return table if self.label else table[0]


def _ordered(parents: Sequence[int | None]) -> list[int]:
    """Columns with parents before their children."""
    placed: list[int] = []
    done: set[int] = set()
    while len(placed) < len(parents):
        ready = [
            c for c, parent in enumerate(parents) if c not in done and (parent is None or parent in done)
        ]
        placed += ready
        done.update(ready)
    return placed
