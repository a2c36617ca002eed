"""Where the clients are: in this process, or behind a federation engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from torch import Tensor

from fedsynth.federation.algorithm import Job
from fedsynth.federation.state import ServerState


@dataclass(frozen=True)
class Arrival:
    """The messages [rows, ...] of one or more clients, and the version they started from.

    A site with many clients may add up their messages into one row. `lost` clients were asked too and will not come;
    `gone` are their numbers where the link knows them, but for those that are `spared`: what they were asked for, they
    have not sent and never will. `at_s` is when it came, on a clock that is simulated. `name` is what a site calls it.
    """

    ids: np.ndarray
    messages: Tensor
    version: int
    bytes_up: int = 0
    bytes_down: int = 0
    lost: int = 0
    gone: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    at_s: float | None = None
    spared: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    name: str = ""


class Link(Protocol):
    """Starts clients and hands their messages over as they arrive."""

    def start(self, job: Job, ids: np.ndarray, state: ServerState) -> None:
        """Ask these clients to work from this state, beside those that are under way already."""

    def next(self) -> Arrival:
        """Wait for the next arrival, or for the news that somebody will not arrive.

        Where nobody is under way: for somebody who was absent and can be asked now, which is an arrival of nobody.
        """

    def absent(self, *, for_good: bool = False) -> np.ndarray:
        """The clients that cannot be asked now, or never again."""

    def commit(self) -> None:
        """The server has stepped: what clients remember of the round is now valid."""
