"""The public terms of one masked sum, which every party checks for itself, and who is whose neighbor in it.

Up to 100 parties everybody masks with everybody (Bonawitz et al. 2017). Above, each masks with k neighbors only, on a
random circle (Bell et al. 2020): k and the number of shares that open a secret follow from how many parties may
collude or drop out, so that failure has probability 2^-40 (privacy) or 2^-20 (the sum does not open). Everybody with
everybody stands against a server that lies; neighbors stand against one that is curious, but does not itself choose
whom to report as dropped out: that could cut the circle into arcs whose sums it learns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from fedsynth.errors import BadInput, FedsynthError, Incompatible
from fedsynth.late import stats
from fedsynth.transport.primitives import digest

MOST_COMPLETE = 100  # parties that all mask with each other
_SECRECY, _SUCCESS = 2.0**-40, 2.0**-20
STAGES = ("advertise", "share", "mask", "confirm", "reveal")


class Cheated(FedsynthError):
    """An honest party was asked for what could reveal somebody's input: it stops and says why."""


class Aborted(FedsynthError):
    """Too few parties are left to open the sum; nothing of it was revealed."""


def check_threshold(count: int, threshold: int, colluders: int) -> None:
    """Refuse a threshold that does not protect.

    A server that shows different survivors to different parties is powerless only if no two lists can find enough
    who confirm them: 2 * threshold > parties + colluders.

    >>> check_threshold(4, 3, 1)
    """
    if not 2 <= threshold <= count:
        raise Incompatible(
            f"threshold={threshold} of {count} parties: secure aggregation needs at least 2 in a sum, and no more "
            "than there are"
        )
    if 2 * threshold <= count + colluders:
        raise Incompatible(
            f"threshold={threshold} of {count} parties with {colluders} colluders: a server could show two halves "
            f"different survivors; use a threshold above {(count + colluders) / 2:g}"
        )


def party_threshold(members: Sequence[int], threshold: int, colluders: int) -> tuple[int, int]:
    """From clients to parties that have several: how many parties a sum needs, and how many may help the server.

    No fewer parties have `threshold` clients together, and no more than the second have at most `colluders`.

    >>> party_threshold([1, 1, 1, 1], 3, 1), party_threshold([50, 30, 20], 90, 20)
    ((3, 1), (3, 1))
    """
    largest, smallest = sorted(members, reverse=True), sorted(members)
    needed = next(k for k in range(len(members) + 1) if sum(largest[:k]) >= min(threshold, sum(members)))
    helping = next(k for k in range(len(members), -1, -1) if sum(smallest[:k]) <= colluders)
    return max(needed, (len(members) + helping) // 2 + 1), helping


@dataclass(frozen=True)
class Agreement:
    """One round's terms: who may take part, known by which identity, what is summed, how many must survive."""

    run: str
    number: int  # of the round; a party never takes part in the same or an earlier one again
    dim: int
    bits: int
    threshold: int
    roster: Mapping[int, bytes]  # long-term public keys, by party
    colluders: int = 0
    members: Mapping[int, int] = field(default_factory=dict)  # clients of a party, where it has several
    least: int = 0  # clients that must be in a sum: their noise makes it private
    noise: float = 0.0  # standard deviation of the noise that each client brings; all count on each other's

    def __post_init__(self) -> None:
        if self.members and (set(self.members) != set(self.roster) or min(self.members.values()) < 1):
            raise BadInput(f"members={dict(self.members)}: expected a number of clients for each party")
        check_threshold(len(self.roster), self.threshold, self.colluders)
        if not 1 <= self.bits <= 32 or self.dim < 1:
            raise BadInput(f"bits={self.bits}, dim={self.dim}: expected 1 to 32 bits and at least one number")

    @cached_property
    def context(self) -> bytes:
        """A name of just these terms: whatever is signed, sealed or derived is bound to it."""
        members = [number.to_bytes(4, "big") + key for number, key in sorted(self.roster.items())]
        sizes = tuple(sorted(self.members.items()))
        noise = f"{self.noise:.8g}"  # the last digits may differ between machines
        numbers = (self.number, self.dim, self.bits, self.threshold, self.colluders, sizes, self.least, noise)
        return digest(b"fedsynth secagg 2", self.run.encode(), repr(numbers).encode(), *members)

    def clients(self, parties: Iterable[int]) -> int:
        """How many clients these parties have together."""
        return sum(self.members.get(party, 1) for party in parties)

    @cached_property
    def degree(self) -> tuple[int, int]:
        """Neighbors of a party, and shares (its own included) that open its secrets."""
        count = len(self.roster)
        if count <= MOST_COMPLETE:
            return count - 1, self.threshold
        return sparse_degree(count, self.threshold, self.colluders)

    def neighbors(self, present: Sequence[int], of: int | None = None) -> dict[int, tuple[int, ...]]:
        """Who masks with whom, among those present: on a circle whose order is a hash of the terms and the present.

        A party that asks `of` itself alone is told no more, which is faster.
        """
        most, _ = self.degree
        parties = present if of is None else (of,)
        if len(present) - 1 <= most:
            return {party: tuple(other for other in present if other != party) for party in parties}
        salt = digest(self.context, b"circle", *(party.to_bytes(4, "big") for party in present))
        circle = sorted(present, key=lambda party: digest(salt, party.to_bytes(4, "big")))
        around = [step for half in range(1, most // 2 + 1) for step in (-half, half)]
        places = enumerate(circle) if of is None else ((circle.index(of), of),)
        return {
            party: tuple(sorted(circle[(place + step) % len(circle)] for step in around))
            for place, party in places
        }


@lru_cache(maxsize=32)
def sparse_degree(count: int, threshold: int, colluders: int) -> tuple[int, int]:
    """The least even number of neighbors, and the most shares that open a secret, for which failures are rare.

    Privacy fails where colluders alone hold enough shares of a neighborhood, or where those who are neither colluding
    nor gone fall apart on the circle; opening fails where drop-outs leave too few shares. With random places these
    are hypergeometric tails and a run of half as many places, times the number of parties (Bell et al. 2020, Section
    3). A majority of the neighbors is not needed: that all open the same list is what `spot_checks` are for.

    >>> sparse_degree(1000, 900, 50), sparse_degree(1000, 700, 50)
    ((36, 19), (66, 23))
    """
    for degree in range(8, count - 1, 2):
        shares = np.arange(2, degree + 1)
        exposed = stats.hypergeom.sf(shares - 1, count - 1, colluders, degree)
        stuck = stats.hypergeom.cdf(shares - 1, count - 1, threshold - 1, degree)
        enough = shares[(count * exposed <= _SECRECY) & (count * stuck <= _SUCCESS)]
        if len(enough) and _falls_apart(count, count - threshold + colluders, degree // 2) <= _SECRECY:
            return degree, int(enough[-1])
    return count - 1, threshold


def _falls_apart(count: int, missing: int, half: int) -> float:
    """A bound on the chance that `half` places in a row, which alone part a circle, are all missing somewhere."""
    return count * math.prod(max(0, missing - step) / (count - step) for step in range(half))


def spot_checks(count: int, threshold: int, colluders: int) -> int:
    """Signatures by parties chosen at random that a party checks, so that no two lists of survivors are believed.

    Honest parties sign one list, so of two lists with `threshold` signatures each at least 2 * threshold - count -
    colluders are made up, and half of these under one of the two. Whoever is shown that one misses them all with a
    probability of at most 2^-40, over all parties.

    >>> spot_checks(1000, 900, 50), spot_checks(1000, 700, 50), spot_checks(1000, 530, 50)
    (74, 181, 999)
    """
    share = max(1, 2 * threshold - count - colluders) / 2 / count
    return min(count - 1, math.ceil(math.log(_SECRECY / count) / math.log1p(-share)))


def dump(parties: Sequence[int]) -> bytes:
    """A list of parties as bytes, in ascending order."""
    return b"".join(party.to_bytes(4, "big") for party in sorted(parties))


def load(data: bytes) -> list[int]:
    """The list that `dump` wrote; refuses repetitions and disorder."""
    parties = [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]
    if len(data) % 4 or parties != sorted(set(parties)):
        raise BadInput("a list of parties is not in ascending order, or names one of them twice")
    return parties
