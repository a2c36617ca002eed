"""Canaries in noisy sums of table counts: units whose rows fall into cells of their own in every table.

The recipe's own sums place and weigh the rows, its own mechanism clips them and adds the noise, and its own loop and
transport open the sum. Only the table and the question are others: any two of three columns tell which canary a row
is, and all pairs of columns are asked for in every round, so that a canary sends the most that it may.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count

import numpy as np
import torch
from dp_accounting import DpEvent
from torch import Tensor

from fedsynth.assess.audit.canary import Seen, Tell, Watched, log_likelihood, unpaid
from fedsynth.data.clients import Clients
from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.loop import run
from fedsynth.federation.schedule import Everyone
from fedsynth.federation.state import ServerState
from fedsynth.models.marginals import MarginalModel
from fedsynth.models.table_domain import TableDomain
from fedsynth.models.table_question import Question, QuestionForm, unmerged
from fedsynth.privacy.distributed import DistributedGaussian, Parties
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.training.table_sums import TableSums

_TABLES, _WEIGHTS = ((0, 1), (0, 2), (1, 2)), (1.0, 2.0, 2.0)
_CLIENT_ROWS = 3  # alike: a client must weigh as one however many rows it has


def watch_tables(
    algorithm: Algorithm,
    canaries: int,
    rng: Rng,
    *,
    event: DpEvent | None = None,
    tell: Tell | None = None,
) -> Seen:
    """Run all rounds with `canaries` canary units, each in or out by a coin; each client is a canary, or each record.

    All parties arrive. `event` is the claimed cost of a round (default: what the mechanism says).
    """
    inside = rng.at("coins").uniforms(canaries) > 0.5
    game, sums, question = counting(algorithm, canaries)
    watched, done = Watched(game.mechanism), count(1)

    def after_round(*_: object) -> None:
        if tell:
            tell(next(done), game.rounds)

    copy = replace(game, mechanism=watched)
    data = _dealt(inside, game.schedule.clients, sums.domain, by_client=sums.unit == "client")
    start = copy.init(rng.at("init"))
    run(copy, InProcess(data, rng.at("train")), start, rng.at("loop"), unpaid, after_round, copy.rounds)
    claimed = event or algorithm.charges()[0].event
    places = question.places(canary_codes(np.arange(canaries), question.sizes[0])).numpy()
    scores = np.zeros(canaries)
    for released in watched.released:
        scores += log_likelihood(released[places] @ question.scale, claimed, swapped=False)
    return Seen(inside, scores)


def counting(algorithm: Algorithm, canaries: int) -> tuple[Algorithm, TableSums, Question]:
    """The algorithm with its own noise, clip and rounds, asking each time for tables with a cell for each canary."""
    sums, schedule = algorithm.record_sums, algorithm.schedule
    assert isinstance(sums, TableSums) and isinstance(schedule, Everyone)
    base = max(2, math.ceil(math.sqrt(canaries)))
    values = tuple(str(value) for value in range(base))
    names = ("first", "second", "label")
    columns = tuple(Column(name, "categorical", categories=values) for name in names)
    domain = TableDomain(Schema(columns=columns, label="label"))
    question = Question(unmerged(domain.sizes), _TABLES, _WEIGHTS)
    form = QuestionForm(domain.sizes, len(_TABLES), question.cells)
    clients = canaries if sums.unit == "client" else schedule.clients
    mechanism = sums.mechanism
    if isinstance(mechanism, DistributedGaussian):
        units = max(mechanism.contributions, canaries)
        parties = Parties(clients, clients, largest=0)
        mechanism = replace(mechanism, dim=form.most_cells, parties=parties, contributions=units)

    def first(parts: dict[str, Tensor], rng: Rng) -> dict[str, Tensor]:
        return {**parts, "question": form.write(question)}

    def again(state: ServerState, mean: Tensor, rng: Rng) -> ServerState:
        return state

    counted = replace(sums, domain=domain, form=form, mechanism=mechanism)
    game = replace(
        algorithm,
        model=MarginalModel(domain, form),
        mechanism=mechanism,
        schedule=replace(schedule, clients=clients),
        transport=algorithm.transport.fitted(mechanism.wire(form.most_cells), clients),
        record_sums=counted,
        warm_start=first,
        learn=again,
        finish=None,
    )
    return game, counted, question


def canary_codes(numbers: np.ndarray, base: int) -> Tensor:
    """The values of canaries: any two of the three tell the number."""
    first, second = np.divmod(numbers, base)
    return torch.from_numpy(np.stack([first, second, (first + second) % base], axis=1))


def _dealt(inside: np.ndarray, clients: int, domain: TableDomain, *, by_client: bool) -> Clients:
    """The rows of the canaries that are in: each at its own client, or dealt to the sites in turn."""
    numbers = np.flatnonzero(inside)
    owners = numbers if by_client else np.arange(len(numbers)) % clients
    order = np.argsort(owners, kind="stable")
    rows = _CLIENT_ROWS if by_client else 1
    codes = canary_codes(np.repeat(numbers[order], rows), domain.sizes[0])
    offsets = np.concatenate([[0], np.cumsum(rows * np.bincount(owners, minlength=clients))])
    return Clients(domain.rows(codes, Rng(0)), codes[:, -1], offsets)
