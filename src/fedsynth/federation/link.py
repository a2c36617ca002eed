"""Where the clients are: in this process, or behind a federation engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from fedsynth.federation.algorithm import Job
from fedsynth.federation.state import ServerState


@dataclass(frozen=True)
class Arrival:
    """The messages [clients, ...] of one or more clients, and the version they started from."""

    ids: np.ndarray
    messages: Tensor
    version: int
    bytes_up: int


class Link(Protocol):
    """Starts clients and hands their messages over as they arrive."""

    def start(self, job: Job, ids: np.ndarray, state: ServerState) -> None:
        """Ask these clients to work from this state."""
        ...

    def next(self) -> Arrival:
        """Wait for the next arrival."""
        ...

    def commit(self, state: ServerState) -> None:
        """The server has stepped to this state: what clients remember of the round is now valid."""
        ...
