"""Tables from noisy sums of counts: what goes with what, asked in a few rounds, and the distribution that fits it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.federation.schedule import Everyone
from fedsynth.federation.server import Momentum
from fedsynth.federation.state import ServerState
from fedsynth.models.distribution import Distribution
from fedsynth.models.marginals import MarginalModel
from fedsynth.models.model import Model
from fedsynth.models.table_answer import Answer
from fedsynth.models.table_domain import TableDomain, open_spikes, spiked_columns
from fedsynth.models.table_plan import Plan
from fedsynth.models.table_question import ClientCells, QuestionForm
from fedsynth.models.table_rules import allowed_pairs
from fedsynth.models.table_survey import Survey
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.local import LocalGaussian, LocalRecords
from fedsynth.privacy.mechanism import Mechanism
from fedsynth.privacy.none import NoPrivacy
from fedsynth.recipes.settings import check_ranges, setting
from fedsynth.recipes.sharing import Sharing
from fedsynth.recipes.surveyed import Asked, Counting, Surveyed
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.training.history_sums import HistorySums
from fedsynth.training.mixture_sums import MixtureSums
from fedsynth.training.table_sums import TableSums
from fedsynth.transport.registry import transport_named

_BITS = 31
_SINGLE_ROUNDS = 0.4  # of all rounds, at most: they ask for single columns where noise hides them
_ON_GRIDS = 4  # of the cells of a round, one part are for numbers one by one
FEWEST_STEPS = 4  # that a record adds to a table: fewer lose much by rounding down
HOMES = {"question": Home.SERVER, "answer": Home.SHARED, "fitted": Home.SERVER}


@dataclass(frozen=True)
class Asking:
    """The questions of each round."""

    rounds: int = setting(
        10, "rounds; each is one noisy sum and has the same share of the budget", 2, role="rounds"
    )
    pair_rounds: int = setting(3, "rounds, after the first, that ask for all pairs of columns", 1)
    most_values: int = setting(32, "values that a column keeps when rare ones are merged", 2, 1000)
    most_cells: int = setting(1_000_000, "cells of all tables of a round together", 100)
    label_weight: float = setting(
        0.0, "weight of tables with the label, others have 1 (0: 3 for clients, 2 for records)", 0.0, 100
    )

    def __post_init__(self) -> None:
        check_ranges(self)

    def weight_of_label(self, unit: str) -> float:
        """The weight of tables with the label: where clients are protected, noise hides more of what it goes with."""
        return self.label_weight or (2.0 if unit == "record" else 3.0)


@dataclass(frozen=True)
class Weighing:
    """The weight of a client with several rows."""

    mean_over: str = setting(
        "either",
        "what weighs alike: rows, as far as the bound on a client lets them; clients; or rows if that has less noise",
        choices=("either", "rows", "clients"),
    )

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class Fitting:
    """How large the fitted model may be, and how smooth."""

    tree_cells: int = setting(
        400_000, "cells of the junction tree: more fits more pairs, and takes longer", 1000
    )
    smoothness: float = setting(0.03, "weight of entropy beside the squared error, for each row", 1e-9)

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class CountPrivacy:
    """The noise of each round's sum."""

    noise_multiplier: float = setting(
        0.0, "noise over the norm of an answer; calibrated from --epsilon", 0.0, role="noise"
    )
    most_records: int = setting(
        1_000_000, "records of all sites together: more would leave the ring (unit record)", 1, 100_000_000
    )

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class Learning:
    """Turns the rounds' sums into the next question, and at the end into the distribution."""

    plan: Asked
    sums: TableSums
    noise: float  # standard deviation of each number of the mean
    surveyed: Callable[[Any, tuple[Answer, ...]], Surveyed] = Survey

    @property
    def form(self) -> QuestionForm:
        """How questions are written."""
        return self.sums.form

    def first(self, parts: dict[str, Tensor], rng: Rng) -> dict[str, Tensor]:
        """The parts with the first question, which the schema alone decides."""
        return {**parts, "question": self.form.write(self.surveyed(self.plan, ()).following())}

    def __call__(self, state: ServerState, mean: Tensor, rng: Rng) -> ServerState:
        """The state after this answer, with the next question."""
        earlier = state.memory.get("questions", torch.empty(0, self.form.length))
        answers = state.memory.get("answers", torch.empty(0, self.form.most_cells, dtype=torch.float64))
        questions = torch.cat([earlier, state.parts["question"][None]])
        answers = torch.cat([answers, mean[None].double()])
        state = replace(state, memory={"questions": questions, "answers": answers})
        if len(answers) >= self.plan.rounds:
            return state
        following = self.form.write(self.survey(questions, answers).following())
        return replace(state, parts={**state.parts, "question": following})

    def finish(self, state: ServerState) -> ServerState:
        """The state with the distribution that all answers so far say."""
        survey = self.survey(state.memory["questions"], state.memory["answers"])
        fitted = Distribution(
            *survey.fitted(),
            survey.maps,
            survey.shares,
            survey.partners,
            tuple(survey.row_counts),
            survey.spikes,
        )
        state = replace(state, parts={**state.parts, "fitted": fitted.pack()})
        if self.plan.label is None:
            return state
        balance = torch.from_numpy(fitted.marginal(self.plan.label)).float()
        return state.with_balance(balance / balance.sum())

    def survey(self, questions: Tensor, answers: Tensor) -> Surveyed:
        """All that was asked and answered."""
        known = []
        for written, values in zip(questions, answers, strict=True):
            question = self.form.read(written)
            cells = values.numpy()[: question.cells]
            about = values.numpy()[self.form.table_cells :] if self.form.about else None
            known.append(Answer(question, cells, self.noise, self.sums.scale(question), about))
        return self.surveyed(self.plan, tuple(known))


def marginals(
    task: Task,
    asking: Asking = Asking(),
    fitting: Fitting = Fitting(),
    privacy: CountPrivacy = CountPrivacy(),
    weighing: Weighing = Weighing(),
    sharing: Sharing = Sharing(),
) -> Algorithm:
    """Count which values occur together, under noise, and fit a distribution to the counts: for tables.

    A client sends, for each table that is asked for, its rows' counts in the cells: one vector of bounded norm a
    round. First single columns, then all pairs, then those pairs again that matter most; what is asked next is decided
    from noisy answers alone. The server fits a graphical model to all answers (Private-PGM).
    """
    if task.kind != "table":
        raise Incompatible(f"kind={task.kind}: marginals counts the values of tables")
    most_cells = asking.most_cells
    room = min(most_cells // _ON_GRIDS, most_cells - sum(TableDomain(task.schema).sizes))
    domain = TableDomain(task.schema, spikes=open_spikes(task.schema, room))
    sizes = domain.sizes
    unit = task.unit if task.private else "client"
    plan = Plan(
        sizes,
        domain.ordered,
        domain.label,
        asking.rounds,
        min(asking.pair_rounds, asking.rounds - 1),
        asking.most_values,
        max(most_cells, sum(sizes)),
        len(sizes) ** 2,
        fitting.tree_cells,
        asking.weight_of_label(unit),
        fitting.smoothness * task.clients,
        possible=allowed_pairs(domain),
        single_rounds=max(1, int(_SINGLE_ROUNDS * asking.rounds)),
        smooth=True,
        spiked=spiked_columns(domain),
    )
    about = ClientCells() if weighing.mean_over != "clients" and unit == "client" else None
    cells = max(sum(sizes) + sum(domain.grids), plan.pair_cells)
    form = QuestionForm(
        sizes,
        len(sizes) + len(plan.pairs) + len(plan.spiked),
        cells + (about.size if about else 0),
        about,
        domain.grids,
        tuple(map(len, domain.spikes)),
    )
    mechanism, noise = count_mechanism(task, privacy, form.most_cells, sharing)
    sums = TableSums(domain, form, mechanism, unit)
    plan = _within_grid(
        sums,
        replace(
            plan,
            most_cells=form.table_cells,
            about=about,
            rows_always=about is not None and weighing.mean_over == "rows",
        ),
    )
    if unit == "client":  # how many records there are is not public
        plan = _unblurred(plan, sums, noise / task.clients)
    learning = Learning(plan, sums, noise / task.clients)
    return counted(
        "marginals",
        task,
        asking.rounds,
        MarginalModel(domain, form),
        sums,
        learning,
        (*_left_out(plan), *_weighed(unit, weighing.mean_over)),
    )


def counted(
    name: str,
    task: Task,
    rounds: int,
    model: Model,
    sums: TableSums | HistorySums | MixtureSums,
    learning: Counting,
    caveats: tuple[str, ...],
) -> Algorithm:
    """Everybody answers each round's question by sums over rows; the server learns the next one from the answer."""
    return Algorithm(
        name=name,
        model=model,
        homes=HOMES,
        plan=(),
        mechanism=sums.mechanism,
        schedule=Everyone(task.clients, "none", count_adjacency(task)),
        server=Momentum(),
        rounds=rounds,
        transport=transport_named(task.transport if task.private else "clear"),
        caveats=caveats,
        loss_share=0.0,
        record_sums=sums,
        warm_start=learning.first,
        learn=learning,
        finish=learning.finish,
    )


def count_adjacency(task: Task) -> str:
    """Neighbors: who hides its own message may have any other rows; that a client is there no masked sum hides."""
    if task.trust == "local" and task.unit == "client":
        return "replace-one"
    return "zero-out" if task.trust == "distributed" and task.unit == "client" else "add-remove"


def _unblurred(plan: Plan, sums: TableSums, noise: float) -> Plan:
    """The plan that asks for numbers one by one only where one is seen that has as much as a run: noise is public."""
    question = Survey(plan, ()).following()
    deviations = dict(zip(question.tables, noise / sums.scale(question), strict=True))
    at_least = {column: of.least(deviations[column + 2 * len(plan.sizes),]) for column, of in plan.spiked}
    return replace(
        plan, blurred=frozenset(column for column, least in at_least.items() if least > 1 / plan.values)
    )


def _within_grid(sums: TableSums, plan: Plan) -> Plan:
    """The plan with as many pairs as a record has grid steps for; refused where the label's alone are too many."""
    while True:
        sizes = [np.minimum(np.arange(size), plan.values + 1) for size in plan.sizes]
        shares = sums.scale(plan.question(tuple(sizes), plan.pairs or [(0,)]))
        if shares.min() * sums.steps >= FEWEST_STEPS:
            return plan
        if len(plan.pairs) < len(plan.sizes):
            raise Incompatible(
                f"{len(plan.pairs)} pairs of columns: a record has no grid step left for some; set most_records lower"
            )
        plan = replace(plan, most_tables=len(plan.pairs) * 3 // 4)


def _left_out(plan: Plan) -> tuple[str, ...]:
    """Return a caveat where pairs are not asked for."""
    every = len(plan.sizes) * (len(plan.sizes) - 1) // 2
    if len(plan.pairs) == every:
        return ()
    return (
        f"{every - len(plan.pairs):,} of {every:,} pairs of columns are not counted, because {plan.most_cells:,} cells "
        "per round do not hold them all: how such columns relate is known only through others that both relate to.",
    )


def _weighed(unit: str, mean_over: str) -> tuple[str, ...]:
    """Which mean the shares are."""
    by_rows = "all rows count equally, except that clients with unusually many rows count for less"
    by_clients = "clients count equally in the synthetic data, however many rows each has"
    texts = {
        "rows": f"In the synthetic data, {by_rows}.",
        "clients": f"All {by_clients}.",
        "either": f"All {by_clients}; or, where that needs less noise, {by_rows}.",
    }
    return () if unit == "record" else (texts[mean_over],)


def count_mechanism(
    task: Task, privacy: CountPrivacy, cells: int, sharing: Sharing, *, whole: bool = False
) -> tuple[Mechanism, float]:
    """Who adds the noise, and the standard deviation of each number of the sum; `whole`: clients send grid steps."""
    noise, clip = privacy.noise_multiplier, Clip(1.0)
    if not task.private:
        return NoPrivacy(), 0.0
    if task.trust == "local":
        own = LocalRecords if task.unit == "record" else LocalGaussian
        return own(clip, noise), noise * math.sqrt(task.clients)
    if task.trust == "central":
        return CentralGaussian(clip, noise, task.unit), noise
    by_record = task.unit == "record"
    mechanism = DistributedGaussian(
        clip,
        noise,
        cells,
        sharing.parties(task),
        contributions=privacy.most_records if by_record else task.clients,
        bits=sharing.bits or _BITS,
        rotate=False,
        unit=task.unit,
        whole=whole or by_record,
    )
    return mechanism, mechanism.share * math.sqrt(mechanism.parties.count)
