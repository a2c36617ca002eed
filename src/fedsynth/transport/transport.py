"""What a transport is: how messages are added up and who may see the sum."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from fedsynth.privacy.mechanism import Wire


class Transport(Protocol):
    """How messages are added up and who may see the sum; knows nothing of models or privacy."""

    @property
    def name(self) -> str:
        """As `--transport` names it."""
        ...

    @property
    def blind(self) -> bool:
        """True if the server never sees the sum open."""
        ...

    @property
    def needs_cohort(self) -> bool:
        """True if only the sum over an agreed cohort opens."""
        ...

    @property
    def carries(self) -> tuple[str, ...]:
        """The kinds of wire that it can add up."""
        ...

    def zero(self, wire: Wire) -> Tensor:
        """The empty sum."""
        ...

    def absorb(self, wire: Wire, total: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """The sum with a chunk of arrivals added; nothing of cohort size is kept."""
        ...

    def open(self, wire: Wire, total: Tensor) -> Tensor:
        """The sum in the clear."""
        ...
