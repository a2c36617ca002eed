"""How a recipe would run on a budget, and what it would cost elsewhere: from the very objects that would run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, FedsynthError
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy import account
from fedsynth.privacy.mechanism import Trust, Unit
from fedsynth.recipes.budget import Target, adjacency_of, cost, fit_budget, sampling_of
from fedsynth.recipes.registry import Recipe
from fedsynth.recipes.task import Task
from fedsynth.recipes.usefulness import doubt, noise_in_mean


@dataclass(frozen=True)
class PlanPopulation:
    """Whom a plan is for, and what may be spent on each of them."""

    clients: int
    records: int
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if self.clients < 1 or self.records < self.clients:
            raise BadInput(
                f"clients={self.clients}, records={self.records}: every client has at least one record"
            )
        if not (self.epsilon > 0 and 0 < self.delta < 1):
            raise BadInput(
                f"epsilon={self.epsilon}, delta={self.delta}: epsilon is above 0, delta between 0 and 1"
            )


@dataclass(frozen=True)
class PlannedRun:
    """One way to be private. `noise_in_mean` is the noise in an averaged message, in clips: smaller is more useful."""

    recipe: str
    unit: Unit
    trust: Trust
    transport: str
    adjacency: str
    sampling: str
    clients: int
    cohort: float
    rounds: int
    noise_multiplier: float | None  # None: messages are drawn by epsilon
    noise_in_mean: float | None  # None also where noise is added within a client's training
    epsilon: float
    delta: float
    parameters: int
    projection: bool = False


@dataclass(frozen=True)
class RunPlan:
    """A run as it is planned, with what is needed to see it elsewhere; or the reason why there is none."""

    recipe: Recipe
    unit: Unit
    trust: Trust
    problem: str = ""
    doubt: str = ""  # why it will hardly be useful
    run: PlannedRun | None = None
    task: Task | None = field(default=None, repr=False)
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def projected(self, clients: int) -> PlannedRun | None:
        """The same with the same noise in the mean among other clients: what it would cost there, at a smaller delta.

        Where everybody takes part, more noise does it; where a cohort is drawn, the same cohort out of more clients.
        The share of clients whom delta leaves unprotected stays what it was.
        """
        if self.run is None or self.task is None or self.run.noise_multiplier is None:
            return None
        recipe, values, factor = self.recipe, dict(self.values), clients / self.run.clients
        if self.unit == "record":
            return None
        if self.trust == "local":
            values |= recipe.with_role("noise", self.run.noise_multiplier * math.sqrt(factor))
        elif self.run.sampling == "none":
            values |= recipe.with_role("noise", self.run.noise_multiplier * factor)
        elif not recipe.value_of("cohort", values):
            values |= recipe.with_role("rate", recipe.value_of("rate", values) / factor)
        records = None if self.task.records is None else math.ceil(self.task.records * factor)
        task = replace(self.task, clients=clients, records=records)
        algorithm = recipe.build(task, values)
        moved = _described(recipe, task, algorithm, values, self.run.delta / factor)
        return replace(moved, projection=True)


def plan_run(
    recipe: Recipe, schema: Schema, people: PlanPopulation, unit: str | None = None, trust: str | None = None
) -> RunPlan:
    """The run that spends the budget with the recipe's defaults, everything that it releases paid for."""
    whom, trusted = recipe.protection(unit, trust)
    clients = 1 if recipe.pooled else people.clients
    try:
        task = replace(recipe.task(schema, clients, unit=whom, trust=trusted), records=people.records)
        changes = recipe.with_role("records", people.records)
        target = Target(people.epsilon, people.delta)
        algorithm, values = fit_budget(recipe, task, recipe.values(changes), target)
        run = _described(recipe, task, algorithm, values, people.delta)
    except FedsynthError as error:
        return RunPlan(recipe, whom, trusted, problem=str(error))
    return RunPlan(recipe, whom, trusted, "", doubt(algorithm, task) or "", run, task, values)


def _described(
    recipe: Recipe, task: Task, algorithm: Algorithm, values: Mapping[str, Any], delta: float
) -> PlannedRun:
    """All numbers of a plan, read off the composed algorithm."""
    event, adjacency = cost(algorithm, (), delta), adjacency_of(algorithm)
    noise = recipe.value_of("noise", values)
    return PlannedRun(
        recipe.name,
        task.unit,
        task.trust,
        algorithm.transport.name,
        adjacency,
        sampling_of(algorithm),
        task.clients,
        algorithm.schedule.expected * getattr(algorithm.mechanism, "coin", 1.0),
        algorithm.rounds,
        noise,
        noise_in_mean(algorithm, task),
        account.epsilon(event, delta, adjacency=adjacency),
        delta,
        algorithm.dim - (algorithm.loss_share > 0),
    )
