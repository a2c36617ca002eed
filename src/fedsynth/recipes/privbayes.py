"""PrivBayes (Zhang, Cormode, Procopiuc, Srivastava and Xiao 2017) over noisy sums: a Bayesian network and its tables.

The paper chooses the network by the exponential mechanism, which needs exact counts in one place. Here the first round
asks for the noisy tables of all pairs of columns, and the network is chosen greedily from these alone, so that choosing
costs nothing and nobody has to see a count. The other rounds ask for the tables of each column with its parents. As
in the paper, dependence is measured by R, half the L1 distance from independence, and a table is asked for only if
its cells are expected to exceed the noise by `usefulness` times (theta). Noise is Gaussian, and the fit is that of
`marginals`, in which all tables that were asked for have a say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import ClassVar

import numpy as np

from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.models.graphical import Columns, JunctionTree, Measured, Table, fit, tree_cells
from fedsynth.models.marginals import MarginalModel
from fedsynth.models.table_answer import Answer
from fedsynth.models.table_domain import Spikes, TableDomain
from fedsynth.models.table_question import Question, QuestionForm, unmerged
from fedsynth.recipes.marginals import CountPrivacy, Fitting, Learning, count_mechanism, counted
from fedsynth.recipes.settings import checked, setting
from fedsynth.recipes.sharing import Sharing
from fedsynth.recipes.task import Task
from fedsynth.training.table_sums import TableSums

_FEWEST_STEPS = 4  # that a record adds to a table: fewer lose much by rounding down


@dataclass(frozen=True)
@checked
class Network:
    """The questions, and how large the network may be."""

    rounds: int = setting(
        3, "rounds; the first asks for all pairs, the others for the network's tables", 2, role="rounds"
    )
    degree: int = setting(2, "parents of a column, at most", 1, 2)
    usefulness: float = setting(4.0, "times by which the cells of a table must exceed its noise (theta)", 0.0)
    bins: int = setting(16, "cells of a column of numbers", 2, 128)
    most_cells: int = setting(1_000_000, "cells of all tables of a round together", 100)


@dataclass(frozen=True)
class NetworkPlan:
    """All that the server decides by, besides the answers."""

    sizes: tuple[int, ...]
    label: int | None
    settings: Network
    most_cells: int  # of an answer
    tree_cells: int
    entropy: float

    @property
    def rounds(self) -> int:
        """How often something is asked."""
        return self.settings.rounds

    def question(self, tables: Sequence[Columns]) -> Question:
        """These tables, each with the same weight."""
        return Question(unmerged(self.sizes), tuple(tables), (1.0,) * len(tables))

    def cells(self, tables: Sequence[Columns]) -> int:
        """The cells of all these tables together."""
        return sum(math.prod(self.sizes[column] for column in table) for table in tables)

    def useful(self, table: Columns, noise: float) -> bool:
        """Whether the mean cell of a table exceeds its noise, which one table for each column shares."""
        spread = noise * math.sqrt(len(self.sizes) / (self.rounds - 1))
        return self.cells([table]) * spread * self.settings.usefulness <= 1


@dataclass(frozen=True)
class NetworkSurvey:
    """All answers so far: first of all pairs, then of the network's tables."""

    plan: NetworkPlan
    answers: tuple[Answer, ...]
    partners: tuple[int, ...] = ()
    spikes: ClassVar[Spikes] = ()  # no number is a value of its own

    @property
    def maps(self) -> tuple[np.ndarray, ...]:
        """No values are merged."""
        return unmerged(self.plan.sizes)

    @property
    def shares(self) -> list[np.ndarray]:
        """Each value stands for itself."""
        return [np.ones(size) for size in self.plan.sizes]

    @property
    def row_counts(self) -> np.ndarray:
        """Nothing: clients are not asked how many rows they have."""
        return np.empty(0)

    def following(self) -> Question:
        """The next question."""
        return self.plan.question(self.network if self.answers else every_pair(len(self.plan.sizes)))

    @cached_property
    def measured(self) -> list[Measured]:
        """All tables of all answers, as shares."""
        total = self.answers[0].total
        return [one for answer in self.answers for one in answer.measured(total)]

    @property
    def noise(self) -> float:
        """The standard deviation of an answer's numbers, as a share of all rows."""
        return self.answers[0].noise / self.answers[0].total

    @cached_property
    def gains(self) -> np.ndarray:
        """R of each two columns beyond what noise explains, [columns, columns]."""
        gains = np.zeros((len(self.plan.sizes),) * 2)
        for one in self.measured:
            if len(one.columns) == 2:
                apart = np.outer(one.shares.sum(1), one.shares.sum(0))
                noise = math.sqrt(2 / math.pi / float(one.precision)) * one.shares.size
                gain = (float(np.abs(one.shares - apart).sum()) - noise) / 2
                gains[one.columns] = gains[one.columns[::-1]] = gain
        return gains

    @cached_property
    def network(self) -> tuple[Columns, ...]:
        """Each column with its parents: the column that gains most by those placed before it is placed next."""
        if len(self.answers) > 1:
            return self.answers[1].question.tables
        plan = self.plan
        root = 0 if plan.label is None else plan.label
        placed, left = [root], [column for column in range(len(plan.sizes)) if column != root]
        tables: list[Columns] = [(root,)]
        while left:
            sets = [self._parents(column, placed) for column in left]
            gained = [self.gains[column, list(own)].sum() for column, own in zip(left, sets, strict=True)]
            best = int(np.argmax(gained))
            tables.append(self._small((*sets[best], left[best]), tables))
            placed.append(left.pop(best))
        return tuple(tables)

    def _parents(self, column: int, placed: Sequence[int]) -> Columns:
        """The columns that this one depends on most, as long as the table stays useful."""
        parents: Columns = ()
        for other in sorted(placed, key=lambda one: -self.gains[column, one]):
            if len(parents) == self.plan.settings.degree or self.gains[column, other] <= 0:
                break
            if self.plan.useful((*parents, other, column), self.noise):
                parents = (*parents, other)
        return parents

    def _small(self, table: Columns, tables: Sequence[Columns]) -> Columns:
        """The table with as many parents as keep the model small, and leave room for all columns to come."""
        plan, later = self.plan, {*range(len(self.plan.sizes))} - {one[-1] for one in tables} - {table[-1]}
        alone = sum(plan.sizes[column] for column in later)
        while len(table) > 1 and (
            plan.cells([*tables, table]) + alone > plan.most_cells
            or tree_cells([*tables, table], plan.sizes) > plan.tree_cells
        ):
            table = (*table[:-2], table[-1])
        return table

    def fitted(self) -> tuple[JunctionTree, list[Table]]:
        """The distribution that all answers together say."""
        tree = JunctionTree.over(self.network, self.plan.sizes)
        inside = [one for one in self.measured if tree.home(one.columns) is not None]
        return tree, fit(tree, inside, entropy=self.plan.entropy * self.answers[0].total)


def privbayes(
    task: Task,
    network: Network = Network(),
    fitting: Fitting = Fitting(),
    privacy: CountPrivacy = CountPrivacy(),
    sharing: Sharing = Sharing(),
) -> Algorithm:
    """PrivBayes: a Bayesian network chosen from noisy tables of all pairs, and noisy tables of its columns."""
    if task.kind != "table":
        raise Incompatible(f"kind={task.kind}: privbayes counts the values of tables")
    domain = TableDomain(task.schema, network.bins)
    sizes, columns = domain.sizes, len(domain.sizes)
    pairs = every_pair(columns)
    cells = sum(math.prod(sizes[column] for column in pair) for pair in pairs)
    if cells > network.most_cells:
        raise Incompatible(
            f"{len(pairs):,} pairs of columns have {cells:,} cells, more than most_cells={network.most_cells:,}: set "
            "fewer bins or more cells, or use marginals, which merges values"
        )
    form = QuestionForm(sizes, max(len(pairs), columns), max(cells, sum(sizes)))
    mechanism, noise = count_mechanism(task, privacy, form.most_cells, sharing)
    sums = TableSums(domain, form, mechanism, task.unit if task.private else "client")
    entropy = fitting.smoothness * task.clients
    plan = NetworkPlan(sizes, domain.label, network, form.most_cells, fitting.tree_cells, entropy)
    if sums.scale(plan.question(pairs)).min() * sums.steps < _FEWEST_STEPS:
        raise Incompatible(
            f"{len(pairs):,} pairs of columns: a record has no grid step left for some; set most_records lower"
        )
    learning = Learning(plan, sums, noise / task.clients, NetworkSurvey)
    return counted("privbayes", task, network.rounds, MarginalModel(domain, form), sums, learning, _CAVEATS)


def every_pair(columns: int) -> list[Columns]:
    """Every two columns; the only one, where there is but one."""
    return [*combinations(range(columns), 2)] if columns > 1 else [(0,)]


_CAVEATS = (
    "The network is chosen from noisy tables alone, not by the exponential mechanism of the paper: choosing costs "
    "nothing beside the tables.",
)
