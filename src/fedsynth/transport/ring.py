"""Integers modulo a power of two, and the parties whose sum of them opens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsynth.errors import BadInput, Incompatible


@dataclass(frozen=True)
class Parties:
    """Who adds noise: how many shares there are, how many a sum needs to open, and how many of them somebody knows.

    `colluders` may help the server. `largest` are the shares of the participant that has most, which knows them all: a
    participant is a client, or a site with all its clients. The noise is calibrated to `honest`: shares that are in
    every sum that opens and that neither the server with its helpers nor any one participant knows.

    >>> Parties(10, threshold=8, colluders=2).honest, Parties(10, threshold=8).honest
    (6, 7)
    """

    count: int
    threshold: int
    colluders: int = 0
    largest: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= self.count:
            raise BadInput(
                f"threshold={self.threshold} of {self.count} parties: it lies between 1 and their number"
            )
        if not 0 <= self.colluders < self.threshold:
            raise BadInput(
                f"colluders={self.colluders}: fewer than the threshold of {self.threshold} parties may collude, "
                "else nobody is left whose noise they do not know"
            )
        if not 0 <= self.largest < self.threshold:
            raise BadInput(
                f"largest={self.largest}: a participant with so many of the {self.threshold} shares that a sum needs "
                "knows all of its noise; set a threshold above it, or let more participants take part"
            )

    @classmethod
    def among(cls, count: int, largest: int = 1, threshold: int = 0, colluders: int = 0) -> Parties:
        """The parties of `count` shares; unless a threshold is given, a tenth of them may be missing from a sum.

        None may where the largest participant alone has more than a tenth: so much could be known of the rest already.
        A participant that has all shares has no fellows who could look at its data.

        >>> Parties.among(30).threshold, Parties.among(30, largest=10), Parties.among(1).honest
        (27, Parties(count=30, threshold=30, colluders=0, largest=10), 1)
        """
        tenth = count // 10
        usual = count - tenth if largest <= tenth else count
        return cls(count, threshold or usual, colluders, largest if largest < count else 0)

    @property
    def known(self) -> int:
        """The most shares that anybody knows: all who help the server, or one participant by itself."""
        return max(self.colluders, self.largest)

    @property
    def honest(self) -> int:
        """Shares that are surely in the sum and that nobody knows who looks at it."""
        return self.threshold - self.known

    @property
    def surplus(self) -> float:
        """The noise over what would do against the server and the public alone.

        >>> round(Parties(2, 2).surplus, 3), round(Parties(5, 5).surplus, 3), Parties(5, 5, colluders=1).surplus
        (1.414, 1.118, 1.0)
        """
        return math.sqrt((self.threshold - self.colluders) / self.honest)


@dataclass(frozen=True)
class Ring:
    """A vector of integers modulo 2^bits; the sum is one too, so a uniform mask hides a message perfectly.

    `parties` are those that the noise in the sum was shared out over: no fewer may be in a sum that opens, and each
    counts on the others for a `share` of noise (its standard deviation) that is as large as its own.
    """

    dim: int
    bits: int
    parties: Parties | None = None
    share: float = 0.0
    kind: str = "ring"

    def zero(self) -> Tensor:
        """The empty sum."""
        return torch.zeros(self.dim, dtype=torch.int64)

    def add(self, total: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """The sum with a chunk of messages [parties, dim] added.

        >>> Ring(2, 4).add(torch.tensor([15, 3]), torch.tensor([[2, 1], [1, 1]]), torch.ones(2))
        tensor([2, 5])
        """
        if not bool((weights == 1).all()):
            raise Incompatible("a ring cannot be weighted: use a schedule in which all messages count alike")
        if messages.shape[1:] != (self.dim,):
            raise BadInput(f"messages of shape {tuple(messages.shape)}: expected [parties, {self.dim}]")
        return (total + messages.sum(0, dtype=torch.int64).to(total)) % 2**self.bits

    def fits(self, messages: Tensor, clients: int) -> bool:
        """One row of integers of the ring: a site's sum."""
        alike = messages.dtype == torch.int64 and tuple(messages.shape) == (1, self.dim)
        return alike and bool(((messages >= 0) & (messages < 2**self.bits)).all())

    def centered(self, total: Tensor) -> Tensor:
        """The sum as signed numbers from -2^(bits-1) up, float64.

        >>> Ring(2, 4).centered(torch.tensor([15, 3]))
        tensor([-1.,  3.], dtype=torch.float64)
        """
        half = 2 ** (self.bits - 1)
        return ((total + half) % 2**self.bits - half).to(torch.float64)
