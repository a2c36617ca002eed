"""Canaries: made-up clients that send the worst they may, each along a direction of its own, in or out by a coin.

They go through the code that real clients go through: the recipe's own schedule draws them, its own mechanism
(or DP-SGD rule) clips them and adds the noise, its own loop adds them up. What is watched is what is released in
each round, so that an audit sees all that the claim is about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import torch
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent
from torch import Tensor

from fedsynth.data.clients import Clients
from fedsynth.data.modality import modality_of
from fedsynth.data.schema import Schema
from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm, Job
from fedsynth.federation.link import Arrival
from fedsynth.federation.loop import run
from fedsynth.federation.state import ServerState
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.mechanism import Mechanism, Release, State
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.transport.wire import Wire

LOUD = 10.0  # times the clip: what a canary tries to send
_ROWS = 20  # of each ordinary client
_CHUNK_BYTES = 4 * 2**20
Tell = Callable[[int, int], None]  # rounds that are done, and rounds in all


@dataclass(frozen=True)
class CanaryObservations:
    """The observations of an audit: which canaries were in [canaries], and how strongly the releases speak for each.

    A score above 0 says "in". Those of `runs` trainings, equally many of each, follow one another.
    """

    inside: np.ndarray
    scores: np.ndarray
    runs: int = 1

    @property
    def one_run(self) -> CanaryObservations:
        """The observations of the first training alone."""
        first = len(self.inside) // self.runs
        return CanaryObservations(self.inside[:first], self.scores[:first])


def log_likelihood(released: np.ndarray, event: DpEvent, swapped: bool) -> np.ndarray:
    """How much likelier a coordinate's value is with its canary than without: the best possible attack on it.

    `released` is in units of what a canary sends. `swapped`: without it, another takes its place and sends the
    opposite.
    """
    rate, noise = rate_and_noise(event)

    def with_one(sign: float) -> np.ndarray:
        return np.logaddexp(
            np.log1p(-rate) if rate < 1 else -np.inf, np.log(rate) + _ratio(sign * released, noise)
        )

    return with_one(1.0) - (with_one(-1.0) if swapped else 0.0)


def _ratio(released: np.ndarray, noise: float) -> np.ndarray:
    return np.asarray((2.0 * released - 1.0) / (2.0 * noise**2))


def rate_and_noise(event: DpEvent) -> tuple[float, float]:
    """The chance that a unit is drawn for a release, and the noise multiplier."""
    rate = 1.0
    if isinstance(event, PoissonSampledDpEvent):
        rate, event = event.sampling_probability, event.event
    elif isinstance(event, SampledWithoutReplacementDpEvent):
        rate, event = event.sample_size / event.source_dataset_size, event.event
    if not isinstance(event, GaussianDpEvent):
        raise Incompatible(
            f"{type(event).__name__}: the audit plays against Gaussian noise on sums; nothing else is known to it"
        )
    return rate, event.noise_multiplier


@dataclass(frozen=True)
class Watched:
    """A mechanism that works as it always does, while every sum that leaves it is written down."""

    inner: Mechanism
    released: list[np.ndarray] = field(default_factory=list)

    @property
    def release(self) -> Release | None:
        """As the mechanism says."""
        return self.inner.release

    def wire(self, dim: int) -> Wire:
        """As the mechanism says."""
        return self.inner.wire(dim)

    def init(self) -> State:
        """As the mechanism says."""
        return self.inner.init()

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """As the mechanism does."""
        return self.inner.privatize(x, state, rng, ids)

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The mechanism's estimate, written down as the noisy sum."""
        mean, after = self.inner.estimate(total, denominator, state, rng)
        drawn = getattr(
            self.inner, "coin", 1.0
        )  # the share that contributes, where clients draw by themselves
        self.released.append((mean * denominator * drawn).double().cpu().numpy())
        return mean, after


@dataclass(frozen=True)
class Directions:
    """Where canaries point: canary j at the j-th number of each block of the clip that has room for all of them.

    Each block is clipped by itself, so that a canary must fill several to send the most that it may. `shares` are the
    blocks' fractions of the clip.
    """

    starts: tuple[int, ...]
    shares: tuple[float, ...]

    @classmethod
    def of(cls, blocks: Sequence[tuple[int, float]], dim: int, canaries: int) -> Directions:
        """The directions in contributions of `dim` numbers; without blocks, or room in them, one number each."""
        sizes = [size for size, _ in blocks]
        starts = np.concatenate([[0], np.cumsum(sizes)])[: len(blocks)]
        roomy = [
            (int(at), share) for at, (size, share) in zip(starts, blocks, strict=True) if size >= canaries
        ]
        chosen = roomy or [(0, 1.0)]
        return cls(tuple(at for at, _ in chosen), tuple(share for _, share in chosen))

    def vectors(self, ids: np.ndarray, dim: int, height: float) -> Tensor:
        """The messages that these canaries try to send [canaries, dim]."""
        attempt, rows = torch.zeros(len(ids), dim), torch.arange(len(ids))
        for start in self.starts:
            attempt[rows, start + torch.from_numpy(ids)] = height
        return attempt

    def project(self, released: np.ndarray, canaries: int) -> np.ndarray:
        """The released sum along each canary's direction: its noise is that of one number."""
        parts = [
            share * released[at : at + canaries] for at, share in zip(self.starts, self.shares, strict=True)
        ]
        return np.asarray(np.sum(parts, axis=0) / np.linalg.norm(self.shares))


class CanaryLink:
    """Clients 0, 1, ... are canaries along directions 0, 1, ...; the others train on their rows as always.

    `height` is what a canary tries to send. Where `swapped`, a canary that is out sends the opposite, as whoever
    takes its place might; otherwise it contributes nothing.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        inner: InProcess,
        inside: np.ndarray,
        directions: Directions,
        height: float,
        swapped: bool,
        rng: Rng,
    ) -> None:
        self._algorithm, self._inner, self._inside = algorithm, inner, inside
        self._directions, self._height, self._swapped, self._rng = directions, height, swapped, rng
        self._queue: deque[tuple[np.ndarray, ServerState]] = deque()

    def start(self, job: Job, ids: np.ndarray, state: ServerState) -> None:
        """Queue canaries in small stacks, and hand the others on."""
        canaries, others = ids[ids < len(self._inside)], ids[ids >= len(self._inside)]
        stack = max(1, _CHUNK_BYTES // (4 * job.wire.dim))
        self._queue.extend((canaries[i : i + stack], state) for i in range(0, len(canaries), stack))
        if len(others):
            self._inner.start(job, others, state)

    def next(self) -> Arrival:
        """The next stack of canaries, then the others."""
        if not self._queue:
            return self._inner.next()
        ids, state = self._queue.popleft()
        messages = self._messages(ids, state)
        return Arrival(ids, messages, state.version, messages.nbytes)

    def _messages(self, ids: np.ndarray, state: ServerState) -> Tensor:
        """The canaries' messages, after the mechanism's own half at the client."""
        algorithm = self._algorithm
        signs = np.where(self._inside[ids], 1.0, -1.0 if self._swapped else 0.0)
        attempt = self._directions.vectors(ids, algorithm.dim, self._height)
        attempt *= torch.from_numpy(signs).to(attempt)[:, None]
        stream = self._rng.at("canary", state.version)
        return algorithm.mechanism.privatize(attempt, state.mechanism, stream, ids)

    def absent(self, *, for_good: bool = False) -> np.ndarray:
        """Nobody: it is for rounds."""
        return np.empty(0, dtype=np.int64)

    def commit(self) -> None:
        """The others may remember."""
        self._inner.commit()


def _clip_of(algorithm: Algorithm) -> Clip:
    clip: Clip | None = getattr(algorithm.mechanism, "clip", None)
    if clip is None:
        raise Incompatible(
            f"{algorithm.name}: its mechanism has no clip, so there is no worst that a client may send"
        )
    return clip


@dataclass(frozen=True)
class CanaryGame:
    """Trainings in which so many canaries try to be found; `event` is the claimed cost of a round or a step.

    The attacker goes by `event`, not by the noise that was really added.
    """

    algorithm: Algorithm
    canaries: int
    event: DpEvent
    rng: Rng
    runs: int = 1
    tell: Tell | None = None

    def of_run(self, number: int) -> CanaryGame:
        """One training of its own."""
        return replace(self, runs=1, rng=self.rng.at("run", number))

    def counter(self, rounds: int) -> Callable[..., None]:
        """Return what is called after each of so many rounds."""
        done = count(1)

        def after_round(*_: object) -> None:
            if self.tell:
                self.tell(next(done), rounds)

        return after_round


def watch_clients(game: CanaryGame, schema: Schema) -> CanaryObservations:
    """Whole federations with canary clients, the other clients training on made-up rows."""
    after_round = game.counter(game.runs * game.algorithm.rounds)
    return together([_one_federation(game.of_run(n), schema, after_round) for n in range(game.runs)])


def together(trainings: Sequence[CanaryObservations]) -> CanaryObservations:
    """Join the observations of several trainings with equally many canaries."""
    return CanaryObservations(
        np.concatenate([one.inside for one in trainings]),
        np.concatenate([one.scores for one in trainings]),
        len(trainings),
    )


def _one_federation(game: CanaryGame, schema: Schema, after_round: Callable[..., None]) -> CanaryObservations:
    algorithm, rng = game.algorithm, game.rng
    clients = algorithm.schedule.clients
    if algorithm.schedule.buffered:
        raise Incompatible(
            f"{algorithm.name}: canaries are sent in rounds, and a buffer has none; set buffer=0"
        )
    canaries = min(game.canaries, clients, algorithm.dim - 1)
    inside = rng.at("coins").uniforms(canaries) > 0.5
    swapped = algorithm.schedule.adjacency == "replace-one"
    watched = Watched(algorithm.mechanism)
    copy = replace(algorithm, mechanism=watched)
    rows = made_up(schema, clients - canaries, canaries, rng.at("rows"))
    clip = _clip_of(algorithm)
    directions = Directions.of(clip.blocks, algorithm.dim, canaries)
    link = CanaryLink(
        copy, InProcess(rows, rng.at("train")), inside, directions, LOUD * clip.bound, swapped, rng
    )
    run(copy, link, copy.init(rng.at("init")), rng.at("loop"), unpaid, after_round, copy.rounds)
    scores = np.zeros(canaries)
    for released in watched.released:
        scores += log_likelihood(directions.project(released, canaries) / clip.bound, game.event, swapped)
    return CanaryObservations(inside, scores)


def unpaid(*_: object) -> None:
    """Made-up rows cost nobody anything."""


def made_up(schema: Schema, clients: int, empty: int, rng: Rng) -> Clients:
    """`empty` clients without rows, then `clients` with random rows that fit the schema: no real row is read."""
    count = clients * _ROWS
    draw = rng.numpy()
    classes = torch.from_numpy(draw.integers(0, max(1, len(schema.classes)), count))
    offsets = np.concatenate([np.zeros(empty, dtype=np.int64), np.arange(clients + 1) * _ROWS])
    return Clients(modality_of(schema).random(count, draw), classes, offsets)
