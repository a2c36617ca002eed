"""A site's part in one run: with which algorithm, on which of its rows, and under which agreement.

An ordinary run trains on all rows. A step of an inspection is a run too, in which each client holds what the step needs
of it (its answer to a question, or the rows that it selected by itself); how that comes about is the `Look`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fedsynth.data.clients import Clients
from fedsynth.deploy.link.messages import Begin, Terms
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy.mechanism import Charge


@dataclass(frozen=True)
class Assigned:
    """A run as a site composed it. All runs of one `agreement` share the epsilon that was agreed to."""

    algorithm: Algorithm
    clients: Callable[[], Clients]  # all of the site's clients, with what each holds in this run
    stream: tuple[str | int, ...] = ()  # of the site's randomness
    agreement: str = ""
    whole: tuple[tuple[Charge, int], ...] = ()  # what all runs of the agreement cost, and how often each


class Look(Protocol):
    """A site's part in inspections; a site without one takes part in none."""

    def agree(self, terms: Terms) -> None:
        """Refuse what cannot be done here, for a reason that is no secret."""

    def allows(self, terms: Terms, job: str) -> bool:
        """Whether this kind of work belongs to the step: a question is not trained on."""

    def assigned(self, begin: Begin) -> Assigned:
        """One step of an inspection, composed from what is installed here."""
