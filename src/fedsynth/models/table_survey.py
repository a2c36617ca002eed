"""From noisy answers to the next question, and to the fitted distribution: everything here reads noisy numbers alone.

Round 0 asks for single columns, a few more do where noise hides them; values that are not seen are merged, numbers get
cells of about equal weight, and some that many rows have exactly stand by themselves. The next rounds ask for all
pairs. Then the pairs that go together most, beyond what noise explains, become the edges of a junction tree, and the
last rounds ask for these again, and for threes in its cliques.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np

from fedsynth.models.graphical import JunctionTree, Measured, Table, fit, project, tree_cells
from fedsynth.models.table_answer import Answer, row_counts, row_weight
from fedsynth.models.table_denoise import denoised
from fedsynth.models.table_domain import Spikes
from fedsynth.models.table_merging import calmed, detailed, falling_law, merged_values, toward
from fedsynth.models.table_plan import Plan
from fedsynth.models.table_question import Columns, Question, unmerged
from fedsynth.models.table_rules import merged_pairs, tables_without
from fedsynth.models.table_smoothing import rounds_needed, smooth_column, whole
from fedsynth.models.table_spikes import values_apart
from fedsynth.models.tree_sampling import sample

_BLURRED = 0.2  # of the mass of a table: noise beyond it hides how three columns go together
_DOUBT = 0.5  # standard deviations of noise that a cell must gain on average
_GROWTHS = 3  # times that pairs are added to the tree
_ROUGH = 12  # sweeps of a fit that only chooses pairs
_DRAWN = 100_000  # rows, by which such a fit is compared with pairs outside its cliques


@dataclass(frozen=True)
class Survey:
    """All answers so far."""

    plan: Plan
    answers: tuple[Answer, ...]

    def following(self) -> Question:
        """The next question."""
        return replace(self._following(), row_weight=self.row_weight, spikes=self.spikes)

    @cached_property
    def spikes(self) -> Spikes:
        """The numbers of each column that stand by themselves; none before they were looked for."""
        spiked, many = dict(self.plan.spiked), len(self.plan.sizes)
        if not self.answers or not spiked:
            return ()
        tables = self.answers[0].measured(self.total)
        spikes = {column: of.none for column, of in spiked.items()}
        for on_grid in tables[many:]:
            column = on_grid.columns[0] - 2 * many
            spikes[column] = spiked[column].spikes(on_grid, tables[column])
        return tuple(spikes.get(column, ()) for column in range(many) if column != self.plan.label)

    @property
    def row_weight(self) -> float:
        """The weight that a row adds."""
        return row_weight(self.answers, self.plan.about, always=self.plan.rows_always)

    @property
    def row_counts(self) -> np.ndarray:
        """The share of clients with 1, 2, ... rows; none if it was not asked for."""
        return row_counts(self.answers, self.plan.about)

    def _following(self) -> Question:
        plan, done = self.plan, len(self.answers)
        singles = [(column,) for column in range(len(plan.sizes))]
        if done < self.single_rounds:
            on_grids = [] if done else [(column + 2 * len(singles),) for column in plan.one_by_one]
            return plan.question(unmerged(plan.sizes), [*singles, *on_grids])
        if done < self.single_rounds + plan.pair_rounds or len(plan.sizes) < 3:
            return plan.question(self.maps, plan.pairs or singles)
        if done == plan.rounds - 1 and self.details:
            return plan.question(self.maps, (*self.details, *((column,) for column in self._fine)))
        return plan.question(self.maps, self._refined(self.grown(self.edges)) or singles)

    @cached_property
    def single_rounds(self) -> int:
        """How many rounds ask for single columns: more than one where noise hides them."""
        if not self.answers or self.plan.single_rounds == 1:
            return 1
        later = (place for place, answer in enumerate(self.answers) if len(answer.question.tables[0]) > 1)
        needed = rounds_needed(self._measured(self.answers[0]))
        return next(later, min(self.plan.single_rounds, needed))

    @cached_property
    def _singles(self) -> list[Measured]:
        """The single columns with their values as they are, by the rounds before pairs."""
        rounds = zip(*map(self._measured, self.answers[: self.single_rounds]), strict=True)
        return [reduce(Measured.combined, of) for of in rounds]

    def _measured(self, answer: Answer) -> list[Measured]:
        """The tables of an answer, as shares of the mass that it has."""
        tables = answer.measured(answer.total if answer.question.row_weight > 0 else self.total)
        tables = [whole(one) if self.plan.smooth else one for one in tables]
        return values_apart(tables, self.plan.spiked, self.spikes, self.plan.sizes)

    @cached_property
    def details(self) -> tuple[Columns, ...]:
        """Columns whose values were merged, as they are, each with the column that it goes with most."""
        alone, many = self.distributions, len(self.sizes)
        gains = self.gains(lambda pair: np.outer(alone[pair[0]], alone[pair[1]]))
        tables: list[Columns] = []
        room = self.plan.most_cells - sum(map(len, self.maps))  # these are asked for alone as well
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
        calmed_shares = map(self._calm, range(len(self.sizes)))
        return [
            calm if detail is None else detailed(calm, merged, detail)
            for calm, merged, detail in zip(calmed_shares, self.maps, map(fine.get, self._fine), strict=True)
        ]

    def _calm(self, column: int) -> np.ndarray:
        """The share of each value that rows may have; inside a merged one as unequal as can be told from noise."""
        one, usual, of = self.singles[column], self._usual(column), dict(self.plan.spiked).get(column)
        size = len(one.shares)
        known = np.ones(size, dtype=bool) if of is None else of.exist(self.spikes[column], size)
        calm = np.zeros(size)
        calm[known] = calmed(
            one.shares[known],
            self.maps[column][known],
            1 / float(one.precision),
            self.distributions[column],
            self.plan.ordered[column],
            None if usual is None else usual[known],
        )
        return calm

    @cached_property
    def _laws(self) -> dict[int, np.ndarray]:
        """How numbers of children usually fall."""
        return {place: falling_law(self.maps[place], self._alone[place]) for place in self.plan.counts}

    def _usual(self, column: int) -> np.ndarray | None:
        """The usual shares of a column's values, if it is known how they go together."""
        if column in self.plan.smooth_columns:
            return smooth_column(self.singles[column], self.plan.ordered[column])
        return self._laws.get(column)

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
        return min(self.answers[0].total, self.plan.most_rows)

    @cached_property
    def singles(self) -> list[Measured]:
        """The single columns with their values as they are: asked for first, and perhaps again."""
        again = zip(self._singles, self._fine, strict=True)
        return [one.combined(self._later[fine,]) if (fine,) in self._later else one for one, fine in again]

    @cached_property
    def _later(self) -> dict[Columns, Measured]:
        """Return the measurements of each table after the first round."""
        tables: dict[Columns, Measured] = {}
        for answer in self.answers[self.single_rounds :]:
            for one in self._measured(answer):
                earlier = tables.get(one.columns)
                tables[one.columns] = one if earlier is None else earlier.combined(one)
        return tables

    @cached_property
    def maps(self) -> tuple[np.ndarray, ...]:
        """How values are merged."""
        spiked = dict(self.plan.spiked)
        return tuple(
            merged_values(
                one.shares,
                1 / math.sqrt(float(one.precision)),
                ordered,
                self.plan.values,
                count=one.columns[0] in self.plan.counts,
                homes=spiked[column].homes(self.spikes[column], len(one.shares))
                if column in spiked
                else None,
            )
            for column, (one, ordered) in enumerate(zip(self._singles, self.plan.ordered, strict=True))
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many merged values each column has."""
        return tuple(int(merged.max()) + 1 for merged in self.maps)

    @cached_property
    def measured(self) -> dict[Columns, Measured]:
        """All that was measured of each table over merged values, as shares of all rows."""
        tables, spiked = dict(self._later), dict(self.plan.spiked)
        for one, merged, size in zip(self.singles, self.maps, self.sizes, strict=True):
            noisy = one.shares != 0.0 if one.columns[0] in spiked else None  # unknown spikes have no noise
            counts = np.bincount(merged, noisy, size).clip(1)
            shares = np.bincount(merged, weights=one.shares, minlength=size)
            tables[one.columns] = Measured(one.columns, shares, one.precision / counts)
        return tables

    def _first_of(self, column: int, later: Measured) -> Measured:
        """A column as it was asked for first; less precise where that mean, over clients, is not the one over rows."""
        first = self.measured[(column,)]
        if all(answer.question.row_weight == 0 for answer in self.answers):
            return first
        apart = float(np.mean((first.shares - later.shares) ** 2 - 1 / first.precision - 1 / later.precision))
        return replace(first, precision=1 / (1 / first.precision + max(0.0, apart)))

    @cached_property
    def pairs(self) -> dict[Columns, Measured]:
        """Return the measurements of pairs of columns."""
        raw: dict[Columns, Measured] = {
            columns: one
            for columns, one in self.measured.items()
            if len(columns) == 2 and max(columns) < len(self.sizes)
        }
        for columns, one in self.measured.items():
            if len(columns) == 3:
                pair = Measured(columns[:2], one.shares.sum(axis=2), one.precision / one.shares.shape[2])
                raw[pair.columns] = raw[pair.columns].combined(pair)  # every edge was a pair before
        return raw

    @cached_property
    def calm_pairs(self) -> dict[Columns, Measured]:
        """The pairs, most of them nearer to the true ones: what two columns have in common must stand out of noise.

        Pairs that weigh more than others are taken as they are: weak ties to the label, many together, say much.
        """
        alone = self.distributions
        return {
            columns: denoised(one, np.outer(*(alone[column] for column in columns)))
            if self.plan.weight(columns) <= 1
            else one
            for columns, one in self.pairs.items()
        }

    @cached_property
    def columns(self) -> list[Measured]:
        """Each column by itself; numbers of children are drawn towards a law where noise hides them."""
        columns = list(self._alone)
        for column, law in self._laws.items():
            columns[column] = toward(columns[column], np.bincount(self.maps[column], law))
        return columns

    @cached_property
    def _alone(self) -> list[Measured]:
        """Each column by itself, from everything that was measured of it."""
        later: dict[int, Measured] = {}
        for columns, one in self.pairs.items():
            for axis, column in enumerate(columns):
                shares = one.shares.sum(axis=1 - axis)
                single = Measured((column,), shares, one.precision / one.shares.shape[1 - axis])
                later[column] = later[column].combined(single) if column in later else single
        return [
            self._first_of(column, later[column]).combined(later[column])
            if column in later
            else self.measured[(column,)]
            for column in range(len(self.sizes))
        ]

    @cached_property
    def distributions(self) -> list[np.ndarray]:
        """The columns as distributions."""
        return [_distribution(one.shares) for one in self.columns]

    def gains(self, model: Callable[[Columns], np.ndarray]) -> dict[Columns, float]:
        """How far each measured pair is from what a model says, less what is lost by fitting noise with it."""
        gains: dict[Columns, float] = {}
        for columns, one in self.calm_pairs.items():
            noise, weight = 1 / float(one.precision), self.plan.weight(columns)
            apart = float(np.abs(one.shares - model(columns)).mean())
            if weight > 1:
                apart = math.sqrt(max(apart**2 * math.pi / 2 - noise, 0.0))
            gains[columns] = one.shares.size * (apart - _DOUBT * math.sqrt(noise)) * weight
        return gains

    @cached_property
    def edges(self) -> tuple[Columns, ...]:
        """The pairs that the model holds: those that were asked for last; before that, a tree that has grown."""
        start = self.single_rounds + self.plan.pair_rounds
        later = [answer.question.tables for answer in self.answers[start:]]
        refined = [tables for tables in later if max(max(table) for table in tables) < len(self.sizes)]
        if refined and len(self.sizes) > 2:
            return tuple(dict.fromkeys(table[:2] for table in refined[-1] if len(table) > 1))
        alone = self.distributions
        gains = self.gains(lambda pair: np.outer(alone[pair[0]], alone[pair[1]]))
        groups = list(range(len(self.sizes)))
        chosen: list[Columns] = []
        tied = [pair for pair in self.possible if pair in gains]  # so that impossible values never meet
        for one, other in [*tied, *sorted(gains, key=lambda pair: -gains[pair])]:
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
        rows = np.ascontiguousarray(sample(tree, tables, _DRAWN, np.random.default_rng(0)).T)

        def shares(pair: Columns) -> np.ndarray:
            one, other = (self.sizes[column] for column in pair)
            counts = np.bincount(rows[pair[0]] * other + rows[pair[1]], minlength=one * other)
            return counts.reshape(one, other) / _DRAWN

        gains = self.gains(shares)
        worst = sorted((pair for pair in gains if gains[pair] > 0), key=lambda pair: -gains[pair])
        chosen = list(edges)
        for pair in worst:
            if len(chosen) >= len(edges) + len(self.sizes) // 2:
                break
            if pair not in chosen and tree_cells([*chosen, pair], self.sizes) <= self.plan.tree_cells:
                chosen.append(pair)
        return tuple(chosen)

    @cached_property
    def possible(self) -> dict[Columns, np.ndarray]:
        """The pairs of merged values that constraints allow."""
        return merged_pairs(self.plan.possible, self.maps)

    def fitted(self) -> tuple[JunctionTree, list[Table]]:
        """The distribution that all answers together say."""
        return self._model(self.edges)

    def _model(self, edges: Sequence[Columns], sweeps: int = 60) -> tuple[JunctionTree, list[Table]]:
        """The distribution of these edges."""
        tree = JunctionTree.over(edges, self.sizes)
        in_the_tree = [self.calm_pairs[edge] for edge in edges] + self.columns
        entropy = self.plan.entropy * self.total
        start = tables_without(tree, self.possible)
        first = fit(tree, in_the_tree, entropy=entropy, start=start, sweeps=sweeps)
        threes = [
            one
            for columns, one in self.measured.items()
            if len(columns) == 3 and tree.home(columns) is not None
        ]
        if not threes or sweeps < 60:
            return tree, first
        for one in threes:
            place = tree.home(one.columns)
            assert place is not None
            guess = project(first[place], tree.cliques[place], one.columns)
            in_the_tree.append(denoised(one, guess))
        return tree, fit(tree, in_the_tree, entropy=entropy, start=start, sweeps=sweeps)


def _distribution(shares: np.ndarray) -> np.ndarray:
    positive = np.maximum(shares, 1e-9)
    return positive / positive.sum()
