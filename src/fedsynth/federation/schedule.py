"""Who takes part when, and what that sampling is worth: the object that draws the cohort states its amplification."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from dp_accounting import DpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent

from fedsynth.errors import BadInput
from fedsynth.federation.client_uses import ClientUses
from fedsynth.privacy.mechanism import Release
from fedsynth.privacy.sampling import poisson_sample
from fedsynth.rng import Rng

_NOBODY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Clock:
    """Where the federation stands: the server's version, and the clients under way and arrived since it.

    `standing` tells them apart; it is kept only where clients outlive a version. `absent` cannot be asked now.
    """

    version: int
    in_flight: int = 0
    arrived: int = 0
    standing: ClientUses | None = None
    absent: np.ndarray = field(default_factory=lambda: _NOBODY)

    def with_started(self, ids: np.ndarray) -> Clock:
        """After these were asked."""
        standing = self.standing and self.standing.started(ids)
        return replace(self, in_flight=self.in_flight + len(ids), standing=standing)

    def with_heard(self, came: int, lost: int, gone: np.ndarray, spared: np.ndarray = _NOBODY) -> Clock:
        """After so many arrived, and so many others were given up: `gone` ones, and ones that sent nothing."""
        standing = self.standing and self.standing.missed(gone).spared(spared)
        return Clock(self.version, self.in_flight - came - lost, self.arrived + came, standing)


class Schedule(Protocol):
    """Who starts, when the server steps, with which weight, over which denominator."""

    @property
    def clients(self) -> int:
        """How many there are; treated as public."""

    @property
    def sampling(self) -> str:
        """How a cohort is drawn, as the statement names it: poisson, fixed or none."""

    @property
    def adjacency(self) -> str:
        """The neighboring relation under which the sampling can be accounted."""

    @property
    def expected(self) -> float:
        """The expected number of clients a round."""

    @property
    def buffered(self) -> bool:
        """True if the server steps before all have arrived, so that clients outlive a version."""

    @property
    def separation(self) -> int:
        """The least number of versions from one use of a client to its next."""

    def start(self, clock: Clock, rng: Rng) -> np.ndarray:
        """The clients that start with this version."""

    def refill(self, clock: Clock, rng: Rng) -> np.ndarray:
        """The clients that start after an arrival, while the server still waits."""

    def weigh(self, age: int) -> float:
        """The weight of an update that started `age` versions ago."""

    def ready(self, clock: Clock) -> bool:
        """Whether the server steps now."""

    def denominator(self) -> float:
        """The divisor of the sum; it must not depend on who took part."""

    def participations(self, rounds: int) -> int:
        """The most rounds that any one client can be in."""

    def amplify(self, release: Release) -> DpEvent:
        """The cost of one round, given the cost without sampling."""


def _worthless(release: Release) -> bool:
    """Whether secrecy of the cohort buys nothing: each client pays itself, or noise of later rounds is correlated."""
    return release.trust == "local" or not release.amplifies


class _Synchronous:
    """One cohort a round; the server steps when all of it has arrived."""

    @property
    def buffered(self) -> bool:
        """Never: a round begins and ends with nobody under way."""
        return False

    @property
    def separation(self) -> int:
        """One: a client may be in the next round again."""
        return 1

    def refill(self, clock: Clock, rng: Rng) -> np.ndarray:
        """Nobody: the cohort was drawn when the round began."""
        return _NOBODY

    def weigh(self, age: int) -> float:
        """All count alike: weights by number of records are not allowed under DP."""
        return 1.0

    def ready(self, clock: Clock) -> bool:
        """When nobody is under way."""
        return clock.in_flight == 0

    def participations(self, rounds: int) -> int:
        """Chance may draw the same client every time."""
        return rounds


@dataclass(frozen=True)
class PoissonCohort(_Synchronous):
    """Each client independently with probability `rate`; the cohort may be empty."""

    clients: int
    rate: float
    sampling: str = "poisson"
    adjacency: str = "add-remove"

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise BadInput(
                f"rate={self.rate}: a Poisson sampling rate lies in (0, 1]; for a fixed cohort set cohort"
            )

    @property
    def expected(self) -> float:
        """The expected cohort, rate × clients."""
        return self.rate * self.clients

    def start(self, clock: Clock, rng: Rng) -> np.ndarray:
        """This round's cohort, in ascending order."""
        return poisson_sample(self.clients, self.rate, rng.at("cohort", clock.version))

    def denominator(self) -> float:
        """The expected cohort, never the one that turned up."""
        return self.rate * self.clients

    def amplify(self, release: Release) -> DpEvent:
        """Poisson sampling amplifies what the server alone sees; against a local adversary it is worth nothing."""
        if _worthless(release) or self.rate == 1:
            return release.event
        return PoissonSampledDpEvent(self.rate, release.event)


@dataclass(frozen=True)
class FixedCohort(_Synchronous):
    """`size` clients drawn without replacement; neighbors replace one client, so the sensitivity is twice the clip."""

    clients: int
    size: int
    sampling: str = "fixed"
    adjacency: str = "replace-one"

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.clients:
            raise BadInput(f"cohort={self.size}: a fixed cohort has between 1 and all {self.clients} clients")

    @property
    def expected(self) -> float:
        """The cohort's size."""
        return float(self.size)

    def start(self, clock: Clock, rng: Rng) -> np.ndarray:
        """This round's cohort, in ascending order; Floyd's algorithm, so it costs its size and no more."""
        picks = rng.at("cohort", clock.version).uniforms(self.size)
        chosen: set[int] = set()
        for step, top in enumerate(range(self.clients - self.size, self.clients)):
            drawn = min(int((1.0 - picks[step]) * (top + 1)), top)
            chosen.add(top if drawn in chosen else drawn)
        return np.array(sorted(chosen), dtype=np.int64)

    def denominator(self) -> float:
        """The cohort's size."""
        return float(self.size)

    def amplify(self, release: Release) -> DpEvent:
        """Sampling without replacement amplifies what the server alone sees."""
        if _worthless(release) or self.size == self.clients:
            return release.event
        return SampledWithoutReplacementDpEvent(self.clients, self.size, release.event)


@dataclass(frozen=True)
class Everyone(_Synchronous):
    """All clients every round: no sampling here, no amplification.

    Where clients draw by themselves and tell nobody (`DistributedGaussian.coin`), `sampling` names how. `units` is what
    the sum is over, if not over clients: all records, for sites that send sums over theirs.
    """

    clients: int
    sampling: str = "none"
    adjacency: str = "add-remove"
    units: float | None = None

    @property
    def expected(self) -> float:
        """All of them."""
        return float(self.clients)

    def start(self, clock: Clock, rng: Rng) -> np.ndarray:
        """All of them."""
        return np.arange(self.clients)

    def denominator(self) -> float:
        """The number of clients, or of units."""
        return float(self.clients if self.units is None else self.units)

    def amplify(self, release: Release) -> DpEvent:
        """The cost as it is."""
        return release.event


@dataclass(frozen=True)
class Rotation(_Synchronous):
    """Clients in turn, one of `groups` a round, so that nobody takes part more often than was planned.

    For local privacy, where each round costs its clients the same however they were chosen: who takes part when is
    public, and the cost of a run is that of a client's turns. Client i is in group i modulo `groups`. With `spared`,
    every so manyth client is left out of all groups, because it spends its budget on something else.
    """

    clients: int
    groups: int
    sampling: str = "none"
    adjacency: str = "replace-one"
    spared: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.groups <= len(self._members):
            raise BadInput(f"groups={self.groups}: expected between 1 and all {len(self._members)} clients")

    @cached_property
    def _members(self) -> np.ndarray:
        """The clients that have turns at all."""
        everyone = np.arange(self.clients)
        return everyone[everyone % self.spared != 0] if self.spared else everyone

    @property
    def separation(self) -> int:
        """A client's next turn comes when all groups had theirs."""
        return self.groups

    @property
    def expected(self) -> float:
        """The size of a group, on average."""
        return len(self._members) / self.groups

    def start(self, clock: Clock, rng: Rng) -> np.ndarray:
        """The group whose turn it is."""
        return self._members[clock.version % self.groups :: self.groups]

    def denominator(self) -> float:
        """The mean size of a group."""
        return len(self._members) / self.groups

    def participations(self, rounds: int) -> int:
        """A client's turns.

        >>> Rotation(clients=10, groups=5).participations(rounds=11)
        3
        """
        return -(-rounds // self.groups)

    def amplify(self, release: Release) -> DpEvent:
        """The cost as it is: whose turn it is, everybody knows."""
        return release.event


@dataclass(frozen=True)
class Sequential(_Synchronous):
    """One client after another, each from what the last one left (Priv-FedGAN, Xin et al. 2022)."""

    clients: int
    sampling: str = "none"
    adjacency: str = "add-remove"
    expected: ClassVar[float] = 1.0

    @property
    def separation(self) -> int:
        """All others come first."""
        return self.clients

    def start(self, clock: Clock, rng: Rng) -> np.ndarray:
        """The client whose turn it is."""
        return np.array([clock.version % self.clients], dtype=np.int64)

    def denominator(self) -> float:
        """One."""
        return 1.0

    def participations(self, rounds: int) -> int:
        """A client's turns.

        >>> Sequential(clients=4).participations(rounds=9)
        3
        """
        return -(-rounds // self.clients)

    def amplify(self, release: Release) -> DpEvent:
        """The cost as it is: whose turn it is, everybody knows."""
        return release.event
