"""Canaries in noisy sums of table counts: units whose rows fall into cells of their own in every table.

The recipe's own sums place and weigh the rows, its own mechanism clips them and adds the noise, and its own loop and
transport open the sum. Only the table and the question are others: any two of three columns tell which canary a row
is, and all pairs of columns are asked for in every round, so that a canary sends the most that it may.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedsynth.assess.audit.canary import CanaryGame, CanaryObservations, Watched, log_likelihood, unpaid
from fedsynth.data.clients import Clients
from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.loop import run
from fedsynth.federation.schedule import Everyone
from fedsynth.federation.state import ServerState
from fedsynth.models.marginals import MarginalModel
from fedsynth.models.model import Model
from fedsynth.models.table_domain import TableDomain
from fedsynth.models.table_question import Question, QuestionForm, unmerged
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.mechanism import Unit
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.training.table_sums import TableSums
from fedsynth.transport.ring import Parties

_TABLES, _WEIGHTS = ((0, 1), (0, 2), (1, 2)), (1.0, 2.0, 2.0)
_CLIENT_ROWS = 3  # alike: a client must weigh as one however many rows it has


def watch_tables(game: CanaryGame) -> CanaryObservations:
    """Run all rounds with canary units, each in or out by a coin; each client is a canary, or each record.

    All parties arrive.
    """
    inside = game.rng.at("coins").uniforms(game.canaries) > 0.5
    played, sums, question = counting(game.algorithm, game.canaries)
    data = _dealt(inside, played.schedule.clients, sums.domain, by_client=sums.unit == "client")
    places = question.places(canary_codes(np.arange(game.canaries), question.sizes[0])).numpy()
    sent = watch_sums(game, played, data)
    return CanaryObservations(
        inside,
        np.sum(
            [log_likelihood(one[places] @ question.scale, game.event, swapped=False) for one in sent], axis=0
        ),
    )


def watch_sums(game: CanaryGame, played: Algorithm, data: Clients) -> list[np.ndarray]:
    """Return the sums opened in the rounds of a game whose algorithm is its own and sums up rows."""
    watched, rng = Watched(played.mechanism), game.rng
    copy = replace(played, mechanism=watched)
    link, start = InProcess(data, rng.at("train")), copy.init(rng.at("init"))
    run(copy, link, start, rng.at("loop"), unpaid, game.counter(copy.rounds), copy.rounds)
    return watched.released


def counting(algorithm: Algorithm, canaries: int) -> tuple[Algorithm, TableSums, Question]:
    """The algorithm with its own noise, clip and rounds, asking each time for tables with a cell for each canary."""
    sums = algorithm.record_sums
    assert isinstance(sums, TableSums)
    base = max(2, math.ceil(math.sqrt(canaries)))
    values = tuple(str(value) for value in range(base))
    names = ("first", "second", "label")
    columns = tuple(Column(name, "categorical", categories=values) for name in names)
    domain = TableDomain(Schema(columns=columns, label="label"))
    question = Question(unmerged(domain.sizes), _TABLES, _WEIGHTS)
    form = QuestionForm(domain.sizes, len(_TABLES), question.cells)
    model = MarginalModel(domain, form)
    game = asked_again(algorithm, canaries, model, form.write(question), form.most_cells, sums.unit)
    counted = replace(sums, domain=domain, form=form, mechanism=game.mechanism)
    return replace(game, record_sums=counted), counted, question


def asked_again(
    algorithm: Algorithm, canaries: int, model: Model, question: Tensor, cells: int, unit: Unit
) -> Algorithm:
    """The algorithm with its own noise, clip and rounds, over another model that is asked one question each time."""
    mechanism, schedule = algorithm.mechanism, algorithm.schedule
    assert isinstance(schedule, Everyone)
    local = mechanism.release is not None and mechanism.release.trust == "local"
    of_records = 1 if local else schedule.clients  # a site that hides its own sum is attacked by itself
    clients = canaries if unit == "client" else of_records
    if isinstance(mechanism, DistributedGaussian):
        units = max(mechanism.contributions, canaries)
        parties = Parties(clients, clients, largest=0)
        mechanism = replace(mechanism, dim=cells, parties=parties, contributions=units)

    def first(parts: dict[str, Tensor], rng: Rng) -> dict[str, Tensor]:
        return {**parts, "question": question}

    def again(state: ServerState, mean: Tensor, rng: Rng) -> ServerState:
        return state

    return replace(
        algorithm,
        model=model,
        mechanism=mechanism,
        schedule=replace(schedule, clients=clients),
        transport=algorithm.transport.fitted(mechanism.wire(cells), clients),
        warm_start=first,
        learn=again,
        finish=None,
    )


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
