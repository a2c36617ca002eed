"""Which sites are in a run, which clients are theirs, and what each has still to hear: a value in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

_ROOM = "sites/"


@dataclass(frozen=True)
class Member:
    """One site: its clients are numbered from `first`; `used` names results that it may not know to be used.

    `away` sites are not waited for until they answer again, `out` ones refused for good.
    """

    name: str
    clients: int
    first: int = 0
    seeded: bool = False
    used: tuple[str, ...] = ()
    away: bool = False
    out: bool = False

    @property
    def ids(self) -> np.ndarray:
        """The numbers of its clients."""
        return np.arange(self.first, self.first + self.clients)

    def owns(self, ids: np.ndarray) -> bool:
        """Whether these are clients of this site."""
        return len(ids) > 0 and self.first <= int(ids[0]) < self.first + self.clients


@dataclass(frozen=True)
class Roster:
    """The sites of a run by name, in order; `session` is the highest that any of them has obeyed."""

    members: Mapping[str, Member] = field(default_factory=dict)
    session: int = 0

    @property
    def clients(self) -> int:
        """How many clients all sites have together."""
        return sum(member.clients for member in self.members.values())

    @property
    def largest(self) -> int:
        """How many clients the site has that has most; 1 if nobody has joined."""
        return max((member.clients for member in self.members.values()), default=1)

    @property
    def seeded(self) -> bool:
        """True if the randomness of some site can be repeated: the run is then a simulation."""
        return any(member.seeded for member in self.members.values())

    @property
    def present(self) -> tuple[str, ...]:
        """The sites that take part now."""
        return tuple(name for name, member in self.members.items() if not member.away)

    def owner(self, client: int) -> str:
        """The site of a client."""
        owners = (m for m in self.members.values() if m.first <= client < m.first + m.clients)
        return next(owners).name

    def joined(self, name: str, clients: int, session: int, seeded: bool, known: bool) -> Roster:
        """The same with a site that accepted; one that began the run with another number of clients stays away."""
        session = max(self.session, session)
        if not known:
            return replace(
                self, members={**self.members, name: Member(name, clients, seeded=seeded)}, session=session
            )
        member = self.members.get(name)
        if member is None or member.clients != clients:
            return replace(self, session=session)
        return replace(
            self.changed(replace(member, away=False, seeded=member.seeded or seeded)), session=session
        )

    def numbered(self) -> Roster:
        """The same with clients numbered through, sites by name."""
        members, first = {}, 0
        for name in sorted(self.members):
            members[name] = replace(self.members[name], first=first)
            first += members[name].clients
        return replace(self, members=members)

    def without(self, names: set[str]) -> Roster:
        """The same without some sites, numbered anew."""
        left = {
            name: replace(member, away=False) for name, member in self.members.items() if name not in names
        }
        return replace(self, members=left).numbered()

    def changed(self, member: Member) -> Roster:
        """The same with one site changed."""
        return replace(self, members={**self.members, member.name: member})

    def away(self, name: str) -> Roster:
        """The same with one site away."""
        return self.changed(replace(self.members[name], away=True))

    def refused(self, name: str, final: bool) -> Roster:
        """The same with a site that refused; for good if that was its last word."""
        return self.changed(replace(self.members[name], away=True, out=True)) if final else self

    def to_tensors(self) -> dict[str, Tensor]:
        """Named tensors, for the checkpoint."""
        tensors = {f"{_ROOM}session": torch.tensor([self.session])}
        for name, member in self.members.items():
            numbers = [member.first, member.clients, int(member.seeded), int(member.out)]
            tensors[f"{_ROOM}member/{name}"] = torch.tensor(numbers)
            used = np.frombuffer(" ".join(member.used).encode(), dtype=np.uint8)
            tensors[f"{_ROOM}used/{name}"] = torch.from_numpy(used.copy())
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Roster:
        """The roster that `to_tensors` wrote; nobody is present before it has answered."""
        members = {}
        for key in sorted(tensors):
            if not key.startswith(f"{_ROOM}member/"):
                continue
            name = key.removeprefix(f"{_ROOM}member/")
            first, clients, seeded, out = tensors[key].tolist()
            used = bytes(tensors[f"{_ROOM}used/{name}"].numpy()).decode().split()
            members[name] = Member(name, clients, first, bool(seeded), tuple(used), away=True, out=bool(out))
        return cls(members, int(tensors[f"{_ROOM}session"][0]))
