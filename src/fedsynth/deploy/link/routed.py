"""The transport as a server sees it whose sites hide their messages by themselves: a link adds up, this opens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fedsynth.transport.clear import AsSent
from fedsynth.transport.transport import Transport
from fedsynth.transport.wire import Wire


class SumOpener(Protocol):
    """A link that keeps the sum under way."""

    def open(self) -> Tensor:
        """The sum, or what the server may have of it."""


@dataclass(frozen=True)
class Routed(AsSent):
    """A transport with the promises of `hidden` whose sum the link keeps: sites round, and the link counts bytes."""

    link: SumOpener
    hidden: Transport

    @property
    def name(self) -> str:
        """As `--transport` names it."""
        return self.hidden.name

    @property
    def blind(self) -> bool:
        """True if the server never sees the sum open."""
        return self.hidden.blind

    @property
    def needs_cohort(self) -> bool:
        """True if only the sum over an agreed cohort opens."""
        return self.hidden.needs_cohort

    @property
    def carries(self) -> tuple[str, ...]:
        """The kinds of wire that it can add up."""
        return self.hidden.carries

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences for the statement."""
        return self.hidden.caveats

    def zero(self, wire: Wire) -> None:
        """The link keeps the sum."""

    def absorb(self, wire: Wire, total: None, messages: Tensor, weights: Tensor) -> None:
        """The link has added it up already."""

    def open(self, wire: Wire, total: None) -> Tensor:
        """Return the sum that the link has added up."""
        return self.link.open()
