"""A distribution over many columns from noisy tables of a few: a junction tree, fitted exactly.

The fit is the distribution of least squared error, weighted by precision, with a little entropy beside it (Private-PGM:
McKenna, Sheldon and Miklau 2019, who follow the gradient). Here its dual is solved one table at a time, in closed form,
while walking over the tree: iterative proportional fitting (Jirousek and Preucil 1995) towards soft targets. A sweep
costs as much as one step of the gradient, and a few dozen of them are enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from fedsynth.late import special

Columns = tuple[int, ...]
Table = np.ndarray  # an axis for each of its columns, in their order
_TINY = 1e-300


@dataclass(frozen=True)
class Measured:
    """A noisy table: the share of rows in each cell, and the inverse variance of these shares (one, or one a cell)."""

    columns: Columns
    shares: Table
    precision: Table | float

    def combined(self, other: Measured) -> Measured:
        """Two measurements of the same columns as one, each with the weight of its precision.

        >>> once, again = Measured((0,), np.array([0.2, 0.8]), 1.0), Measured((0,), np.array([0.4, 0.6]), 3.0)
        >>> once.combined(again).shares.round(2), once.combined(again).precision
        (array([0.35, 0.65]), 4.0)
        """
        total = self.precision + other.precision
        shares = (self.shares * self.precision + other.shares * other.precision) / total
        return Measured(self.columns, shares, total)


@dataclass(frozen=True)
class JunctionTree:
    """Cliques of columns in a tree: those that hold a column are connected, so that neighbors only have to agree.

    `parents` gives each clique's neighbor towards the first, which has none (-1); parents come before their children.
    """

    sizes: tuple[int, ...]  # values of each column
    cliques: tuple[Columns, ...]
    parents: tuple[int, ...]

    @classmethod
    def over(cls, pairs: Iterable[Columns], sizes: Sequence[int]) -> JunctionTree:
        """The tree in which each of these sets of columns lies in a clique, found by greedy elimination.

        >>> tree = JunctionTree.over([(0, 1), (1, 2)], (2, 3, 4))
        >>> tree.cliques, tree.parents, tree.cells
        (((0, 1), (1, 2)), (-1, 0), 18)
        """
        cliques = _maximal_cliques(pairs, sizes)
        placed, parents = [0], [-1]
        nearest = {one: (len(cliques[one] & cliques[0]), 0) for one in range(1, len(cliques))}
        while nearest:
            following = max(nearest, key=lambda one: (nearest[one][0], -one))
            parents.append(nearest.pop(following)[1])
            placed.append(following)
            for one, (shared, _) in nearest.items():
                if len(cliques[one] & cliques[following]) > shared:
                    nearest[one] = len(cliques[one] & cliques[following]), len(placed) - 1
        ordered = tuple(tuple(sorted(cliques[one])) for one in placed)
        return cls(tuple(int(size) for size in sizes), ordered, tuple(parents))

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each clique's table."""
        return tuple(tuple(self.sizes[column] for column in clique) for clique in self.cliques)

    @cached_property
    def cells(self) -> int:
        """How many numbers the tables of all cliques have: what a fit costs."""
        return sum(math.prod(shape) for shape in self.shapes)

    @cached_property
    def separators(self) -> tuple[Columns, ...]:
        """The columns that each clique shares with its parent."""
        shared = (
            set(clique) & set(self.cliques[parent]) if parent >= 0 else set()
            for clique, parent in zip(self.cliques, self.parents, strict=True)
        )
        return tuple(tuple(sorted(columns)) for columns in shared)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The cliques below each."""
        below: list[list[int]] = [[] for _ in self.cliques]
        for child, parent in enumerate(self.parents):
            if parent >= 0:
                below[parent].append(child)
        return tuple(tuple(children) for children in below)

    def rooted(self, place: int) -> tuple[JunctionTree, tuple[int, ...]]:
        """The same tree with this clique as the first, and where each of its cliques was before.

        >>> JunctionTree((2, 3, 4), ((0, 1), (1, 2)), (-1, 0)).rooted(1)
        (JunctionTree(sizes=(2, 3, 4), cliques=((1, 2), (0, 1)), parents=(-1, 0)), (1, 0))
        """
        order, parents = [place], [-1]
        for one in order:
            for near in (*self.children[one], self.parents[one]):
                if near >= 0 and near not in order:
                    order.append(near)
                    parents.append(order.index(one))
        cliques = tuple(self.cliques[one] for one in order)
        return JunctionTree(self.sizes, cliques, tuple(parents)), tuple(order)

    def home(self, columns: Iterable[int]) -> int | None:
        """The smallest clique that holds these columns; None if there is none."""
        wanted = set(columns)
        holding = [place for place, clique in enumerate(self.cliques) if wanted <= set(clique)]
        return min(holding, key=lambda place: math.prod(self.shapes[place]), default=None)


def tree_cells(pairs: Iterable[Columns], sizes: Sequence[int]) -> int:
    """The cells of the junction tree over these sets of columns, without making it.

    >>> tree_cells([(0, 1), (1, 2)], (2, 3, 4))
    18
    """
    return sum(math.prod(sizes[column] for column in clique) for clique in _maximal_cliques(pairs, sizes))


def _maximal_cliques(pairs: Iterable[Columns], sizes: Sequence[int]) -> list[frozenset[int]]:
    """The cliques of a triangulation: columns are eliminated one by one, the cheapest first."""
    near: dict[int, set[int]] = {column: set() for column in range(len(sizes))}
    for pair in pairs:
        for one, other in combinations(pair, 2):
            near[one].add(other)
            near[other].add(one)
    cells = [int(size) for size in sizes]
    costs = {
        column: cells[column] * math.prod(cells[one] for one in others) for column, others in near.items()
    }
    cliques: list[frozenset[int]] = []
    holding: list[list[frozenset[int]]] = [[] for _ in sizes]
    while near:
        column = min(costs, key=costs.__getitem__)  # the first of the cheapest: keys are in their order
        del costs[column]
        others = near.pop(column)
        clique = frozenset(others | {column})
        if not any(clique <= larger for larger in holding[column]):
            cliques.append(clique)
            for one in clique:
                holding[one].append(clique)
        for one in others:
            joined = others - near[one] - {one}
            near[one] |= joined
            near[one].discard(column)
            costs[one] = costs[one] // cells[column] * math.prod(cells[new] for new in joined)
    return cliques


def project(table: Table, columns: Columns, onto: Columns) -> Table:
    """The table summed over all columns that are not in `onto`, with its axes in that order."""
    dropped = tuple(axis for axis, column in enumerate(columns) if column not in onto)
    summed = table.sum(axis=dropped) if dropped else table
    left = [column for column in columns if column in onto]
    return summed.transpose([left.index(column) for column in onto])


def spread(table: Table, columns: Columns, into: Columns) -> Table:
    """The table seen as one over the columns `into`, with axes of length one for those it does not have."""
    ordered = [column for column in into if column in columns]
    moved = table.transpose([columns.index(column) for column in ordered])
    shape = [moved.shape[ordered.index(column)] if column in columns else 1 for column in into]
    return moved.reshape(shape)


class Walk:
    """Tables of all cliques, of which the one that the walk stands at is the true marginal of their product."""

    def __init__(self, tree: JunctionTree, tables: Iterable[Table]) -> None:
        self.tree = tree
        self.tables = [np.array(table, dtype=np.float64) for table in tables]

    def step(self, start: int, to: int, known: Table | None = None) -> Table:
        """Go to a neighbor: what is known here of the columns they share becomes known there; return it.

        `known` is what the product of all tables already divides by for these columns, if not the neighbor's marginal.
        """
        tree = self.tree
        shared = tree.separators[to if tree.parents[to] == start else start]
        here = project(self.tables[start], tree.cliques[start], shared)
        there = project(self.tables[to], tree.cliques[to], shared) if known is None else known
        ratio = np.divide(here, there, out=np.zeros_like(here), where=there > _TINY)
        self.tables[to] *= spread(ratio, shared, tree.cliques[to])
        return here

    def calibrate(self, known: Sequence[Table]) -> None:
        """Make every table a marginal of their product over what is `known` of the columns shared with parents."""
        passed = list(known)
        for child in range(len(self.tables) - 1, 0, -1):
            passed[child] = self.step(child, self.tree.parents[child], passed[child])
        for child in range(1, len(self.tables)):
            self.step(self.tree.parents[child], child, passed[child])

    def hand_out(self) -> None:
        """Make every table a marginal, if the first one is."""
        for child in range(1, len(self.tables)):
            self.step(self.tree.parents[child], child)


@dataclass
class _Target:
    """A measured table and its dual variable."""

    columns: Columns
    shares: Table
    weight: Table  # of its squared error, in units of the entropy
    dual: Table

    def solved(self, now: Table) -> Table:
        """The factor by which the table changes if its dual is solved for and all others stay as they are.

        The best table q has weight × q + log q = weight × shares - dual + log p, p being the table now.
        """
        now = np.maximum(now, _TINY)
        right = self.weight * self.shares - self.dual + np.log(now) + np.log(self.weight)
        best = np.maximum(special.wrightomega(right) / self.weight, _TINY)
        self.dual = self.dual + np.log(best / now)
        return best / now


def fit(
    tree: JunctionTree,
    measured: Sequence[Measured],
    *,
    entropy: float,
    start: Sequence[Table] | None = None,
    sweeps: int = 60,
    tolerance: float = 1e-4,
) -> list[Table]:
    """The marginals of all cliques: least weighted squared error of the measured tables, minus `entropy` × entropy.

    Each measured table must lie in a clique. `start` are the cliques' tables before the first sweep: uniform ones, or
    with zeros where a combination is impossible. Sweeps end when one moves the tables by less than `tolerance` on
    average.
    """
    by_clique: dict[int, list[_Target]] = {}
    for one in _combined(measured):
        place = tree.home(one.columns)
        assert place is not None, f"columns {one.columns} lie in no clique"
        weight = np.broadcast_to(np.asarray(one.precision, dtype=np.float64) / entropy, one.shares.shape)
        by_clique.setdefault(place, []).append(
            _Target(one.columns, one.shares, weight, np.zeros(one.shares.shape))
        )
    walk = Walk(tree, start or [np.full(shape, 1 / math.prod(shape)) for shape in tree.shapes])
    if start:
        walk.calibrate([np.ones([tree.sizes[column] for column in shared]) for shared in tree.separators])
    count = sum(map(len, by_clique.values()))
    for _ in range(sweeps):
        if _sweep(walk, by_clique, 0) < tolerance * count:
            break
    walk.hand_out()
    return [table / table.sum() for table in walk.tables]


def _combined(measured: Sequence[Measured]) -> list[Measured]:
    """One measurement of each set of columns."""
    by_columns: dict[Columns, Measured] = {}
    for one in measured:
        earlier = by_columns.get(one.columns)
        by_columns[one.columns] = one if earlier is None else earlier.combined(one)
    return list(by_columns.values())


def _sweep(walk: Walk, by_clique: Mapping[int, list[_Target]], place: int) -> float:
    """Solve for the tables of this clique and of all below it; how far they moved."""
    moved = _solve(walk, by_clique.get(place, ()), place)
    for child in walk.tree.children[place]:
        walk.step(place, child)
        moved += _sweep(walk, by_clique, child)
        walk.step(child, place)
    return moved


def _solve(walk: Walk, targets: Iterable[_Target], place: int) -> float:
    moved, clique = 0.0, walk.tree.cliques[place]
    for target in targets:
        now = project(walk.tables[place], clique, target.columns)
        ratio = target.solved(now)
        walk.tables[place] *= spread(ratio, target.columns, clique)
        moved += float(np.abs(now * (ratio - 1)).sum())
    return moved


def conditioned(tree: JunctionTree, tables: Sequence[Table], chances: Mapping[Columns, Table]) -> list[Table]:
    """The cliques' marginals given evidence: for some columns of a clique, how likely their values meet it."""
    walk = Walk(tree, tables)
    known = [project(*of) for of in zip(walk.tables, tree.cliques, tree.separators, strict=True)]
    for columns, likely in chances.items():
        place = tree.home(columns)
        assert place is not None, f"columns {columns} lie in no clique"
        walk.tables[place] *= spread(np.asarray(likely, dtype=np.float64), columns, tree.cliques[place])
    walk.calibrate(known)
    return [table / max(table.sum(), _TINY) for table in walk.tables]
