"""Canaries: participants that send the worst they may, each along a coordinate of its own, in or out by a coin.

They go through the code that real participants go through: the recipe's own schedule draws them, its own mechanism
(or DP-SGD rule) clips them and adds the noise, its own loop adds them up. What is watched is what is released in
each round, so that an audit sees all that the claim is about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count

import numpy as np
import torch
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent
from torch import Tensor, nn

from fedsynth.data.clients import Clients, Padded
from fedsynth.data.encode import ImageEncoding, TableEncoding
from fedsynth.data.schema import Schema
from fedsynth.data.text import START, UNKNOWN, TextEncoding
from fedsynth.engines.inprocess import InProcess
from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm, Job
from fedsynth.federation.link import Arrival
from fedsynth.federation.loop import run
from fedsynth.federation.state import ServerState
from fedsynth.models.model import Batch, Objective, Params, weighted_mean
from fedsynth.privacy.mechanism import Mechanism, Release, State, Wire
from fedsynth.rng import Rng
from fedsynth.training.optimizer import Slots
from fedsynth.training.plan import Phase, train

LOUD = 10.0  # times the clip: what a canary tries to send
_ROWS = 20  # of each ordinary client
_CHUNK_BYTES = 32 * 2**20
Tell = Callable[[int, int], None]  # rounds that are done, and rounds in all


@dataclass(frozen=True)
class Seen:
    """What an audit saw: which canaries were in [canaries], and how strongly the releases speak for each."""

    inside: np.ndarray
    scores: np.ndarray


def log_likelihood(released: np.ndarray, event: DpEvent, swapped: bool) -> np.ndarray:
    """How much likelier a coordinate's value is with its canary than without: the best possible attack on it.

    `released` is in units of what a canary sends. `swapped`: without it, another takes its place and sends the
    opposite.
    """
    rate, noise = _rate_and_noise(event)

    def with_one(sign: float) -> np.ndarray:
        return np.logaddexp(
            np.log1p(-rate) if rate < 1 else -np.inf, np.log(rate) + _ratio(sign * released, noise)
        )

    return with_one(1.0) - (with_one(-1.0) if swapped else 0.0)


def _ratio(released: np.ndarray, noise: float) -> np.ndarray:
    return np.asarray((2.0 * released - 1.0) / (2.0 * noise**2))


def _rate_and_noise(event: DpEvent) -> tuple[float, float]:
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
    """A mechanism that works as it always does, while every mean that leaves it is written down."""

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
        self.released.append((mean * denominator).double().cpu().numpy())
        return mean, after


class CanaryLink:
    """Clients 0, 1, ... are canaries along coordinates 0, 1, ...; the others train on their rows as always.

    `height` is what a canary tries to send. Where `swapped`, a canary that is out sends the opposite, as whoever
    takes its place might; otherwise it sends nothing.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        inner: InProcess,
        inside: np.ndarray,
        height: float,
        swapped: bool,
        rng: Rng,
    ) -> None:
        self._algorithm, self._inner, self._inside = algorithm, inner, inside
        self._height, self._swapped, self._rng = height, swapped, rng
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
        """What canaries send, through the mechanism's own half at the client."""
        algorithm, rows = self._algorithm, torch.arange(len(ids))
        inside = torch.from_numpy(self._inside[ids])
        attempt = torch.zeros(len(ids), algorithm.dim)
        attempt[rows, torch.from_numpy(ids)] = self._height
        if self._swapped:
            attempt = torch.where(inside[:, None], attempt, -attempt)
        stream = self._rng.at("canary", state.version)
        sent = algorithm.mechanism.privatize(attempt, state.mechanism, stream, ids)
        return sent if self._swapped else sent * inside[:, None]

    def absent(self, *, for_good: bool = False) -> np.ndarray:
        """Nobody: it is for rounds."""
        return np.empty(0, dtype=np.int64)

    def commit(self, state: ServerState) -> None:
        """The others may remember."""
        self._inner.commit(state)


def _bound(algorithm: Algorithm) -> float:
    clip = getattr(algorithm.mechanism, "clip", None)
    if clip is None:
        raise Incompatible(
            f"{algorithm.name}: its mechanism has no clip, so there is no worst that a client may send"
        )
    return float(clip.bound)


def watch_clients(
    algorithm: Algorithm,
    schema: Schema,
    canaries: int,
    runs: int,
    rng: Rng,
    *,
    event: DpEvent | None = None,
    tell: Tell | None = None,
) -> Seen:
    """Whole federations with `canaries` canary clients each, the other clients training on made-up rows.

    `event` is the claimed cost of a round (default: what the algorithm says): the attacker goes by it.
    """
    done = count()

    def after_round(*_: object) -> None:
        if tell:
            tell(next(done) + 1, runs * algorithm.rounds)

    seen = [
        _one_federation(algorithm, schema, canaries, rng.at("run", number), event, after_round)
        for number in range(runs)
    ]
    return Seen(np.concatenate([s.inside for s in seen]), np.concatenate([s.scores for s in seen]))


def _one_federation(
    algorithm: Algorithm,
    schema: Schema,
    canaries: int,
    rng: Rng,
    event: DpEvent | None,
    after_round: Callable[..., None],
) -> Seen:
    clients = algorithm.schedule.clients
    if algorithm.schedule.buffered:
        raise Incompatible(
            f"{algorithm.name}: canaries are sent in rounds, and a buffer has none; set buffer=0"
        )
    canaries = min(canaries, clients, algorithm.dim - 1)
    inside = rng.at("coins").uniforms(canaries) > 0.5
    swapped = algorithm.schedule.adjacency == "replace-one"
    watched = Watched(algorithm.mechanism)
    copy = replace(algorithm, mechanism=watched)
    held = made_up(schema, clients - canaries, canaries, rng.at("rows"))
    bound = _bound(algorithm)
    link = CanaryLink(copy, InProcess(held, rng.at("train")), inside, LOUD * bound, swapped, rng)
    run(copy, link, copy.init(rng.at("init")), rng.at("loop"), _unpaid, after_round, copy.rounds)
    claimed = event or algorithm.charges()[0].event
    scores = np.zeros(canaries)
    for released in watched.released:
        scores += log_likelihood(released[:canaries] / bound, claimed, swapped)
    return Seen(inside, scores)


def _unpaid(*_: object) -> None:
    """Made-up rows cost nobody anything."""


def made_up(schema: Schema, clients: int, empty: int, rng: Rng) -> Clients:
    """`empty` clients without rows, then `clients` with random rows that fit the schema: no real row is read."""
    count = clients * _ROWS
    draw = rng.numpy()
    classes = torch.from_numpy(draw.integers(0, max(1, len(schema.classes)), count))
    offsets = np.concatenate([np.zeros(empty, dtype=np.int64), np.arange(clients + 1) * _ROWS])
    if schema.kind == "image":
        shape = ImageEncoding(schema).shape
        return Clients(
            torch.from_numpy(draw.integers(0, 256, (count, *shape), dtype=np.uint8)), classes, offsets
        )
    if schema.kind == "text":
        texts = TextEncoding(schema)
        written = torch.from_numpy(draw.integers(UNKNOWN, texts.symbols, (count, texts.length + 1)))
        written[:, 0] = START
        return Clients(written.to(torch.int32), classes, offsets)
    encoding = TableEncoding(schema)
    x = torch.zeros(count, encoding.width)
    for block in encoding.blocks:
        choice = torch.from_numpy(draw.integers(0, block.size, count))
        x[torch.arange(count), block.start + choice] = 1.0
        if block.ordered:
            inside = (choice + torch.from_numpy(draw.random(count)).float()) / block.bins
            x[:, block.place] = torch.where(choice < block.bins, inside, 0.5)
    return Clients(x, classes, offsets)


@dataclass(frozen=True)
class Pointer:
    """A model whose gradient for a row is the row itself: a canary record points along its own coordinate."""

    width: int
    generative: tuple[str, ...] = ("pointer",)

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """One vector."""
        return {"pointer": nn.Linear(self.width, 1, bias=False)}

    @property
    def objectives(self) -> Mapping[str, Objective]:
        """The inner product of row and vector."""
        return {"pointing": Objective(noise=(1,), bound=1.0)}

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The inner product of row and vector, averaged over rows."""
        return weighted_mean((batch["x"] * params["pointer"]["weight"][0]).sum(-1), batch["weight"])

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Nothing is generated."""
        raise NotImplementedError


@dataclass(frozen=True)
class Notebook:
    """An optimizer that stays where it is, while every noisy gradient that reaches it is written down."""

    gradients: list[np.ndarray] = field(default_factory=list)

    def init(self, params: Tensor) -> Slots:
        """No state."""
        return {}

    def step(self, params: Tensor, gradient: Tensor, slots: Slots) -> tuple[Tensor, Slots]:
        """Write the gradient [runs, size] down."""
        self.gradients.append(gradient.double().cpu().numpy())
        return params, {}


def watch_records(
    algorithm: Algorithm,
    canaries: int,
    runs: int,
    rng: Rng,
    *,
    event: DpEvent | None = None,
    tell: Tell | None = None,
) -> Seen:
    """All steps of the recipe's DP-SGD on canary records, in `runs` trainings at once: each is a client of its own.

    A canary's gradient points along a coordinate of its own; what is trained from released parts alone (a generator)
    releases nothing more and is left out. `event` is the claimed cost of a step (default: what
    the rule says): the attacker goes by it.
    """
    rules = [phase.rule for phase in algorithm.plan if phase.rule.release is not None]
    release = rules[0].release if rules else None
    clip, expected = (getattr(rules[0], name, None) if rules else None for name in ("clip", "expected_batch"))
    if release is None or clip is None or expected is None:
        raise Incompatible(
            f"{algorithm.name}: no phase of its plan clips and noises the gradients of records"
        )
    inside = rng.at("coins").uniforms(runs * canaries).reshape(runs, canaries) > 0.5
    rows = torch.diag(torch.full((canaries,), LOUD * clip)).expand(runs, -1, -1)
    data = Padded(rows, torch.zeros(runs, canaries, dtype=torch.int64), torch.ones(runs, canaries) > 0)
    data = _only(data, torch.from_numpy(inside))
    book = Notebook()
    phases = [Phase("pointing", {"pointer": book}, rule) for rule in rules]
    params = {"pointer": torch.zeros(runs, canaries)}
    claimed, scores = event or release.event, np.zeros((runs, canaries))
    turns = algorithm.schedule.participations(algorithm.rounds)
    for number, phase in enumerate(phases * turns):
        train(Pointer(canaries), phase, params, {}, data, np.arange(runs), rng.at("round", number))
        for gradient in book.gradients:
            scores += log_likelihood(gradient * expected / clip, claimed, swapped=False)
        book.gradients.clear()
        if tell:
            tell(number + 1, len(phases) * turns)
    return Seen(inside.ravel(), scores.ravel())


def _only(data: Padded, inside: Tensor) -> Padded:
    """The rows that are in, first, and no trace of the others: a rule draws from the first rows of each client."""
    order = torch.argsort(~inside, dim=1, stable=True)
    mask = torch.gather(inside, 1, order)
    rows = torch.gather(data.x, 1, order[..., None].expand_as(data.x)) * mask[..., None]
    return Padded(rows, data.y, mask)
