"""The one loop: start clients, absorb what arrives, pay, open, step. It knows no engine and no model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedsynth.federation.algorithm import Algorithm, Job
from fedsynth.federation.client_uses import ClientUses
from fedsynth.federation.link import Link
from fedsynth.federation.query import Query
from fedsynth.federation.schedule import Clock, Schedule
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import as_probabilities
from fedsynth.privacy.mechanism import Charge, When
from fedsynth.rng import Rng
from fedsynth.transport.transport import Transport

_LARGEST = 1e6  # of a parameter: no trained network has one


@dataclass(frozen=True)
class Round:
    """The record of a finished round. Whoever may not know the drawn cohort gets the first three fields alone."""

    version: int
    loss: float | None  # None where no loss is released
    seconds: float
    clients: int | None = None
    dropped: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    simulated_s: float | None = None  # since the beginning, where clients have simulated speeds


# Called before a sum is opened, with the round, what it costs and the clients in it: makes the ledger line durable.
Pay = Callable[[When, list[Charge], np.ndarray], None]
Seen = Callable[[ServerState, Round], None]


def _nothing(*_: object) -> None:
    """Nobody listens."""


def run(
    algorithm: Algorithm,
    link: Link,
    state: ServerState,
    rng: Rng,
    pay: Pay,
    seen: Seen,
    rounds: int,
    hold: Callable[[ServerState], None] = _nothing,
    tell: Callable[[str], None] = _nothing,
    ahead: Callable[[ServerState], None] = _nothing,
) -> ServerState:
    """Train until `rounds`; `pay` is called before each release, `seen` after each round.

    Where clients outlive a version, `hold` is called before they are charged, with a state that knows who is under way:
    what it makes durable, with the link's own memory, is never charged and lost. `ahead` is called with such a state
    before clients are waited for, where they charge themselves. `tell` hears why training ended early.
    """
    while state.version < rounds:
        began = time.perf_counter()
        heard = gather(algorithm, algorithm.schedule, algorithm.transport, link, state, rng, ahead)
        if heard is None:
            tell(
                f"after round {state.version}: too few clients have budget left to fill a buffer; training ends"
            )
            break
        if heard.standing is not None:
            state = replace(state, standing=heard.standing.to_tensors())
            hold(state)
        pay(When(state.version + 1), algorithm.charges(heard.clients), heard.ids)
        after, loss = algorithm.server_round(
            state, heard.total, rng.at("server", state.version), heard.weight
        )
        diverged = _diverged(after)
        if heard.standing is not None:
            standing = heard.standing.settled(heard.came, state.version)
            after = replace(after, standing=standing.to_tensors())
        if diverged:
            tell(f"round {after.version}: {diverged}; training ends with the model of round {state.version}")
            _pay_for_the_rest(algorithm, after, rounds, pay)
            break
        state = after
        link.commit()
        seconds = time.perf_counter() - began
        seen(state, _round_of(state.version, loss, seconds, heard))
    return ended(algorithm, state)


def ended(algorithm: Algorithm, state: ServerState) -> ServerState:
    """Return the state that is released when training ends with this one, early or not."""
    return algorithm.finish(state) if algorithm.finish and state.version else state


def _pay_for_the_rest(algorithm: Algorithm, state: ServerState, rounds: int, pay: Pay) -> None:
    """Charge the planned rounds that are not run: the released model says where training ends.

    Where outputs say when a run ends, only the whole plan bounds its cost, not the odometer's value at the stop.
    """
    schedule, done = algorithm.schedule, algorithm.schedule.participations(state.version)
    if schedule.buffered:
        done = int(ClientUses.from_tensors(state.standing, schedule.clients).uses.max(initial=0))
    left = {"server": rounds - state.version, "client": schedule.participations(rounds) - done}
    rest = [(charge, charge.release.count * left[charge.holder]) for charge in algorithm.charges()]
    charges = [Charge(replace(one.release, count=count), one.event) for one, count in rest if count > 0]
    if charges:
        note = (
            f"rounds {state.version + 1} to {rounds}, planned and not run: what was released ended training"
        )
        pay(When(note=note), charges, np.empty(0, dtype=np.int64))


def _diverged(state: ServerState) -> str:
    """Say how a model is broken beyond repair by further rounds; empty if it is not."""
    for name, flat in state.parts.items():
        largest = float(flat.abs().max()) if flat.numel() else 0.0
        if not largest <= _LARGEST:  # also where it is no number
            return (
                f"{name} has diverged (a parameter of {largest:g}); use a smaller learning rate, a smaller clip or "
                "more clients in a round"
            )
    return ""


class Heard(NamedTuple):
    """The sealed sum of one version; `ids` are charged: all that were asked, since any of them may have sent something.

    Where clients outlive a version, `ids` are those whose update came or was lost, and `standing` knows of the others.
    """

    total: Tensor
    ids: np.ndarray
    clients: int
    dropped: int
    bytes_up: int
    bytes_down: int
    came: np.ndarray
    weight: float = 1.0  # the mean of those in the sum
    at_s: float | None = None
    standing: ClientUses | None = None


def _round_of(version: int, loss: float | None, seconds: float, heard: Heard) -> Round:
    return Round(
        version, loss, seconds, heard.clients, heard.dropped, heard.bytes_up, heard.bytes_down, heard.at_s
    )


def gather(
    job: Job,
    schedule: Schedule,
    transport: Transport,
    link: Link,
    state: ServerState,
    rng: Rng,
    ahead: Callable[[ServerState], None] = _nothing,
) -> Heard | None:
    """Start clients and add up what arrives until the server may step; None if it waits for more than can ever come.

    Who does not arrive is left out of the sum, and of nothing else.
    """

    def started(clock: Clock, ids: np.ndarray) -> Clock:
        link.start(job, ids, state)
        clock = clock.with_started(ids)
        if clock.standing is not None:
            ahead(replace(state, standing=clock.standing.to_tensors()))
        return clock

    total = transport.zero(job.wire)
    clock = _clock(schedule, link, state)
    first = schedule.start(clock, rng)
    clock = started(clock, first)
    came: list[np.ndarray] = []
    up = down = lost = 0
    weights_of_all, at_s = 0.0, None
    while not schedule.ready(clock):
        if not clock.in_flight and not len(
            schedule.start(replace(clock, absent=link.absent(for_good=True)), rng)
        ):
            return None
        arrival = link.next()
        weight = schedule.weigh(state.version - arrival.version)
        weights = torch.full((len(arrival.messages),), weight)
        if len(arrival.messages):
            total = transport.absorb(job.wire, total, arrival.messages, weights)
        weights_of_all += weight * len(arrival.ids)
        came.append(arrival.ids)
        clock = clock.with_heard(len(arrival.ids), arrival.lost, arrival.gone, arrival.spared)
        if schedule.buffered:
            clock = replace(clock, absent=link.absent())
        up, down, lost = up + arrival.bytes_up, down + arrival.bytes_down, lost + arrival.lost
        at_s = arrival.at_s
        more = schedule.refill(clock, rng)
        if len(more):
            clock = started(clock, more)
    arrived = np.concatenate(came) if came else first[:0]
    charged = np.union1d(first, arrived)
    if clock.standing is not None:
        charged = np.concatenate([arrived, clock.standing.lost])
    weight = weights_of_all / max(1, clock.arrived) or 1.0
    return Heard(total, charged, clock.arrived, max(0, lost), up, down, arrived, weight, at_s, clock.standing)


def _clock(schedule: Schedule, link: Link, state: ServerState) -> Clock:
    """Where the federation stands when a version begins."""
    if not schedule.buffered:
        return Clock(state.version)
    standing = ClientUses.from_tensors(state.standing, schedule.clients)
    return Clock(state.version, len(standing.busy), standing=standing, absent=link.absent())


def ask(query: Query, link: Link, state: ServerState, rng: Rng, pay: Pay) -> Tensor:
    """The noisy answer to a one-shot query."""
    transport = query.transport
    heard = gather(query, query.schedule, transport, link, state, rng.at("query", query.what))
    assert heard is not None, "a query is asked of a cohort"
    pay(When(), query.charges(), heard.ids)
    answer = query.estimate(transport.open(query.wire, heard.total), rng.at("query", query.what))
    link.commit()
    return answer


def learn_balance(algorithm: Algorithm, link: Link, state: ServerState, rng: Rng, pay: Pay) -> ServerState:
    """The state with the class balance, asked of the clients under DP where it is not public.

    A query that asks for more than the balance says itself what is learned from the answer.
    """
    if algorithm.opening is None or state.balance is not None:
        return state
    return with_opening_answer(algorithm, state, ask(algorithm.opening, link, state, rng, pay), rng)


def with_opening_answer(algorithm: Algorithm, state: ServerState, answer: Tensor, rng: Rng) -> ServerState:
    """The state with what the answer to the opening question says."""
    assert algorithm.opening is not None
    if algorithm.opening.learn is not None:
        return algorithm.opening.learn(state, answer, rng.at("learn"))
    return state.with_balance(as_probabilities(answer))
