"""The interface of a transport: how messages are added up and who may see the sum."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from torch import Tensor

from fedsynth.rng import Rng
from fedsynth.transport.wire import Wire

Total = Any  # a sum under way: a tensor, or what a transport keeps sealed


class Transport(Protocol):
    """How messages are added up and who may see the sum; knows nothing of models or privacy."""

    @property
    def name(self) -> str:
        """As `--transport` names it."""

    @property
    def blind(self) -> bool:
        """True if the server never sees the sum open."""

    @property
    def needs_cohort(self) -> bool:
        """True if only the sum over an agreed cohort opens."""

    @property
    def carries(self) -> tuple[str, ...]:
        """The kinds of wire that it can add up."""

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences for the statement: who, with whose help, sees more than the sum."""

    def fitted(self, wire: Wire, clients: int) -> Transport:
        """The same transport, laid out for sums of at most `clients` such messages; refuses what has no room."""

    def rounded(self, messages: Tensor, rng: Rng, ids: np.ndarray) -> Tensor:
        """The client's half: messages [clients, ...] as they travel, rounded where only a grid can be added up."""

    def bytes_up(self, wire: Wire, plain: int) -> int:
        """The bytes that a client sends where its message would be `plain` bytes in the clear."""

    def bytes_down(self, plain: int) -> int:
        """The bytes that a client receives where it would be `plain` bytes in the clear."""

    def zero(self, wire: Wire) -> Total:
        """The empty sum."""

    def absorb(self, wire: Wire, total: Total, messages: Tensor, weights: Tensor) -> Total:
        """The sum with a chunk of arrivals added; nothing of cohort size is kept."""

    def open(self, wire: Wire, total: Total) -> Tensor:
        """The sum in the clear; where the server is blind, the average, opened by those who hold the key."""
