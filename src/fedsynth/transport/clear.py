"""Messages as they are: the server sees each one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from torch import Tensor

from fedsynth.rng import Rng
from fedsynth.transport.wire import Wire


class AsSent:
    """The part of a transport that leaves messages as they are and adds no bytes."""

    def fitted(self, wire: Wire, clients: int) -> Self:
        """Fits any number of messages."""
        return self

    def rounded(self, messages: Tensor, rng: Rng, ids: np.ndarray) -> Tensor:
        """The messages as they are."""
        return messages

    def bytes_up(self, wire: Wire, plain: int) -> int:
        """Just these."""
        return plain

    def bytes_down(self, plain: int) -> int:
        """Just these."""
        return plain


@dataclass(frozen=True)
class Clear(AsSent):
    """No protection on the way: whoever runs the server sees each client's message."""

    name: str = "clear"
    blind: bool = False
    needs_cohort: bool = False
    carries: tuple[str, ...] = ("real", "signed-index", "answers", "bits")
    caveats: tuple[str, ...] = ()

    def zero(self, wire: Wire) -> Tensor:
        """The empty sum."""
        return wire.zero()

    def absorb(self, wire: Wire, total: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """The sum with a chunk of arrivals added."""
        return wire.add(total, messages, weights)

    def open(self, wire: Wire, total: Tensor) -> Tensor:
        """The sum, which was open all along."""
        return total
