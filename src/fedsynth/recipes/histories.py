"""Linked tables from noisy sums of counts: persons, first rows, steps from row to row, each a view that is counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.histories import Histories, View
from fedsynth.data.linked_tables import Linked
from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.state import ServerState
from fedsynth.models.distribution import Distribution
from fedsynth.models.histories import HistoryModel, pack
from fedsynth.models.table_answer import Answer
from fedsynth.models.table_plan import Plan
from fedsynth.models.table_question import Columns, QuestionForm
from fedsynth.models.table_survey import Survey
from fedsynth.recipes.marginals import (
    FEWEST_STEPS,
    Asking,
    CountPrivacy,
    Fitting,
    count_mechanism,
    counted,
)
from fedsynth.recipes.sharing import Sharing
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.training.history_sums import HistorySums

_ROW = 2.0  # weight of tables of columns that are drawn together
_COUNT = 3.0  # weight of how many children there are
_CONTEXT = 0.5  # weight of tables of columns that are known when a row is drawn
_CLEAR = 0.01  # of a column's rows: noise beyond it hides its values, and single columns are asked for again


def plans(histories: Histories, asking: Asking, fitting: Fitting, persons: int) -> tuple[Plan, ...]:
    """The questions to each view; the cells of a round are shared by how many a view could use."""
    wanted = [_plan(view, asking, fitting, persons, 10**9) for view in histories.views]
    needs = [max(sum(plan.sizes), plan.pair_cells) for plan in wanted]
    share = min(1.0, asking.most_cells / sum(needs))
    return tuple(
        _plan(view, asking, fitting, persons, max(sum(plan.sizes), int(need * share)))
        for view, plan, need in zip(histories.views, wanted, needs, strict=True)
    )


def opening_rounds(asking: Asking, noise: float, of_views: Sequence[Plan]) -> int:
    """How many rounds ask for single columns: one where noise lets values be seen, else up to half of them."""
    columns = sum(len(plan.sizes) for plan in of_views)
    needed = math.ceil(columns * (noise / _CLEAR) ** 2)
    return max(1, min(needed, asking.rounds // 2))


def _plan(view: View, asking: Asking, fitting: Fitting, persons: int, cells: int) -> Plan:
    sizes = tuple(axis.size for axis in view.axes)
    weights: dict[Columns, float] = dict.fromkeys(combinations(range(len(view.known)), 2), _CONTEXT)
    weights |= dict.fromkeys(combinations(range(len(view.known), len(sizes)), 2), _ROW)
    weights |= dict.fromkeys(view.steps, asking.weight_of_label("client"))
    counts = tuple(place for place, column in enumerate(view.columns) if column in view.counts)
    weights |= {(place,): _COUNT for place in counts}
    return Plan(
        sizes,
        tuple(axis.ordered for axis in view.axes),
        None,
        asking.rounds,
        min(asking.pair_rounds, asking.rounds - 1),
        asking.most_values,
        cells,
        len(sizes) ** 2,
        fitting.tree_cells,
        1.0,
        fitting.smoothness * persons,
        tuple(weights.items()),
        counts=counts,
        most_rows=1.0,
    )


def form_of(plan: Plan) -> QuestionForm:
    """How a view's questions are written."""
    return QuestionForm(plan.sizes, len(plan.sizes) + len(plan.pairs), max(sum(plan.sizes), plan.pair_cells))


def histories(
    task: Task,
    asking: Asking = Asking(),
    fitting: Fitting = Fitting(),
    privacy: CountPrivacy = CountPrivacy(),
    sharing: Sharing = Sharing(),
) -> Algorithm:
    """Count, under noise, how linked tables relate: persons, first rows, steps to the next, children of a row.

    A person sends one vector of bounded norm a round, whatever the number of its rows: in each view of the tables the
    mean over its rows. What is asked next is decided from noisy answers alone. The server fits a graphical model to
    each view, and histories are drawn through them, row after row.
    """
    linked = Linked(task.schema)
    of_views = plans(linked.histories, asking, fitting, task.clients)
    forms = tuple(map(form_of, of_views))
    cells = sum(form.most_cells for form in forms)
    mechanism, noise = count_mechanism(task, privacy, cells, sharing, whole=True)
    sums = HistorySums(forms, mechanism)
    _check_grid(sums, of_views)
    opening = opening_rounds(asking, noise / task.clients, of_views)
    later = asking.rounds - opening
    of_views = tuple(
        replace(plan, rounds=1 + later, pair_rounds=min(plan.pair_rounds, later)) for plan in of_views
    )
    learning = HistoryLearning(of_views, sums, noise / task.clients, opening)
    model = HistoryModel(linked, sum(form.length for form in forms), cells)
    return counted("histories", task, asking.rounds, model, sums, learning, _bounded(linked))


def _check_grid(sums: HistorySums, of_views: Sequence[Plan]) -> None:
    """Refuse so many persons that the grid of the noise has no steps left for some table."""
    most = [
        plan.question(
            tuple(np.minimum(np.arange(size), plan.values + 1) for size in plan.sizes), plan.pairs or [(0,)]
        )
        for plan in of_views
    ]
    least = min(float(scale.min()) for scale in sums.scales(most)) / sums.step
    if least < FEWEST_STEPS:
        raise Incompatible(
            f"{sum(len(question.tables) for question in most)} tables: a person has no grid step left for some; "
            "leave columns out, or let fewer persons take part"
        )


def _bounded(linked: Linked) -> tuple[str, ...]:
    """Say what a reader must know of rows that do not count."""
    bounds = [f"{table.most} rows of {table.name}" for table in linked.tables.tables if table.parent]
    return (
        f"At most {', '.join(bounds)} count for each row that they belong to; further ones are left out.",
    )


@dataclass(frozen=True)
class HistoryLearning:
    """The server's use of the rounds' sums: the next questions, and at the end the distributions."""

    plans: tuple[Plan, ...]
    sums: HistorySums
    noise: float  # standard deviation of each number of the mean
    opening: int = 1  # rounds that ask for single columns: their mean is one answer

    def first(self, parts: dict[str, Tensor], rng: Rng) -> dict[str, Tensor]:
        """The parts with the first questions, which the schema alone decides."""
        return {**parts, "question": self._written([Survey(plan, ()) for plan in self.plans])}

    def __call__(self, state: ServerState, mean: Tensor, rng: Rng) -> ServerState:
        """The state after this answer, with the next questions."""
        earlier = state.memory.get("questions", torch.empty(0, len(state.parts["question"])))
        answers = state.memory.get("answers", torch.empty(0, self.sums.cells, dtype=torch.float64))
        questions = torch.cat([earlier, state.parts["question"][None]])
        answers = torch.cat([answers, mean[None].double()])
        state = replace(state, memory={"questions": questions, "answers": answers})
        if not self.opening <= len(answers) < self.opening + self.plans[0].rounds - 1:
            return state
        following = self._written(self.surveys(questions, answers))
        return replace(state, parts={**state.parts, "question": following})

    def finish(self, state: ServerState) -> ServerState:
        """The state with the distributions that all answers so far say."""
        surveys = self.surveys(state.memory["questions"], state.memory["answers"])
        fitted = [Distribution(*one.fitted(), one.maps, one.shares, one.partners) for one in surveys]
        return replace(state, parts={**state.parts, "fitted": pack(fitted)})

    def surveys(self, questions: Tensor, answers: Tensor) -> list[Survey]:
        """All that was asked of each view, and answered."""
        known: list[list[Answer]] = [[] for _ in self.plans]
        opened = min(self.opening, len(answers))
        firsts = (questions[0], answers[:opened].mean(0), self.noise / math.sqrt(opened))
        others = zip(questions[opened:], answers[opened:], strict=True)
        for written, values, noise in (firsts, *((*one, self.noise) for one in others)):
            round_questions = self.sums.read(written)
            scales = self.sums.scales(round_questions)
            views = zip(known, round_questions, scales, self.sums.starts, strict=True)
            for answered, question, scale, start in views:
                cells = values.numpy()[start : start + question.cells]
                answered.append(Answer(question, cells, noise, scale))
        return [Survey(plan, tuple(answered)) for plan, answered in zip(self.plans, known, strict=True)]

    def _written(self, surveys: list[Survey]) -> Tensor:
        return torch.cat(
            [form.write(survey.following()) for form, survey in zip(self.sums.forms, surveys, strict=True)]
        )
