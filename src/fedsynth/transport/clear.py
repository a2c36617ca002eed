"""Messages as they are: the server sees each one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fedsynth.privacy.mechanism import Wire


class Transport(Protocol):
    """How messages are added up and who may see the sum; knows nothing of models or privacy."""

    name: str
    blind: bool
    needs_cohort: bool

    def zero(self, wire: Wire) -> Tensor:
        """The empty sum."""
        ...

    def absorb(self, wire: Wire, total: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """The sum with a chunk of arrivals added; nothing of cohort size is kept."""
        ...

    def open(self, wire: Wire, total: Tensor) -> Tensor:
        """The sum in the clear."""
        ...


@dataclass(frozen=True)
class Clear:
    """No protection on the way: whoever runs the server sees each client's message."""

    name: str = "clear"
    blind: bool = False
    needs_cohort: bool = False

    def zero(self, wire: Wire) -> Tensor:
        """The empty sum."""
        return wire.zero()

    def absorb(self, wire: Wire, total: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """The sum with a chunk of arrivals added."""
        return wire.add(total, messages, weights)

    def open(self, wire: Wire, total: Tensor) -> Tensor:
        """The sum, which was open all along."""
        return total
