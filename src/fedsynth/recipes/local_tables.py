"""Tables from one answer a client, which hides it itself: CALM, LoPub and LoCop.

CALM (Zhang, Wang, Li, He and Chen 2018): a client answers for the joint value of a few columns with its whole
budget. LoPub (Ren et al. 2018) and LoCop (Wang et al. 2019): a client sends noisy bits of all columns (RAPPOR), so its
budget is divided over them. Each answer is for one row of the client and costs pure epsilon, for all of its data.

What differs from the papers: a client with several rows draws one of them; columns of numbers have `bins` cells;
the tables that were read are made consistent by the same fit as that of `marginals`, along a forest of columns (CALM:
beside the label). LoPub and LoCop multiply the bits of two columns before the regression, since sums of the bits of
each tell nothing of the joint distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.schedule import Everyone
from fedsynth.federation.server import Momentum
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import as_probabilities
from fedsynth.models.copula import Copula, CopulaModel
from fedsynth.models.distribution import Distribution
from fedsynth.models.graphical import Columns, JunctionTree, Measured, fit, project
from fedsynth.models.marginals import MarginalModel
from fedsynth.models.model import Model
from fedsynth.models.table_domain import TableDomain
from fedsynth.models.table_question import QuestionForm, unmerged
from fedsynth.privacy.mechanism import Mechanism
from fedsynth.privacy.rappor import Rappor
from fedsynth.privacy.response import Answers, Views, best_view
from fedsynth.recipes.marginals import HOMES
from fedsynth.recipes.settings import checked, setting
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.training.row_answers import RowAnswers
from fedsynth.transport.registry import transport_named

_USUAL_VIEW = (
    12.0  # the most epsilon for which the size of a view is chosen: with more, views would hold all columns
)
_ENTROPY = 1.0  # beside squared errors in units of their variance
_CERTAIN = 1e-4  # the same where the variance is not known
_DIRECT = 1.0  # precision of tables whose variance is not known

_ONE_ROW = "A client answers for one of its rows, drawn by itself: rows of clients with many count less."


@dataclass(frozen=True)
@checked
class AnswerPrivacy:
    """Each client's budget."""

    epsilon: float = setting(0.0, "what a client may spend in all; from --epsilon", 0.0, role="budget")


@dataclass(frozen=True)
@checked
class Viewing:
    """The questions to a client, and which dependences are believed."""

    columns: int = setting(0, "columns asked of each client, beside the label (0: as many as tell most)", 0)
    surprise: float = setting(4.0, "standard deviations of noise that a dependence must exceed", 0.0)
    bins: int = setting(8, "cells of a column of numbers", 2, 128)


@dataclass(frozen=True)
@checked
class Hashing:
    """How values become bits."""

    hashes: int = setting(4, "hash functions of a Bloom filter", 1, 64)
    bins: int = setting(8, "cells of a column of numbers", 2, 128)


@dataclass(frozen=True)
@checked
class Joining:
    """Which columns are joined."""

    phi: float = setting(0.4, "correlation from which on two columns are joined", 0.0, 1.0)


def calm(task: Task, viewing: Viewing = Viewing(), privacy: AnswerPrivacy = AnswerPrivacy()) -> Algorithm:
    """CALM: each client answers for a few columns at once by randomized response, under local DP of pure epsilon."""
    domain, epsilon = TableDomain(task.schema, viewing.bins), _budget(task, privacy, "calm")
    always = () if domain.label is None else (domain.label,)
    others = len(domain.sizes) - len(always)
    drawn = viewing.columns or best_view(domain.sizes, always, min(epsilon, _USUAL_VIEW))
    views = Views(domain.sizes, always, min(others, drawn if always else max(2, drawn)), epsilon)

    def read(total: Tensor) -> Distribution:
        return _by_surprise(views.wire(len(domain.sizes)), total, domain, viewing.surprise)

    return _answered("calm", task, domain, views, _tree_model(domain), read)


def lopub(
    task: Task,
    hashing: Hashing = Hashing(),
    joining: Joining = Joining(),
    privacy: AnswerPrivacy = AnswerPrivacy(),
) -> Algorithm:
    """LoPub: noisy bits of all columns, and rows drawn along a forest of related columns; local DP."""
    domain = TableDomain(task.schema, hashing.bins)
    rappor = Rappor(domain.sizes, _budget(task, privacy, "lopub"), hashing.hashes)

    def read(total: Tensor) -> Distribution:
        return _by_information(rappor, total, domain, joining.phi)

    return _answered("lopub", task, domain, rappor, _tree_model(domain), read)


def locop(task: Task, hashing: Hashing = Hashing(), privacy: AnswerPrivacy = AnswerPrivacy()) -> Algorithm:
    """LoCop: noisy bits of all columns, and rows drawn from single columns joined by a Gaussian copula; local DP."""
    domain = TableDomain(task.schema, hashing.bins)
    rappor = Rappor(domain.sizes, _budget(task, privacy, "locop"), hashing.hashes)

    def read(total: Tensor) -> Copula:
        columns = len(domain.sizes)
        correlations = np.eye(columns)
        for one, other in combinations(range(columns), 2):
            correlations[one, other] = correlations[other, one] = pearson(rappor.joint(total, one, other))
        return Copula.of(rappor.columns(total), correlations)

    return _answered("locop", task, domain, rappor, CopulaModel(domain), read)


def _answered(
    name: str,
    task: Task,
    domain: TableDomain,
    mechanism: Mechanism,
    model: Model,
    read: Callable[[Tensor], Distribution | Copula],
) -> Algorithm:
    """Everybody answers once; the server reads the sum of all answers and fits a model to it."""

    def learn(state: ServerState, total: Tensor, rng: Rng) -> ServerState:
        fitted = read(total)
        state = replace(state, parts={**state.parts, "fitted": fitted.pack()})
        if domain.label is None:
            return state
        return state.with_balance(as_probabilities(torch.from_numpy(fitted.marginal(domain.label))))

    return Algorithm(
        name=name,
        model=model,
        homes=HOMES,
        plan=(),
        mechanism=mechanism,
        schedule=Everyone(task.clients, "none", "replace-one"),
        server=Momentum(),
        rounds=1,
        transport=transport_named(task.transport),
        caveats=(_ONE_ROW,),
        loss_share=0.0,
        record_sums=RowAnswers(domain, mechanism),
        learn=learn,
    )


def _budget(task: Task, privacy: AnswerPrivacy, name: str) -> float:
    """The epsilon of a client's answer; without privacy there is no end to it."""
    if task.kind != "table":
        raise BadInput(f"kind={task.kind}: {name} makes tables")
    if not task.private:
        return math.inf
    if not privacy.epsilon:
        raise BadInput(f"epsilon=0: {name} needs the budget of a client; give --epsilon, or --no-privacy")
    return privacy.epsilon


def _tree_model(domain: TableDomain) -> MarginalModel:
    """The model of a fitted tree, whose clients answer for each column without being asked anything."""
    return MarginalModel(domain, QuestionForm((), 0, len(domain.sizes)))


def _fitted(tree: JunctionTree, measured: list[Measured], entropy: float) -> Distribution:
    """The distribution along a tree that the measured tables in it say."""
    inside = [one for one in measured if tree.home(one.columns) is not None]
    tables = fit(tree, inside, entropy=entropy)
    return Distribution(tree, tables, unmerged(tree.sizes), [np.ones(size) for size in tree.sizes])


def _by_surprise(wire: Answers, total: Tensor, domain: TableDomain, least: float) -> Distribution:
    """CALM's tables: the label with each column, and pairs that depend on each other by more than noise explains."""
    single, joint, precision = (piece.double().numpy() for piece in wire.pairs(total))
    spans = [slice(start, stop) for start, stop in zip(wire.starts, wire.starts[1:], strict=False)]
    known = np.diag(wire.answered(total))
    measured = [
        Measured((column,), single[span], known[column] / np.maximum(single[span], 1e-3))
        for column, span in enumerate(spans)
    ]
    for one, other in combinations(range(len(spans)), 2):
        weight = precision[spans[one], spans[other]]
        if weight.max() > 0:
            measured.append(Measured((one, other), joint[spans[one], spans[other]], weight))
    label = domain.label
    star = [] if label is None else [(column, label) for column in range(len(spans)) if column != label]
    apart = JunctionTree.over(star, domain.sizes)
    alone = _fitted(apart, measured, _ENTROPY)
    pairs = [one for one in measured if len(one.columns) == 2 and label not in one.columns]
    gains = {one.columns: _surprise(one, alone, label) for one in pairs}
    edges = forest({pair: gain for pair, gain in gains.items() if gain >= least}, len(spans))
    cliques = [edge if label is None else (*edge, label) for edge in edges]
    return _fitted(JunctionTree.over([*star, *cliques], domain.sizes), measured, _ENTROPY)


def _surprise(pair: Measured, alone: Distribution, label: int | None) -> float:
    """How far a pair's table is from columns that only the label joins, in standard deviations of the worst cell."""
    if label is None:
        expected = np.outer(*(alone.marginal(column) for column in pair.columns))
    else:
        one, other = (_with_label(alone, column, label) for column in pair.columns)
        expected = np.einsum("ac,bc,c->ab", one, other, 1 / np.maximum(one.sum(0), 1e-12))
    return float((np.abs(pair.shares - expected) * np.sqrt(pair.precision)).max())


def _with_label(alone: Distribution, column: int, label: int) -> np.ndarray:
    place = alone.tree.home((column, label))
    assert place is not None
    return project(alone.tables[place], alone.tree.cliques[place], (column, label))


def _by_information(rappor: Rappor, total: Tensor, domain: TableDomain, phi: float) -> Distribution:
    """LoPub's tables: the pairs whose mutual information is as large as a correlation of phi would make it."""
    sizes = domain.sizes
    tables: dict[Columns, np.ndarray] = {
        pair: rappor.joint(total, *pair) for pair in combinations(range(len(sizes)), 2)
    }
    least = {
        pair: (min(sizes[column] for column in pair) - 1) * phi**2 / 2 for pair in tables
    }  # Ren et al., V-B
    gains = {pair: information(table) for pair, table in tables.items()}
    edges = forest({pair: gain for pair, gain in gains.items() if gain >= least[pair]}, len(sizes))
    measured = [Measured((column,), shares, _DIRECT) for column, shares in enumerate(rappor.columns(total))]
    measured += [Measured(pair, tables[pair], _DIRECT) for pair in edges]
    return _fitted(JunctionTree.over(edges, sizes), measured, _CERTAIN)


def forest(gains: dict[Columns, float], columns: int) -> list[Columns]:
    """The pairs of largest gain that close no circle (Kruskal).

    >>> forest({(0, 1): 3.0, (1, 2): 1.0, (0, 2): 2.0}, 3)
    [(0, 1), (0, 2)]
    """
    group = list(range(columns))
    chosen: list[Columns] = []
    for one, other in sorted(gains, key=lambda pair: -gains[pair]):
        if group[one] != group[other]:
            chosen.append((one, other))
            group = [group[one] if each == group[other] else each for each in group]
    return chosen


def information(joint: np.ndarray) -> float:
    """The mutual information of two columns, in nats."""
    apart = np.outer(joint.sum(1), joint.sum(0))
    positive = joint > 0
    return float((joint[positive] * np.log(joint[positive] / apart[positive])).sum())


def pearson(joint: np.ndarray) -> float:
    """The correlation of the codes of two columns with this joint distribution.

    >>> float(pearson(np.array([[0.5, 0.0], [0.0, 0.5]])))
    1.0
    """
    first, second = joint.sum(1), joint.sum(0)
    a, b = np.arange(len(first)), np.arange(len(second))
    mean_a, mean_b = first @ a, second @ b
    spread = math.sqrt(max(0.0, first @ a**2 - mean_a**2) * max(0.0, second @ b**2 - mean_b**2))
    return float((a @ joint @ b - mean_a * mean_b) / spread) if spread > 1e-12 else 0.0
