"""The transport `secagg`: only the sum over enough parties opens, whoever runs the server.

In a simulation one process plays all parties, with real keys, shares and masks. Over a federation each site runs its
half by itself (`MaskingSite`), and the server routes and adds up (`ServerRound`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import Incompatible
from fedsynth.rng import Rng
from fedsynth.transport.agreement import MOST_COMPLETE, Agreement, check_threshold
from fedsynth.transport.bits import packed_size
from fedsynth.transport.masking_client import Party, PartyRound
from fedsynth.transport.masking_server import ServerRound
from fedsynth.transport.primitives import Identity
from fedsynth.transport.ring import Parties, Ring
from fedsynth.transport.wire import Wire

_TRUSTED_PARTS = (
    "Each party clips and adds its share of the noise itself; under the masks nobody can check it. A party that does "
    "not add its share counts as one that helps the server."
)
_CURIOUS = (
    "With more than 100 parties each masks with some of the others only: this stands against a server that looks, not "
    "against one that chooses whom it reports as lost."
)


def _known_shares(parties: Parties) -> tuple[str, ...]:
    """Whose noise is counted, and what it costs that participants know their own."""
    known, own = parties.known, parties.largest
    if parties.surplus == 1:
        whose = f"the {known} that may be known to whoever helps the server" if known else "none"
        return (
            f"Each sum is counted with the noise of all parties in it but for {whose}: that of at least "
            f"{parties.honest} honest ones.",
        )
    has = "its own share" if own == 1 else f"the shares of its own clients, {own} at most,"
    return (
        f"Each sum is counted with the noise of all parties in it but for {known}: a participant knows {has} and could "
        f"take that away. This leaves the noise of at least {parties.honest} honest ones, and makes it "
        f"{parties.surplus:.3g} times as large as it had to be against the server and the public alone.",
    )


@dataclass
class Cohort:
    """All parties of a simulated federation, with identities that last; round numbers only grow."""

    members: tuple[Party, ...]
    number: int = 0

    @classmethod
    def fresh(cls, count: int) -> Cohort:
        """Parties with new identities."""
        return cls(tuple(Party(number, Identity.fresh()) for number in range(count)))

    def begin(self, wire: Ring, parties: Parties) -> tuple[ServerRound, dict[int, PartyRound]]:
        """The next round: the server's half, and each party's."""
        roster = {member.number: member.identity.public for member in self.members}
        terms = Agreement(
            "simulation",
            self.number,
            wire.dim,
            wire.bits,
            parties.threshold,
            roster,
            parties.colluders,
            noise=wire.share,
        )
        self.number += 1
        return ServerRound(terms), {member.number: member.begin(terms) for member in self.members}


@dataclass
class MaskedSum:
    """A sum under way in a simulation: each message that arrives is masked by the next party."""

    wire: Ring
    server: ServerRound
    parties: dict[int, PartyRound]
    requests: dict[int, bytes] = field(default_factory=dict)

    def add(self, messages: Tensor) -> None:
        """Mask and add messages [clients, dim]; the first of them has keys and shares exchanged before."""
        if not self.requests:
            self._stage()
            self._stage()
            self.requests = self.server.requests()
        for message in messages.cpu().numpy():
            if not self.requests:
                raise Incompatible(f"more messages than the {len(self.parties)} parties of this sum")
            number, request = self.requests.popitem()
            self.server.take(number, self.parties[number].answer("mask", request, message))

    def _stage(self) -> None:
        stage = self.server.stage
        for number, request in self.server.requests().items():
            self.server.take(number, self.parties[number].answer(stage, request))
        self.server.close()

    def open(self) -> Tensor:
        """The sum over those who sent something; the others count as dropped out."""
        if self.server.stage == "mask":
            self.server.close()
            self._stage()
            self._stage()
        return torch.from_numpy(self.server.open().astype(np.int64))


@dataclass(frozen=True)
class SecAgg:
    """Masked sums in a ring; `parties` come with the mechanism that shared its noise out over them."""

    name: str = "secagg"
    blind: bool = False
    needs_cohort: bool = True
    carries: tuple[str, ...] = ("ring",)
    parties: Parties | None = None
    bits: int = 32  # of a number on the way

    @property
    def caveats(self) -> tuple[str, ...]:
        """Whom one has to trust for what, in numbers."""
        if self.parties is None:
            return ()
        count, needed, lent = self.parties.count, self.parties.threshold, self.parties.colluders
        helpers = f"and up to {lent} parties that help it " if lent else ""
        opening = (
            f"The server {helpers}saw sums over at least {needed} of the {count} parties and nothing else. With more "
            f"of them helping it the guarantee is weaker, and {needed} of them together could open every message."
        )
        return (
            opening,
            *_known_shares(self.parties),
            _TRUSTED_PARTS,
            *((_CURIOUS,) if count > MOST_COMPLETE else ()),
        )

    def fitted(self, wire: Wire, clients: int) -> SecAgg:
        """The same, for the parties that the mechanism counts on; refuses a threshold that does not protect."""
        if wire.kind not in self.carries:  # whoever composes says what does not fit
            return self
        parties = cast(Ring, wire).parties or Parties.among(clients, threshold=clients)
        check_threshold(parties.count, parties.threshold, parties.colluders)
        return replace(self, parties=parties, bits=cast(Ring, wire).bits)

    @cached_property
    def cohort(self) -> Cohort:
        """The parties of a simulation."""
        return Cohort.fresh(self._fitted.count)

    @property
    def _fitted(self) -> Parties:
        if self.parties is None:
            raise Incompatible(
                "secagg: call `fitted` with the form of the messages and the number of parties first"
            )
        return self.parties

    def rounded(self, messages: Tensor, rng: Rng, ids: np.ndarray) -> Tensor:
        """The messages as they are: they are integers already."""
        return messages

    def bytes_up(self, wire: Wire, plain: int) -> int:
        """The packed vector; keys, shares and signatures are counted by stage in benchmarks/results/secure.md."""
        return packed_size(wire.dim, self.bits)

    def bytes_down(self, plain: int) -> int:
        """The broadcast, which is open."""
        return plain

    def zero(self, wire: Wire) -> MaskedSum:
        """A new round, before anybody sent keys."""
        ring = cast(Ring, wire)
        return MaskedSum(ring, *self.cohort.begin(ring, self._fitted))

    def absorb(self, wire: Wire, total: MaskedSum, messages: Tensor, weights: Tensor) -> MaskedSum:
        """The sum with a chunk of arrivals, masked on the way."""
        if not bool((weights == 1).all()):
            raise Incompatible("masked messages cannot be weighted: use a schedule in which all count alike")
        total.add(messages)
        return total

    def open(self, wire: Wire, total: MaskedSum) -> Tensor:
        """The sum, if enough parties are in it."""
        return total.open()
