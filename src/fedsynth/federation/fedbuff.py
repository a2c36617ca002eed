"""Buffered asynchronous aggregation (Nguyen et al. 2022): the server steps as soon as enough updates are there.

Who arrives when decides when the server steps, so a client that is added or removed moves every later step: neither
sampling nor add-remove adjacency can be claimed. What can: neighbors differ in what a client sends, not in when
(zero-out), and every use of a client in a version costs it once. How often that may be, and how far apart, this
schedule sees to; noise that is correlated over versions needs both (`BandedGaussian`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent

from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.schedule import Clock
from fedsynth.privacy.mechanism import Release
from fedsynth.rng import Rng

STALENESS = ("sqrt", "constant")


@dataclass(frozen=True)
class FedBuff:
    """`concurrency` clients at work at any time, a step of the server after every `buffer` arrivals.

    A client is in at most `turns` versions (0: as many as its `separation` allows), any two at least `separation`
    apart; so nobody is twice in one buffer. Those that were used least often start first, ties at random.
    """

    clients: int
    concurrency: int
    buffer: int
    separation: int = 1
    turns: int = 0
    staleness: str = "sqrt"
    sampling: str = "none"
    adjacency: str = "zero-out"
    buffered: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.buffer <= self.clients:
            raise BadInput(
                f"buffer={self.buffer}: a version is made of between 1 and all {self.clients} clients"
            )
        if not self.buffer <= self.concurrency <= self.clients:
            raise BadInput(
                f"concurrency={self.concurrency}: between buffer={self.buffer} and all {self.clients} clients can "
                "be under way"
            )
        if self.separation < 1 or self.turns < 0:
            raise BadInput(
                f"separation={self.separation}, turns={self.turns}: expected at least 1, and 0 or more"
            )
        if self.buffer * self.separation > self.clients:
            raise BadInput(
                f"separation={self.separation}: buffers of {self.buffer} use {self.buffer * self.separation} different "
                f"clients in so many versions, but there are {self.clients}; use smaller buffers or separation"
            )
        if self.staleness not in STALENESS:
            raise BadInput(f"staleness={self.staleness!r}: expected sqrt or constant")

    @property
    def expected(self) -> float:
        """The buffer."""
        return float(self.buffer)

    def start(self, clock: Clock, rng: Rng) -> np.ndarray:
        """As many as there is room for, of those who may."""
        assert clock.standing is not None, "the loop keeps a standing where a schedule is buffered"
        standing, room = clock.standing, self.concurrency - clock.in_flight
        able = clock.version - standing.last >= self.separation
        if self.turns:
            able &= standing.charged < self.turns
        able[standing.busy] = False
        able[clock.absent] = False
        if room < 1 or not able.any():
            return np.empty(0, dtype=np.int64)
        chance = rng.at("cohort", clock.version).uniforms(self.clients)
        free = np.flatnonzero(able)
        order = np.lexsort((chance[free], standing.uses[free]))
        return np.sort(free[order[:room]])

    def refill(self, clock: Clock, rng: Rng) -> np.ndarray:
        """Others in the place of those that arrived; nobody once the buffer is full, since a new version is near."""
        return np.empty(0, dtype=np.int64) if self.ready(clock) else self.start(clock, rng)

    def weigh(self, age: int) -> float:
        """1 / sqrt(1 + age), or all alike; never above 1, so that a clip bounds what a client moves."""
        return float((1 + age) ** -0.5) if self.staleness == "sqrt" else 1.0

    def ready(self, clock: Clock) -> bool:
        """When the buffer is full."""
        return clock.arrived >= self.buffer

    def denominator(self) -> float:
        """The buffer, whatever the weights of those in it."""
        return float(self.buffer)

    def participations(self, rounds: int) -> int:
        """The most versions that any one client can be in.

        >>> FedBuff(12, concurrency=6, buffer=3, separation=4).participations(rounds=9)
        3
        >>> FedBuff(12, concurrency=6, buffer=3, turns=2).participations(rounds=9)
        2
        """
        most = -(-rounds // self.separation)
        return min(most, self.turns) if self.turns else most

    def amplify(self, release: Release) -> DpEvent:
        """The cost as it is, for each use; refuses noise whose cost was meant to be lowered by sampling."""
        if release.trust != "local" and release.separation is None:
            raise Incompatible(
                f"{release.what}: under FedBuff arrivals decide who is in a version, so sampling amplifies nothing; "
                "use BandedGaussian, which counts participations (with separation 1 its noise is the same)"
            )
        return release.event
