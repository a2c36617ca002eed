"""From noisy answers to the next question, and to the fitted distribution: everything here reads noisy numbers alone.

Round 0 asks for single columns; values that noise hides are merged, numbers get cells of about equal weight. The next
rounds ask for all pairs. Then the pairs that go together most, beyond what noise explains, become the edges of a
junction tree, and the last rounds ask for these again, and for threes inside its cliques.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations

import numpy as np

from fedsynth.models.graphical import JunctionTree, Measured, Table, fit, sample
from fedsynth.models.table_merging import calmed, detailed, merged_values
from fedsynth.models.table_question import Columns, Question, unmerged

_BLURRED = 0.2  # of the mass of a table: noise beyond it hides how three columns go together
_POWER = 1 / 3  # of the number of cells, by which tables weigh
_UNEQUAL = 16  # times fewer cells than the largest table has: smaller ones weigh no less
_FEWEST = 8  # values of a column under which pairs are rather left out
_DOUBT = 0.5  # standard deviations of noise that a cell must gain on average
_GROWTHS = 3  # times that pairs are added to the tree
_ROUGH = 12  # sweeps of a fit that only chooses pairs
_DRAWN = 100_000  # rows, by which such a fit is compared with pairs outside its cliques
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
    most_tables: int
    tree_cells: int
    label_weight: float
    entropy: float  # weight beside the squared error, for each unit and row of it

    @cached_property
    def values(self) -> int:
        """How many values a column keeps: few enough for a question about all pairs, if it need not be very few."""
        fitting = (
            most
            for most in range(self.most_values, _FEWEST, -1)
            if sum(self._cells(pair, most) for pair in combinations(range(len(self.sizes)), 2))
            <= self.most_cells
        )
        return next(fitting, min(self.most_values, _FEWEST))

    def _cells(self, columns: Columns, most: int) -> int:
        """The most cells that a table of merged values has: zero and missing may stand beside the others."""
        return math.prod(min(self.sizes[column], most + 2) for column in columns)

    @cached_property
    def pairs(self) -> tuple[Columns, ...]:
        """Every two columns that are asked for: those with the label first, then neighbors, while there is room."""
        every = combinations(range(len(self.sizes)), 2)
        ordered = sorted(every, key=lambda pair: (-self.weight(pair), pair[1] - pair[0]))[: self.most_tables]
        ends = list(accumulate(self._cells(pair, self.values) for pair in ordered))
        return tuple(sorted(pair for pair, end in zip(ordered, ends, strict=True) if end <= self.most_cells))

    @property
    def pair_cells(self) -> int:
        """The most cells that a question about these pairs has."""
        return sum(self._cells(pair, self.values) for pair in self.pairs)

    def weight(self, table: Columns) -> float:
        """What goes with the label matters more."""
        return self.label_weight if self.label in table else 1.0

    def question(self, maps: tuple[np.ndarray, ...], tables: Sequence[Columns]) -> Question:
        """These tables with weights that go with the cube root of cells: the sum of absolute errors is least."""
        cells = [math.prod(shape) for shape in Question(maps, tuple(tables), ()).shapes]
        least = max(cells) / _UNEQUAL
        weights = (
            self.weight(table) * max(count, least) ** _POWER
            for table, count in zip(tables, cells, strict=True)
        )
        return Question(maps, tuple(tables), tuple(weights))


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
        if done <= plan.pair_rounds or len(plan.sizes) < 3:
            return plan.question(self.maps, plan.pairs or singles)
        if done == plan.rounds - 1 and self.details:
            return plan.question(self.maps, (*self.details, *((column,) for column in self._fine)))
        return plan.question(self.maps, self._refined(self.grown(self.edges)) or singles)

    @cached_property
    def details(self) -> tuple[Columns, ...]:
        """Columns whose values were merged, as they are, each with the column that it goes with most."""
        alone, many = self.distributions, len(self.sizes)
        gains = self.gains(lambda pair: np.outer(alone[pair[0]], alone[pair[1]]))
        tables: list[Columns] = []
        room = self.plan.most_cells
        for column, merged in enumerate(self.maps):
            partners = {
                sum(pair) - column: gains[pair] for pair in self.edges if column in pair and gains[pair] > 0
            }
            if partners and len(merged) > self.sizes[column]:
                partner = max(partners, key=lambda one: partners[one])
                room -= len(merged) * self.sizes[partner]
                if room >= 0:
                    tables.append((column + many, partner))
        return tuple(tables)

    @cached_property
    def shares(self) -> list[np.ndarray]:
        """The share of each value of each column; by the values of its partner, [values, partner's], if it has one."""
        fine = {
            columns[0]: one
            for columns, one in self.measured.items()
            if max(columns) >= len(self.sizes) and len(columns) > 1
        }
        return [
            calm if detail is None else detailed(calm, merged, detail)
            for calm, merged, detail in zip(self._calmed, self.maps, map(fine.get, self._fine), strict=True)
        ]

    @property
    def _calmed(self) -> list[np.ndarray]:
        """The share of each value; inside a merged one they are as unequal as can be told from noise."""
        return [
            calmed(one.shares, merged, 1 / float(one.precision))
            for one, merged in zip(self.singles, self.maps, strict=True)
        ]

    @cached_property
    def partners(self) -> tuple[int, ...]:
        """The column that a column's values were counted with; -1 if there is none."""
        partner = {
            columns[0]: columns[1]
            for columns in self.measured
            if max(columns) >= len(self.sizes) and len(columns) > 1
        }
        return tuple(partner.get(column, -1) for column in self._fine)

    @property
    def _fine(self) -> range:
        """The numbers that mean columns with their values as they are."""
        return range(len(self.plan.sizes), 2 * len(self.plan.sizes))

    def _refined(self, edges: Sequence[Columns]) -> Sequence[Columns]:
        """The edges again; each together with the label where the noise of such a table lets it be seen."""
        label, noise = self.plan.label, self.answers[0].noise / self.total
        tree, sizes = JunctionTree.over(edges, self.sizes), self.sizes
        room = self.plan.most_cells - sum(math.prod(sizes[column] for column in edge) for edge in edges)
        tables = []
        for edge in edges:
            three = edge if label is None or label in edge else (*edge, label)
            cells = math.prod(sizes[column] for column in three)
            more = cells - math.prod(sizes[column] for column in edge)
            blurred = noise * math.sqrt(2 / math.pi * len(edges)) * cells
            fits = tree.home(three) is not None and blurred < _BLURRED and more <= room
            tables.append(three if fits else edge)
            room -= more if fits else 0
        return tables

    @cached_property
    def total(self) -> float:
        """The mass of a table: 1, or the rows a unit has on average."""
        return self.answers[0].total

    @cached_property
    def singles(self) -> list[Measured]:
        """The single columns with their values as they are: asked for first, and perhaps again."""
        again = zip(self.answers[0].measured(self.total), self._fine, strict=True)
        return [one.combined(self._later[fine,]) if (fine,) in self._later else one for one, fine in again]

    @cached_property
    def _later(self) -> dict[Columns, Measured]:
        """What was measured of each table after the first round."""
        tables: dict[Columns, Measured] = {}
        for answer in self.answers[1:]:
            for one in answer.measured(self.total):
                earlier = tables.get(one.columns)
                tables[one.columns] = one if earlier is None else earlier.combined(one)
        return tables

    @cached_property
    def maps(self) -> tuple[np.ndarray, ...]:
        """How values are merged."""
        return tuple(
            merged_values(one.shares, 1 / math.sqrt(float(one.precision)), ordered, self.plan.values)
            for one, ordered in zip(self.answers[0].measured(self.total), self.plan.ordered, strict=True)
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many merged values each column has."""
        return tuple(int(merged.max()) + 1 for merged in self.maps)

    @cached_property
    def measured(self) -> dict[Columns, Measured]:
        """All that was measured of each table over merged values, as shares of all rows."""
        tables = dict(self._later)
        for one, merged, size in zip(self.singles, self.maps, self.sizes, strict=True):
            counts = np.bincount(merged, minlength=size)
            shares = np.bincount(merged, weights=one.shares, minlength=size)
            tables[one.columns] = Measured(one.columns, shares, one.precision / counts)
        return tables

    @cached_property
    def pairs(self) -> dict[Columns, Measured]:
        """What was measured of pairs of columns."""
        return {
            columns: one
            for columns, one in self.measured.items()
            if len(columns) == 2 and max(columns) < len(self.sizes)
        }

    @cached_property
    def distributions(self) -> list[np.ndarray]:
        """Each column by itself, from everything that was measured of it."""
        singles = [self.measured[(column,)] for column in range(len(self.sizes))]
        for columns, one in self.pairs.items():
            for axis, column in enumerate(columns):
                shares = one.shares.sum(axis=1 - axis)
                singles[column] = singles[column].combined(
                    Measured((column,), shares, one.precision / one.shares.shape[1 - axis])
                )
        return [_distribution(one.shares) for one in singles]

    def gains(self, model: Callable[[Columns], np.ndarray]) -> dict[Columns, float]:
        """How far each measured pair is from what a model says, less what is lost by fitting noise with it."""
        gains: dict[Columns, float] = {}
        for columns, one in self.pairs.items():
            noise = 1 / float(one.precision)
            usual = float(np.abs(one.shares - model(columns)).mean()) * math.sqrt(math.pi / 2)
            apart = math.sqrt(max(usual**2 - noise, 0.0))
            gains[columns] = one.shares.size * (apart - _DOUBT * math.sqrt(noise)) * self.plan.weight(columns)
        return gains

    @cached_property
    def edges(self) -> tuple[Columns, ...]:
        """The pairs that the model holds: those that were asked for last; before that, a tree that has grown."""
        later = [answer.question.tables for answer in self.answers[self.plan.pair_rounds + 1 :]]
        refined = [tables for tables in later if max(max(table) for table in tables) < len(self.sizes)]
        if refined and len(self.sizes) > 2:
            return tuple(dict.fromkeys(table[:2] for table in refined[-1] if len(table) > 1))
        alone = self.distributions
        gains = self.gains(lambda pair: np.outer(alone[pair[0]], alone[pair[1]]))
        groups = list(range(len(self.sizes)))
        chosen: list[Columns] = []
        for one, other in sorted(gains, key=lambda pair: -gains[pair]):
            if groups[one] != groups[other]:
                chosen.append((one, other))
                groups = [groups[one] if group == groups[other] else group for group in groups]
        grown = tuple(chosen)
        for _ in range(_GROWTHS if len(self.sizes) > 2 else 0):
            grown = self.grown(grown)
        return grown

    def grown(self, edges: tuple[Columns, ...]) -> tuple[Columns, ...]:
        """The edges, and a few of the pairs that a model of them explains worst, while the tables stay small."""
        tree, tables = self._model(edges, sweeps=_ROUGH)
        rows = sample(tree, tables, _DRAWN, np.random.default_rng(0))

        def shares(pair: Columns) -> np.ndarray:
            one, other = (self.sizes[column] for column in pair)
            counts = np.bincount(rows[:, pair[0]] * other + rows[:, pair[1]], minlength=one * other)
            return counts.reshape(one, other) / _DRAWN

        gains = self.gains(shares)
        worst = sorted((pair for pair in gains if gains[pair] > 0), key=lambda pair: -gains[pair])
        chosen = list(edges)
        for pair in worst:
            if len(chosen) >= len(edges) + len(self.sizes) // 2:
                break
            if (
                pair not in chosen
                and JunctionTree.over([*chosen, pair], self.sizes).cells <= self.plan.tree_cells
            ):
                chosen.append(pair)
        return tuple(chosen)

    def fitted(self) -> tuple[JunctionTree, list[Table]]:
        """The distribution that all answers together say."""
        return self._model(self.edges)

    def _model(self, edges: Sequence[Columns], sweeps: int = 60) -> tuple[JunctionTree, list[Table]]:
        """The distribution of these edges."""
        tree = JunctionTree.over(edges, self.sizes)
        in_the_tree = [
            one
            for columns, one in self.measured.items()
            if (len(columns) != 2 or columns in edges) and tree.home(columns) is not None
        ]
        return tree, fit(tree, in_the_tree, entropy=self.plan.entropy * self.total, sweeps=sweeps)


def _distribution(shares: np.ndarray) -> np.ndarray:
    positive = np.maximum(shares, 1e-9)
    return positive / positive.sum()
