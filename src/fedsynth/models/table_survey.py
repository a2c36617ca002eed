"""From noisy answers to the next question, and to the fitted distribution: everything here reads noisy numbers alone.

Round 0 asks for single columns; values that noise hides are merged, numbers get cells of about equal weight. The next
rounds ask for all pairs. Then the pairs that go together most, beyond what noise explains, become the edges of a
junction tree, and the last rounds ask for these again, and for threes inside its cliques.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from fedsynth.models.graphical import JunctionTree, Measured, Table, fit
from fedsynth.models.table_question import Columns, Question, unmerged

_HIDDEN = 3.0  # standard deviations under which a value is not seen
_BLURRED = 0.5  # of the mass of a table: noise beyond it hides how three columns go together
_SURE = 1e-8  # variance of a share without noise: rows are a sample


@dataclass(frozen=True)
class Plan:
    """The public choices of a survey: they depend on the schema and the settings alone."""

    sizes: tuple[int, ...]
    ordered: tuple[int, ...]
    label: int | None
    rounds: int
    pair_rounds: int
    most_values: int  # that a column keeps after merging
    most_cells: int  # of a question
    tree_cells: int
    label_weight: float
    entropy: float  # weight beside the squared error, for each unit and row of it

    @cached_property
    def pairs(self) -> tuple[Columns, ...]:
        """Every two columns."""
        return tuple(combinations(range(len(self.sizes)), 2))

    def weight(self, table: Columns) -> float:
        """What goes with the label matters more."""
        return self.label_weight if self.label in table else 1.0

    def question(self, maps: tuple[np.ndarray, ...], tables: Sequence[Columns]) -> Question:
        """These tables with their weights."""
        return Question(maps, tuple(tables), tuple(self.weight(table) for table in tables))


@dataclass(frozen=True)
class Answer:
    """A question and its noisy answer: the units' sum over their number, and the standard deviation of its cells."""

    question: Question
    values: np.ndarray
    noise: float
    scale: np.ndarray  # what a unit adds to each table

    @property
    def total(self) -> float:
        """The mass of a table: 1, or the rows a unit has on average."""
        sums = [values.sum() for values in self.question.split(self.values)]
        return max(1e-9, float(np.mean(sums / self.scale)))

    def measured(self, total: float) -> list[Measured]:
        """The tables as shares of the whole mass, with their precision."""
        pieces = zip(self.question.tables, self.question.split(self.values), self.scale * total, strict=True)
        return [
            Measured(table, values / scale, 1 / ((self.noise / scale) ** 2 + _SURE))
            for table, values, scale in pieces
        ]


@dataclass(frozen=True)
class Survey:
    """All answers so far."""

    plan: Plan
    answers: tuple[Answer, ...]

    def following(self) -> Question:
        """The next question."""
        plan, done = self.plan, len(self.answers)
        singles = [(column,) for column in range(len(plan.sizes))]
        if done == 0:
            return plan.question(unmerged(plan.sizes), singles)
        pairs = done <= plan.pair_rounds or len(plan.sizes) < 3
        return plan.question(self.maps, (self.asked_pairs if pairs else self._refined()) or singles)

    def _refined(self) -> Sequence[Columns]:
        """The edges again; each together with the label where the noise of such a table lets it be seen."""
        label, noise = self.plan.label, self.answers[0].noise / self.total
        tree = JunctionTree.over(self.edges, self.sizes)
        tables = []
        for edge in self.edges:
            three = edge if label is None or label in edge else (*edge, label)
            cells = math.prod(self.sizes[column] for column in three)
            blurred = noise * math.sqrt(2 / math.pi * len(self.edges)) * cells
            tables.append(three if tree.home(three) is not None and blurred < _BLURRED else edge)
        return tables

    @cached_property
    def total(self) -> float:
        """The mass of a table: 1, or the rows a unit has on average."""
        return self.answers[0].total

    @cached_property
    def singles(self) -> list[Measured]:
        """The single columns, as they were asked for."""
        return self.answers[0].measured(self.total)

    @cached_property
    def maps(self) -> tuple[np.ndarray, ...]:
        """How values are merged."""
        most = self._most_values()
        return tuple(
            merged_values(one.shares, 1 / math.sqrt(float(one.precision)), ordered, most)
            for one, ordered in zip(self.singles, self.plan.ordered, strict=True)
        )

    def _most_values(self) -> int:
        """As many values a column as let all pairs fit a question."""
        plan = self.plan
        most = plan.most_values
        while most > 2:
            kept = [min(size, most) for size in plan.sizes]
            if sum(kept[a] * kept[b] for a, b in plan.pairs) <= plan.most_cells:
                break
            most -= 1
        return most

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many merged values each column has."""
        return tuple(int(merged.max()) + 1 for merged in self.maps)

    @cached_property
    def asked_pairs(self) -> tuple[Columns, ...]:
        """The pairs of the pair rounds: all, unless they do not fit."""
        kept, cells = [], 0
        for pair in sorted(self.plan.pairs, key=lambda pair: -self.plan.weight(pair)):
            cells += math.prod(self.sizes[column] for column in pair)
            if cells <= self.plan.most_cells:
                kept.append(pair)
        return tuple(kept)

    @cached_property
    def measured(self) -> dict[Columns, Measured]:
        """All that was measured of each table over merged values, as shares of all rows."""
        tables: dict[Columns, Measured] = {}
        for one, merged, size in zip(self.singles, self.maps, self.sizes, strict=True):
            counts = np.bincount(merged, minlength=size)
            shares = np.bincount(merged, weights=one.shares, minlength=size)
            tables[one.columns] = Measured(one.columns, shares, one.precision / counts)
        for answer in self.answers[1:]:
            for one in answer.measured(self.total):
                earlier = tables.get(one.columns)
                tables[one.columns] = one if earlier is None else earlier.combined(one)
        return tables

    @cached_property
    def distributions(self) -> list[np.ndarray]:
        """Each column by itself, from everything that was measured of it."""
        singles = [self.measured[(column,)] for column in range(len(self.sizes))]
        for columns, one in self.measured.items():
            for axis, column in enumerate(columns if len(columns) == 2 else ()):
                shares = one.shares.sum(axis=1 - axis)
                singles[column] = singles[column].combined(
                    Measured((column,), shares, one.precision / one.shares.shape[1 - axis])
                )
        return [_distribution(one.shares) for one in singles]

    @cached_property
    def gains(self) -> dict[Columns, float]:
        """How far each pair is from independent columns, beyond what noise explains."""
        gains: dict[Columns, float] = {}
        for columns, one in self.measured.items():
            if len(columns) == 2:
                apart = np.outer(self.distributions[columns[0]], self.distributions[columns[1]])
                noise = math.sqrt(2 / math.pi / float(one.precision)) * one.shares.size
                gains[columns] = float(np.abs(one.shares - apart).sum()) - noise
        return gains

    @cached_property
    def edges(self) -> tuple[Columns, ...]:
        """A spanning tree of the pairs that go together most, then more of them while the tables stay small."""
        ranked = sorted(self.gains, key=lambda pair: -self.gains[pair] * self.plan.weight(pair))
        groups = list(range(len(self.sizes)))
        chosen: list[Columns] = []
        for one, other in ranked:
            if groups[one] != groups[other]:
                chosen.append((one, other))
                groups = [groups[one] if group == groups[other] else group for group in groups]
        for pair in ranked:
            grown = [*chosen, pair]
            fits = pair not in chosen and self.gains[pair] > 0
            if fits and JunctionTree.over(grown, self.sizes).cells <= self.plan.tree_cells:
                chosen = grown
        return tuple(chosen)

    def fitted(self) -> tuple[JunctionTree, list[Table]]:
        """The distribution that all answers together say."""
        tree = JunctionTree.over(self.edges, self.sizes)
        inside = [one for columns, one in self.measured.items() if tree.home(columns) is not None]
        return tree, fit(tree, inside, entropy=self.plan.entropy * self.total)


def merged_values(shares: np.ndarray, noise: float, ordered: int, most: int) -> np.ndarray:
    """The merged value of each value: cells of a number until they are seen above the noise, rare categories as one.

    The first `ordered` values are cells, which only merge with neighbors; the others (categories, zero, missing) stay
    by themselves if they are seen.

    >>> merged_values(np.array([0.1, 0.1, 0.3, 0.1, 0.4]), 0.01, ordered=4, most=3)
    array([0, 0, 1, 1, 2])
    >>> merged_values(np.array([0.5, 0.001, 0.498, 0.001]), 0.01, ordered=0, most=10)
    array([0, 2, 1, 2])
    """
    apart = shares[ordered:]
    order = np.argsort(-apart, kind="stable")
    visible = np.sort(order[apart[order] > _HIDDEN * noise][: most - 1])
    if not ordered and len(visible) >= len(apart) - 1:  # one hidden value is merged with nothing
        visible = np.arange(len(apart))
    cells = _runs(shares[:ordered], noise, most)
    groups = int(cells.max()) + 1 if ordered else 0
    others = np.full(len(apart), groups - 1 if ordered else len(visible))
    others[visible] = groups + np.arange(len(visible))
    return np.concatenate([cells, others])


def _runs(shares: np.ndarray, noise: float, most: int) -> np.ndarray:
    """Neighboring cells in runs, each seen above the noise; few cells stay by themselves where they are seen."""
    total = float(np.maximum(shares, 0).sum())
    enough = _HIDDEN * noise if len(shares) <= most else max(total / most, 2 * _HIDDEN * noise)
    groups, count = np.zeros(len(shares), dtype=np.int64), 0
    mass = clear = 0.0  # of the run: all cells, and those that are seen by themselves
    width = 0
    for place, share in enumerate(shares.tolist()):
        groups[place] = count
        mass, width = mass + share, width + 1
        clear += share if share > _HIDDEN * noise else 0.0
        if clear >= enough or mass >= max(enough, _HIDDEN * noise * math.sqrt(width)):
            count, mass, clear, width = count + 1, 0.0, 0.0, 0
    if width and count:  # what is left at the end is not seen by itself
        groups[groups == count] = count - 1
    return groups


def _distribution(shares: np.ndarray) -> np.ndarray:
    positive = np.maximum(shares, 1e-9)
    return positive / positive.sum()
