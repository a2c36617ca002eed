"""The interface of a privacy mechanism: a client half, a server half, and what both together cost.

Everything that leaves a client goes through `privatize`; central noise is drawn in `estimate`. The mechanism states
its own cost (`release`), so that no accountant has to be told a number a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
from dp_accounting import DpEvent

from fedsynth.rng import Rng

if TYPE_CHECKING:
    from torch import Tensor

    from fedsynth.transport.wire import Wire


Unit = Literal["client", "record"]
Trust = Literal["central", "local", "distributed"]
State: TypeAlias = "dict[str, Tensor]"


@dataclass(frozen=True)
class Release:
    """One noisy value that leaves, before any amplification by sampling, which the schedule adds."""

    what: str
    unit: Unit
    trust: Trust
    event: DpEvent
    count: int = 1  # times a round
    amplifies: bool = True  # False for noise that is correlated over rounds: sampling is then worth nothing
    separation: int | None = None  # where it costs only clients in the round: rounds from one use to the next
    public: DpEvent | None = (
        None  # noise in shares: the cost against all who know none; `event` is that against others
    )


@dataclass(frozen=True)
class When:
    """The part of a run that a release belongs to; as it stands, what comes before the first round."""

    round: int = 0  # counted from 1
    session: int = 0  # of the server that asks for the same once more
    note: str = ""  # of rounds that are planned and not run


@dataclass(frozen=True)
class Charge:
    """A release as it goes into a ledger: with the amplification that its schedule gives, for one use."""

    release: Release
    event: DpEvent
    public: DpEvent | None = (
        None  # the same against those who know no share of the noise, where it is in shares
    )

    @property
    def amplified(self) -> bool:
        """Whether this cost holds only against those who do not know which clients were drawn."""
        return self.event != self.release.event

    @property
    def holder(self) -> str:
        """Whose lines these are: the server's, for everybody, or those of each client in the round.

        The latter where nobody else is trusted, and where a round costs nothing to those who are not in it.
        """
        return "client" if self.release.trust == "local" or self.release.separation else "server"


class Mechanism(Protocol):
    """A client half and a server half of one privacy mechanism. Frozen: its state is a value that travels."""

    @property
    def release(self) -> Release | None:
        """The cost of one use, and for whom; None if nothing is protected here."""

    def wire(self, dim: int) -> Wire:
        """The form of the message for a contribution of `dim` numbers."""

    def init(self) -> State:
        """Public state that is sent with each broadcast, for example an adaptive clip."""

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """The messages [clients, ...] for contributions x [clients, dim]; randomness keyed by client."""

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The mean contribution from the opened sum, and the next public state; central noise is drawn here."""
