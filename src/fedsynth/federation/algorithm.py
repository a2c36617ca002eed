"""A federated algorithm as one frozen object: model × homes × local plan × mechanism × transport × schedule × rule.

It holds no state and no data. `client_round` works for a chunk of clients (one, at a real site) and
`server_round` for the opened sum; the loop in loop.py drives both, whatever link the clients are behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.errors import Incompatible, NotPrivate
from fedsynth.federation.query import Learn, Query
from fedsynth.federation.schedule import Schedule
from fedsynth.federation.server import ServerRule
from fedsynth.federation.state import SEALED, ServerState
from fedsynth.models.model import Layout, Model, initialise, layouts
from fedsynth.privacy.mechanism import Charge, Mechanism, Release
from fedsynth.privacy.sampling import most_drawn
from fedsynth.rng import Rng
from fedsynth.training.optimizer import Slots
from fedsynth.training.plan import Phase, train
from fedsynth.training.sums import Sums
from fedsynth.transport.clear import Clear
from fedsynth.transport.transport import Transport
from fedsynth.transport.wire import Wire

Memory = dict[str, Tensor]  # what a client keeps between rounds, [clients, size] each

_ROADS = {  # by what a mechanism sends: how it gets there
    "real": "use transport clear or he, or noise shared out over the clients (trust=distributed)",
    "ring": "use transport secagg or he-open",
    **dict.fromkeys(("signed-index", "answers", "bits"), "use transport clear"),
}


class Home(Enum):
    """Where a part of the model lives."""

    SHARED = "shared"  # averaged over clients
    CLIENT = "client"  # each client's own, never sent
    SERVER = "server"  # trained by the server on what was released, and sent down


class Job(Protocol):
    """The work that a link asks of clients: a training round or a one-shot query."""

    @property
    def wire(self) -> Wire:
        """The form of the messages."""

    def charges(self) -> list[Charge]:
        """The cost of opening the sum."""

    @property
    def transport(self) -> Transport:
        """How the messages are added up."""

    @property
    def schedule(self) -> Schedule:
        """Who is asked when."""

    @property
    def broadcast(self) -> tuple[str, ...]:
        """The parts of the model that clients are sent."""

    @property
    def together(self) -> bool:
        """Whether clients that are in one place send the sum of their messages."""

    def blank(self, state: ServerState) -> Memory:
        """The memory of a client that never took part, [size] each."""

    def client_round(
        self, state: ServerState, memory: Memory, data: Padded, ids: np.ndarray, rng: Rng
    ) -> tuple[Tensor, Memory]:
        """The messages of these clients, and what they remember."""


def secret_draw(job: Job) -> bool:
    """Whether the stated cost holds only against those who know neither who was drawn nor how many.

    Then nothing that leaves the trusted server may depend on the cohort: no count, no size and no time.
    """
    return any(charge.amplified for charge in job.charges())


@dataclass(frozen=True)
class Algorithm:
    """One federated system, composed from parts.

    `loss_share` is the loss coordinate's share of the clip; 0 sends none, for mechanisms that have no room for one.
    `warm_start` makes the public starting point from fresh parameters, such as by pre-training on simulated rows.
    """

    name: str
    model: Model
    homes: Mapping[str, Home]
    plan: tuple[Phase, ...]
    mechanism: Mechanism
    schedule: Schedule
    server: ServerRule
    rounds: int
    transport: Transport = field(default_factory=Clear)
    keep: tuple[str, ...] = ()  # parts whose optimizer state the client keeps over rounds
    opening: Query | None = None  # asked once, before training: the class balance, class moments, a question
    loss_share: float = 1.0
    caveats: tuple[str, ...] = ()
    record_sums: Sums | None = None  # clients send sums over their records, and train nothing themselves
    server_phase: Phase | None = None  # what the server trains once it has stepped; it sees no data
    warm_start: Callable[[dict[str, Tensor], Rng], dict[str, Tensor]] | None = None
    learn: Learn | None = None  # what the server makes of the mean, if it is not a change of the shared parts
    finish: Callable[[ServerState], ServerState] | None = None  # done once training ends, early or not

    def __post_init__(self) -> None:
        unknown = set(self.homes) ^ set(self.model.parts)
        if unknown:
            raise Incompatible(f"{self.name}: parts {sorted(unknown)} have a home or a model but not both")
        if self.rounds < 1:
            raise Incompatible(f"{self.name}: rounds={self.rounds}: at least one is needed")
        if self.schedule.buffered and self.transport.needs_cohort:
            raise Incompatible(
                f"{self.name}: the transport {self.transport.name} opens sums of an agreed cohort, and a buffer takes "
                "who comes first; use the transport he, or a schedule of rounds"
            )
        if self.wire.kind not in self.transport.carries:
            raise Incompatible(
                f"{self.name}: {type(self.mechanism).__name__} sends {self.wire.kind}, but the transport "
                f"{self.transport.name} carries {' and '.join(self.transport.carries)}; "
                + _ROADS.get(self.wire.kind, "use another transport")
            )
        self._check_schedule()
        if self.transport.blind:
            self._check_blind()
        room = min(self.schedule.clients, most_drawn(self.schedule.expected))
        object.__setattr__(self, "transport", self.transport.fitted(self.wire, room))

    def _check_schedule(self) -> None:
        """Who takes part when must be what the noise was accounted for."""
        schedule, release = self.schedule, self.mechanism.release
        if release is not None:
            schedule.amplify(release)  # refuses a sampling that is none
            if (release.separation or 1) > schedule.separation:
                raise NotPrivate(
                    f"{self.name}: {type(self.mechanism).__name__} needs {release.separation} rounds from one use of a "
                    f"client to its next, but {type(schedule).__name__} promises {schedule.separation}; use a Rotation "
                    "or FedBuff with that separation"
                )
        central = release is not None and release.trust != "local"
        if schedule.weigh(1) != 1 and (central or self.transport.blind):
            raise Incompatible(
                f"{self.name}: staleness weights take messages off the grid on which they are "
                f"{'noised' if central else 'sealed'}; set staleness=constant"
            )

    def _check_blind(self) -> None:
        """A server that never sees the sum can do nothing with it but have it averaged."""
        blind = f"{self.name}: the transport {self.transport.name} hides the sum from the server"
        release = self.mechanism.release
        if release is not None and release.trust == "central":
            raise Incompatible(
                f"{blind}, so {type(self.mechanism).__name__} cannot add its noise there; use trust=local, noise in "
                "the local plan, or trust=distributed over secagg or he-open"
            )
        if not self.server.averages:
            raise Incompatible(
                f"{blind}, which can average but not apply {type(self.server).__name__} with memory or another step; "
                "set momentum=0, server_learning_rate=1 and server=momentum, or use he-open"
            )
        if self.server_phase is not None or self.learn is not None:
            raise Incompatible(f"{blind}, which therefore cannot train parts of its own; use he-open")

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """The layout of each part."""
        return layouts(self.model)

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """The parts that are averaged, in the order of the update vector."""
        return tuple(part for part, home in self.homes.items() if home is Home.SHARED)

    @cached_property
    def broadcast(self) -> tuple[str, ...]:
        """The parts that clients are sent."""
        return tuple(part for part, home in self.homes.items() if home is not Home.CLIENT)

    @cached_property
    def unsealed(self) -> tuple[str, ...]:
        """The parts that clients are sent beside an average that only they can open."""
        return tuple(part for part, home in self.homes.items() if home is Home.SERVER)

    @cached_property
    def dim(self) -> int:
        """The length of a client's contribution: its update, and its loss if that is reported."""
        return sum(self.layouts[part].size for part in self.shared) + (self.loss_share > 0)

    @cached_property
    def wire(self) -> Wire:
        """The form of a client's message."""
        return self.mechanism.wire(self.dim)

    @property
    def together(self) -> bool:
        """Whether clients that are in one place send the sum of their messages."""
        return self.record_sums is not None and self.record_sums.together and self.transport.name != "he"

    @cached_property
    def loss_bounds(self) -> tuple[float, float]:
        """Losses outside are reported as the nearer of these."""
        objective = self.model.objectives[self.plan[0].objective]
        return objective.least, objective.bound

    def charges(self, arrived: int | None = None) -> list[Charge]:
        """Each release of one round, with the amplification that the schedule gives it; equal ones as one.

        Where all who `arrived` added noise, more of them than were needed make the round cost less.
        """
        cost = getattr(self.mechanism, "cost", None)
        sent = self.mechanism.release if arrived is None or cost is None else cost(arrived)
        charges = [] if sent is None else [self._charge(sent)]
        spent: dict[Release, int] = {}
        for release in (phase.rule.release for phase in self.plan):
            if release is not None:
                one = replace(release, count=1)
                spent[one] = spent.get(one, 0) + release.count
        return charges + [Charge(replace(one, count=count), one.event) for one, count in spent.items()]

    def _charge(self, sent: Release) -> Charge:
        public = None if sent.public is None else self.schedule.amplify(replace(sent, event=sent.public))
        return Charge(sent, self.schedule.amplify(sent), public)

    def init(self, rng: Rng) -> ServerState:
        """The state before the first round."""
        parts = initialise(self.model, rng)
        parts = self.warm_start(parts, rng.at("ready")) if self.warm_start else parts
        memory = self.server.init(self._join(parts)) | self._fresh(parts)
        return ServerState(0, parts, memory, self.mechanism.init())

    def _fresh(self, parts: Mapping[str, Tensor]) -> Memory:
        """The optimizer state of what the server trains."""
        if self.server_phase is None:
            return {}
        slots = {part: rule.init(parts[part][None]) for part, rule in self.server_phase.optimizers.items()}
        return {f"{part}/{name}": value for part, slot in slots.items() for name, value in slot.items()}

    def blank(self, state: ServerState) -> Memory:
        """The memory of a client that never took part: the public start of its own parts, fresh optimizers."""
        memory = {part: state.parts[part] for part, home in self.homes.items() if home is Home.CLIENT}
        for phase in self.plan:
            for part in (part for part in self.keep if part in phase.parts):
                fresh = phase.optimizers[part].init(state.parts[part][None])
                memory |= {f"{part}/{slot}": value[0] for slot, value in fresh.items()}
        return memory

    def client_round(
        self, state: ServerState, memory: Memory, data: Padded, ids: np.ndarray, rng: Rng
    ) -> tuple[Tensor, Memory]:
        """Train locally from the broadcast, and turn the change of the shared parts into private messages."""
        sent = {part: state.parts[part].to(data.mask.device) for part in self.broadcast}
        if self.record_sums is not None:
            summed = self.record_sums.messages(self.model, sent, data, ids, state.mechanism, rng)
            return self.transport.rounded(summed, rng.at("transport"), ids), {}
        params, slots, loss = self._local(sent, memory, data, ids, rng)
        changes = [params[part] - sent[part] for part in self.shared]
        least, most = self.loss_bounds
        reported = (loss.clamp(least, most) - least) * (self.loss_share / (most - least))
        report = [torch.nan_to_num(reported)[:, None]] if self.loss_share else []
        contribution = torch.cat([*changes, *report], dim=1)
        sound = torch.isfinite(contribution).all(dim=1, keepdim=True)
        contribution = torch.where(sound, contribution, 0.0)  # whose training diverged sends nothing
        messages = self.mechanism.privatize(contribution, state.mechanism, rng.at("privatize"), ids)
        if (
            self.transport.blind
        ):  # the server cannot add a change to what it does not know: send the whole, no loss
            start = self._join(sent)
            messages = messages + torch.nn.functional.pad(start, (0, self.dim - start.numel()))
        messages = self.transport.rounded(messages, rng.at("transport"), ids)
        kept = {part: params[part] for part, home in self.homes.items() if home is Home.CLIENT}
        for part in self.keep:
            kept |= {f"{part}/{slot}": value for slot, value in slots.get(part, {}).items()}
        kept = {name: torch.where(sound, value, memory[name]) for name, value in kept.items()}
        return messages, kept

    def _local(
        self, sent: Mapping[str, Tensor], memory: Memory, data: Padded, ids: np.ndarray, rng: Rng
    ) -> tuple[dict[str, Tensor], dict[str, Slots], Tensor]:
        """Run the plan's phases in order for a chunk of clients."""
        device = data.mask.device
        trained = {part for phase in self.plan for part in phase.parts}
        params: dict[str, Tensor] = {}
        for part, home in self.homes.items():
            flat = memory[part] if home is Home.CLIENT else sent[part]
            stacked = part in trained and flat.dim() == 1
            params[part] = flat.expand(len(ids), -1) if stacked else flat
        slots: dict[str, Slots] = {
            part: {
                name.partition("/")[2]: value for name, value in memory.items() if name.startswith(part + "/")
            }
            for part in self.keep
        }
        losses, steps = torch.zeros(2, len(ids), device=device)
        for number, phase in enumerate(self.plan):
            progress = train(self.model, phase, params, slots, data, ids, rng.at("phase", number))
            params, slots = {**params, **progress.params}, {**slots, **progress.slots}
            if number == 0 or phase.label is not None:  # what is reported: the first phase, over all classes
                losses, steps = losses + progress.losses, steps + progress.steps
        # who took no step has no loss to tell: the least one is sent as zero, like the update
        return params, slots, torch.where(steps > 0, losses / steps.clamp(min=1), self.loss_bounds[0])

    def server_round(
        self, state: ServerState, total: Tensor, rng: Rng, weight: float = 1.0
    ) -> tuple[ServerState, float | None]:
        """Open a paid sum: the next state, and the mean loss, as private as the sum and smaller by the mean `weight`.

        Over a blind transport it opens to the average parameters, by the clients; empty if nobody took part.
        """
        total = self.transport.open(self.wire, total)
        if self.transport.blind:
            return self._averaged(state, total)
        current, denominator = self._join(state.parts), self.schedule.denominator()
        mean, mechanism = self.mechanism.estimate(total, denominator, state.mechanism, rng.at("estimate"))
        if self.learn is not None:
            after = self.learn(replace(state, mechanism=mechanism), mean.cpu(), rng.at("learn"))
            return replace(after, version=state.version + 1), None
        mean = mean.to(device="cpu", dtype=torch.float32)
        own = {name: value for name, value in state.memory.items() if "/" not in name}
        params, memory = self.server.step(current, mean[:-1] if self.loss_share else mean, own)
        parts = {**state.parts, **self._split(params)}
        parts, trained = self._afterwards(parts, state.memory, total.device, rng.at("after"))
        following = replace(state, version=state.version + 1, parts=parts, mechanism=mechanism)
        return replace(following, memory={**memory, **trained}), self._loss(mean, weight)

    def _averaged(self, state: ServerState, average: Tensor) -> tuple[ServerState, float | None]:
        """The next state over a blind transport; where nobody here can open the average, it is kept sealed."""
        following = replace(state, version=state.version + 1)
        if average.dtype == torch.uint8:
            return replace(following, memory={SEALED: average}), None
        if not average.numel():
            return following, None
        return replace(following, parts={**state.parts, **self.parts_of(average)}), self._loss(average)

    def _loss(self, mean: Tensor, weight: float = 1.0) -> float | None:
        """The training loss that the last coordinate carries, if any."""
        if not self.loss_share:
            return None
        least, most = self.loss_bounds
        return least + float(mean[-1]) / (self.loss_share * weight) * (most - least)

    def parts_of(self, average: Tensor) -> dict[str, Tensor]:
        """The shared parts in an opened average of whole parameters, which has the loss at its end."""
        flat = average.to(device="cpu", dtype=torch.float32)
        return self._split(flat[:-1] if self.loss_share else flat)

    def _afterwards(
        self, parts: dict[str, Tensor], memory: Memory, device: torch.device, rng: Rng
    ) -> tuple[dict[str, Tensor], Memory]:
        """Train the server's own parts against those just released: post-processing, which costs nothing."""
        phase = self.server_phase
        if phase is None:
            return parts, {}
        params = {part: flat.to(device) for part, flat in parts.items()}
        slots: dict[str, Slots] = {}
        for part in phase.parts:
            params[part] = params[part][None]
            own = {name: value for name, value in memory.items() if name.startswith(part + "/")}
            slots[part] = {name.partition("/")[2]: value.to(device) for name, value in own.items()}
        progress = train(self.model, phase, params, slots, _no_rows(device), np.zeros(1, np.int64), rng)
        moved = {part: flat[0].cpu() for part, flat in progress.params.items()}
        kept = {f"{p}/{name}": v.cpu() for p, slot in progress.slots.items() for name, v in slot.items()}
        return {**parts, **moved}, kept

    def _join(self, parts: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([parts[part] for part in self.shared])

    def _split(self, flat: Tensor) -> dict[str, Tensor]:
        sizes = [self.layouts[part].size for part in self.shared]
        return dict(zip(self.shared, flat.split(sizes), strict=True))


def _no_rows(device: torch.device) -> Padded:
    """The server's empty data."""
    blank = torch.zeros(1, 1, device=device)
    return Padded(blank[..., None], blank.to(torch.int64), blank > 0)
