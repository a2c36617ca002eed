"""The one loop: start clients, absorb what arrives, pay, open, step. It knows no engine and no model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedsynth.federation.algorithm import Algorithm, Job
from fedsynth.federation.link import Link
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Clock, Schedule
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import as_probabilities
from fedsynth.privacy.mechanism import Charge
from fedsynth.rng import Rng
from fedsynth.transport.transport import Transport


@dataclass(frozen=True)
class Round:
    """What a finished round looked like: a line of history.jsonl."""

    version: int
    loss: float | None  # None where no loss is released
    seconds: float
    clients: int
    dropped: int
    bytes_up: int
    bytes_down: int


# Called before a sum is opened, with the round, what it costs and the clients in it: makes the ledger line durable.
Pay = Callable[[str, list[Charge], np.ndarray], None]
Seen = Callable[[ServerState, Round], None]


def run(
    algorithm: Algorithm, link: Link, state: ServerState, rng: Rng, pay: Pay, seen: Seen, rounds: int
) -> ServerState:
    """Train until `rounds`; `pay` is called before each release, `seen` after each round."""
    while state.version < rounds:
        began = time.perf_counter()
        heard = gather(algorithm, algorithm.schedule, algorithm.transport, link, state, rng)
        pay(f"round {state.version + 1}", algorithm.charges(), heard.ids)
        opened = algorithm.transport.open(algorithm.wire, heard.total)
        state, loss = algorithm.server_round(state, opened, rng.at("server", state.version))
        link.commit(state)
        seconds = time.perf_counter() - began
        seen(
            state,
            Round(
                state.version, loss, seconds, heard.clients, heard.dropped, heard.bytes_up, heard.bytes_down
            ),
        )
    return state


class Heard(NamedTuple):
    """The sealed sum of one round; `ids` are all that were asked, because any of them may have sent something."""

    total: Tensor
    ids: np.ndarray
    clients: int
    dropped: int
    bytes_up: int
    bytes_down: int


def gather(
    job: Job, schedule: Schedule, transport: Transport, link: Link, state: ServerState, rng: Rng
) -> Heard:
    """Start this round's clients and add up what arrives; who does not arrive is left out of the sum alone."""
    total = transport.zero(job.wire)
    clock = Clock(state.version)
    ids = schedule.start(clock, rng)
    link.start(job, ids, state)
    clock = Clock(state.version, in_flight=len(ids))
    up = down = lost = 0
    while not schedule.ready(clock):
        arrival = link.next()
        weight = schedule.weigh(state.version - arrival.version)
        weights = torch.full((len(arrival.messages),), weight)
        if len(arrival.messages):
            total = transport.absorb(job.wire, total, arrival.messages, weights)
        came = len(arrival.ids)
        clock = Clock(clock.version, clock.in_flight - came - arrival.lost, clock.arrived + came)
        ids = np.union1d(ids, arrival.ids)
        up, down, lost = up + arrival.bytes_up, down + arrival.bytes_down, lost + arrival.lost
    return Heard(total, ids, clock.arrived, max(0, lost), up, down)


def ask(query: Query, link: Link, state: ServerState, rng: Rng, pay: Pay) -> Tensor:
    """The noisy answer to a one-shot query."""
    transport = query.transport
    heard = gather(query, query.schedule, transport, link, state, rng.at("query", query.what))
    pay("", query.charges(), heard.ids)
    return query.estimate(transport.open(query.wire, heard.total), rng.at("query", query.what))


def learn_balance(algorithm: Algorithm, link: Link, state: ServerState, rng: Rng, pay: Pay) -> ServerState:
    """The state with the class balance, asked of the clients under DP where it is not public.

    A query that asks for more than the balance says itself what is learned from the answer.
    """
    if algorithm.balance is None or state.balance is not None:
        return state
    answer = ask(algorithm.balance, link, state, rng, pay)
    if algorithm.balance.learn is not None:
        return algorithm.balance.learn(state, answer, rng.at("learn"))
    return state.with_balance(as_probabilities(answer))
