"""Shadow generators: many trainings of one recipe on slightly different rows, all at once.

An attacker who knows the recipe can train it on rows of their own, with and without a target, and learn what the
difference looks like. The trainings are stacked: client k of run r is client r * clients + k of one large cohort, so
that a round of all runs is one call of the very `Algorithm` that a real run uses, its noise included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.data.clients import Clients
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.algorithm import Algorithm, Memory
from fedsynth.federation.loop import learn_balance
from fedsynth.federation.loop import run as run_rounds
from fedsynth.federation.schedule import Clock
from fedsynth.federation.state import ServerState
from fedsynth.privacy.mechanism import Charge, When
from fedsynth.recipes.budget import Target, cost, fit_budget
from fedsynth.recipes.registry import recipe_named
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.generator import Generator

_STACK_BYTES = 16 * 2**20  # of the updates of runs that train together; more is slower on a CPU
Watch = Callable[[float], None]  # told the share of the work that is done, after each round


def train_together(
    algorithm: Algorithm, runs: Sequence[Clients], rng: Rng, watch: Watch | None = None
) -> list[ServerState]:
    """Train the algorithm once on each of `runs`, stacked; each run has its own start, cohorts and noise."""
    wrong = [len(clients) for clients in runs if len(clients) != algorithm.schedule.clients]
    if wrong:
        raise BadInput(
            f"a run has {wrong[0]} clients, but {algorithm.name} was composed for {algorithm.schedule.clients}"
        )
    if algorithm.schedule.buffered:
        raise Incompatible(
            f"{algorithm.name}: runs are stacked round by round, and a buffer has no rounds; set order=together for "
            "pp_fedgan, or buffer=0 for the others"
        )
    if algorithm.mechanism.init():
        raise Incompatible(
            f"{algorithm.name}: its mechanism keeps a state of its own, which cannot be stacked; use another"
        )
    if algorithm.learn is not None:  # each run asks questions of its own
        return [_alone(algorithm, clients, rng.at("run", number)) for number, clients in enumerate(runs)]
    each = stacked_runs(algorithm)
    states: list[ServerState] = []
    for first in range(0, len(runs), each):
        group = _Group(algorithm, tuple(runs[first : first + each]), first, rng)
        step = len(group.runs) / (len(runs) * algorithm.rounds)
        states += group.train(partial(_tell, watch, first / len(runs), step))
    return states


def _alone(algorithm: Algorithm, clients: Clients, rng: Rng) -> ServerState:
    """Train one run by itself."""
    start = algorithm.init(rng.at("init"))
    link = InProcess(clients, rng)
    return run_rounds(algorithm, link, start, rng, _nothing_to_pay, _unseen, algorithm.rounds)


def _tell(watch: Watch | None, start: float, step: float, rounds: int) -> None:
    if watch:
        watch(start + step * rounds)


def stacked_runs(algorithm: Algorithm) -> int:
    """How many runs train as one stack."""
    return max(1, int(_STACK_BYTES // (4 * algorithm.dim * max(1.0, algorithm.schedule.expected))))


@dataclass(frozen=True)
class _Group:
    """Runs that are stacked; `first` is the number of the first one."""

    algorithm: Algorithm
    runs: tuple[Clients, ...]
    first: int
    rng: Rng

    def stream(self, run: int) -> Rng:
        """The randomness of one run, whatever group it is in."""
        return self.rng.at("run", self.first + run)

    def train(self, watch: Callable[[int], None]) -> list[ServerState]:
        """All rounds of all runs; `watch` is told how many rounds are done."""
        states = [self._start(run) for run in range(len(self.runs))]
        memory = self._blank(states)
        for version in range(self.algorithm.rounds):
            cohorts = [
                self.algorithm.schedule.start(Clock(version), self.stream(run))
                for run in range(len(self.runs))
            ]
            owner = np.repeat(np.arange(len(self.runs)), [len(cohort) for cohort in cohorts])
            messages = self._round(states, memory, owner, np.concatenate(cohorts).astype(np.int64), version)
            states = [
                self._step(state, messages[owner == run], run, version) for run, state in enumerate(states)
            ]
            watch(version + 1)
        return states

    def _start(self, run: int) -> ServerState:
        stream = self.stream(run)
        state = self.algorithm.init(stream.at("init"))
        return learn_balance(
            self.algorithm, InProcess(self.runs[run], stream), state, stream, _nothing_to_pay
        )

    def _blank(self, states: Sequence[ServerState]) -> Memory:
        """The memory of all clients of all runs before the first round."""
        each = self.algorithm.schedule.clients
        blanks = [self.algorithm.blank(state) for state in states]
        return {
            name: torch.stack([blank[name] for blank in blanks]).repeat_interleave(each, dim=0)
            for name in blanks[0]
        }

    @cached_property
    def _clients(self) -> Clients:
        """The clients of all runs one after the other."""
        starts = np.cumsum([0, *(clients.rows for clients in self.runs)])
        offsets = [clients.offsets[:-1] + start for clients, start in zip(self.runs, starts, strict=False)]
        return Clients(
            torch.cat([clients.x for clients in self.runs]),
            torch.cat([clients.y for clients in self.runs]),
            np.concatenate([*offsets, starts[-1:]]),
        )

    def _round(
        self, states: Sequence[ServerState], memory: Memory, owner: np.ndarray, ids: np.ndarray, version: int
    ) -> Tensor:
        """The messages of all cohorts [clients, dim]; what they remember is written into `memory`."""
        if not len(ids):
            return self.algorithm.wire.zero()[None][:0]
        each = self.algorithm.schedule.clients
        places = owner * each + ids
        parts = {
            part: torch.stack([state.parts[part] for state in states])[owner]
            for part in self.algorithm.shared
        }
        stacked = ServerState(version, {**states[0].parts, **parts})
        known = {name: value[places] for name, value in memory.items()}
        data = self._clients.gather(places)
        numbers = self.first * each + places  # a client's own randomness, whatever group it is in
        messages, kept = self.algorithm.client_round(
            stacked, known, data, numbers, self.rng.at("client", type(self.algorithm).__name__, version)
        )
        for name, value in kept.items():
            memory[name][places] = value
        return messages

    def _step(self, state: ServerState, messages: Tensor, run: int, version: int) -> ServerState:
        algorithm = self.algorithm
        total = algorithm.transport.zero(algorithm.wire)
        total = algorithm.transport.absorb(algorithm.wire, total, messages, torch.ones(len(messages)))
        return algorithm.server_round(state, total, self.stream(run).at("server", version))[0]


def _unseen(*_: object) -> None:
    """Nobody watches single rounds."""


def _nothing_to_pay(when: When, charges: list[Charge], ids: np.ndarray) -> None:
    """Shadows are trained on the attacker's own rows."""


@dataclass(frozen=True)
class Shadows:
    """Trains a recipe on each of several tables and draws as many synthetic ones: an attacker's workshop.

    Rows are dealt to `clients` at random; recipes on pooled data have one. `values` are the recipe's arguments, for
    example those of a run that is attacked. `watch` is told how far training is.
    """

    recipe: str
    schema: Schema
    values: Mapping[str, Any] = field(default_factory=dict)
    clients: int = 1
    private: bool = True
    unit: str | None = None
    trust: str | None = None
    watch: Watch | None = None

    @classmethod
    def with_budget(
        cls,
        recipe: str,
        schema: Schema,
        target: Target,
        *,
        clients: int = 1,
        values: Mapping[str, Any] | None = None,
    ) -> Shadows:
        """Shadows whose noise is calibrated to the target; record-level recipes need `records` among the values."""
        chosen = recipe_named(recipe)
        _, fitted = fit_budget(chosen, chosen.task(schema, clients), chosen.values(values or {}), target)
        return cls(recipe, schema, fitted, clients)

    @cached_property
    def algorithm(self) -> Algorithm:
        """The algorithm that the recipe composes."""
        recipe = recipe_named(self.recipe)
        return recipe.build(self.task, recipe.values(self.values))

    @property
    def task(self) -> Task:
        """The task that the recipe is composed for."""
        recipe = recipe_named(self.recipe)
        return recipe.task(self.schema, self.clients, private=self.private, unit=self.unit, trust=self.trust)

    @property
    def ceiling(self) -> Ceiling | None:
        """The ceiling that one run's noise sets an attacker who asks about one record; None without noise.

        A record more makes its client send something else: for a client-level claim that is replacing a client.
        """
        if not self.private:
            return None
        adjacency = "add-remove" if self.task.unit == "record" else "replace-one"
        return Ceiling.of_event(cost(self.algorithm), adjacency)

    def __call__(self, tables: Sequence[pd.DataFrame], rows: int, rng: Rng) -> list[pd.DataFrame]:
        """One synthetic table of `rows` rows for each table."""
        runs = [self.deal(table, rng.at("deal", number)) for number, table in enumerate(tables)]
        states = train_together(self.algorithm, runs, rng.at("train"), self.watch)
        values = recipe_named(self.recipe).values(self.values)
        synthetic = []
        for number, state in enumerate(states):
            model = self.algorithm.model
            parts = {part: state.parts[part] for part in model.generative}
            generator = Generator(self.schema, self.recipe, values, parts, state.balance, model)
            synthetic.append(generator.sample(rows, rng.at("sample", number)))
        return synthetic

    def deal(self, table: pd.DataFrame, rng: Rng) -> Clients:
        """The rows in random hands; a row more at the end changes nobody else's."""
        x, y = Table(self.schema).encode(table[list(self.schema.names)])
        owner = np.minimum((rng.uniforms(len(table)) * self.clients).astype(np.int64), self.clients - 1)
        order = torch.from_numpy(np.argsort(owner, kind="stable"))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=self.clients))])
        return Clients(x[order], y[order], offsets.astype(np.int64))
