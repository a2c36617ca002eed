"""Masked sums over a channel: each site runs its half inside its answers, the server routes and opens the sum alone.

A site is one party, whatever the number of its clients: each of them adds its share of the noise, and the site masks
their sum. Stages before the work exchange keys and shares, the work's result is the masked vector, stages after it
confirm the survivors and reveal what opens the sum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.atomic import write_file
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.link.routed import Routed
from fedsynth.deploy.site.run import Seal
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.algorithm import Algorithm, Job
from fedsynth.federation.link import Arrival
from fedsynth.federation.state import ServerState
from fedsynth.transport.agreement import Aborted, Agreement, Cheated, party_threshold
from fedsynth.transport.masking_client import Party, PartyRound
from fedsynth.transport.masking_server import ServerRound
from fedsynth.transport.primitives import Identity, digest
from fedsynth.transport.ring import Parties, Ring
from fedsynth.transport.wire import Wire

_SESSION = 2**24  # rounds that one session of the server can have


@dataclass(frozen=True)
class _Order:
    """The server's announcement of a round; a site checks all that its safety rests on."""

    number: int
    job: str
    sites: tuple[str, ...]
    clients: tuple[int, ...]  # of each site
    minimum: int  # sites that must be in the sum

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, payload: bytes) -> _Order:
        try:
            read: Any = json.loads(payload)
            order = cls(
                read["number"], read["job"], tuple(read["sites"]), tuple(read["clients"]), read["minimum"]
            )
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"the order of a masked round cannot be read ({error})") from None
        counts = (order.number, order.minimum, *order.clients)
        named = isinstance(order.job, str) and all(isinstance(site, str) for site in order.sites)
        whole = all(type(count) is int and count >= 0 for count in counts) and 0 not in order.clients
        if (
            not named
            or not whole
            or len({*order.sites}) != len(order.sites)
            or len(order.clients) != len(order.sites)
        ):
            raise BadInput(
                "the order of a masked round has a number, a job, the names of different sites and their clients"
            )
        return order

    def agreement(self, run: str, wire: Wire, known: Mapping[str, bytes]) -> Agreement:
        """The terms of the round as either side makes them from what it knows itself."""
        ring, parties, total = cast(Ring, wire), _parties_of(wire), sum(self.clients)
        if total != parties.count:
            raise Incompatible(
                f"{total} clients at {len(self.sites)} sites for noise in {parties.count} shares: each client adds "
                "one; begin the run anew with the sites that are there"
            )
        most = max(self.clients)
        if most > parties.largest:
            raise Incompatible(
                f"a site with {most} clients knows as many shares of the noise, which counts on {parties.largest} at "
                "most; begin the run anew with the sites that are there"
            )
        needed, helping = party_threshold(self.clients, parties.threshold, parties.colluders)
        threshold = min(max(needed, self.minimum), len(self.sites))
        roster = {place: known[site] for place, site in enumerate(self.sites)}
        sizes = {} if total == len(self.sites) else dict(enumerate(self.clients))
        name, least = f"{run} {self.job}", parties.threshold
        return Agreement(
            name, self.number, ring.dim, ring.bits, threshold, roster, helping, sizes, least, ring.share
        )


@dataclass
class MaskingSite:
    """A site's half. It remembers on disk the last round it was in; keys and masks are in memory only."""

    run: str
    algorithm: Algorithm
    folder: Path
    name: str
    identity: Identity = field(repr=False)
    known: Mapping[str, bytes]  # the identities of all sites, from before the run
    minimum: int = 2
    clients: int = 1  # that it has
    _round: PartyRound | None = field(default=None, repr=False)
    _job: str = field(default="", repr=False)
    _delivered: bytes = field(default=b"", repr=False)
    _answers: dict[bytes, bytes] = field(default_factory=dict, repr=False)

    def stage(self, version: int, name: str, payload: bytes) -> bytes:
        """One stage; the very same request gets the very same answer, and another one in its place is refused."""
        request = digest(name.encode(), payload)
        if request not in self._answers:
            self._answers[request] = self._answer(name, payload)
        return self._answers[request]

    def _answer(self, name: str, payload: bytes) -> bytes:
        if name == "identity":
            return self.identity.public
        if name == "advertise":
            self._answers.clear()
            self._begin(payload)
            return self._current.answer("advertise", b"")
        if name == "mask":
            self._delivered = payload
            return b""
        return self._current.answer(name, payload)

    def _begin(self, payload: bytes) -> None:
        order = _Order.from_bytes(payload)
        strangers = [site for site in order.sites if site not in self.known]
        if strangers:
            raise Cheated(f"site {strangers[0]!r} is not among the identities known here")
        if self.name not in order.sites:
            raise Cheated(f"the cohort does not have this site, {self.name!r}, in it")
        place = order.sites.index(self.name)
        if order.clients[place] != self.clients:
            raise Cheated(f"this site is said to have {order.clients[place]} clients; it has {self.clients}")
        party = Party(place, self.identity, self.minimum, self._last())
        wire = _wire_of(self.algorithm, order.job)
        self._round = party.begin(order.agreement(self.run, wire, self.known))
        self._job = order.job
        self._remember(order.number)

    @property
    def _current(self) -> PartyRound:
        if self._round is None:
            raise Cheated("a stage was asked for before its round began here")
        return self._round

    def _last(self) -> int:
        path = self.folder / "last"
        return int(path.read_text()) if path.is_file() else -1

    def _remember(self, number: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_file(self.folder / "last", str(number))

    def seal(self, job: str, total: Tensor, clients: int) -> bytes:
        """The site's vector [1, dim] under its masks, if it is of the job that the round was begun for.

        Every client of the site has to be in it, with its share of the noise: the others in the sum count on that.
        """
        current = self._current
        if job != self._job:
            raise Cheated(f"job={job!r}: this masked round was begun for the job {self._job!r}")
        if clients != self.clients or len(total) != 1:
            raise Cheated(
                f"{clients} shares of noise in {len(total)} vectors: this site's message is one vector with the "
                f"{self.clients} shares of its clients, and nothing else is masked"
            )
        return current.answer("mask", self._delivered, total[0].cpu().numpy())

    def unseal(self, sealed: bytes) -> dict[str, Tensor]:
        """Nothing: masked sums open at the server alone."""
        raise Cheated("a sealed average was sent in a run over masked sums, which has none")


def masking(
    name: str, identity: Identity, known: Mapping[str, bytes], minimum: int = 2, clients: int = 1
) -> Seal:
    """The site's half of secagg, for `Site(seals={"secagg": ...})`."""

    def masking_site(run: str, algorithm: Algorithm, folder: Path) -> MaskingSite:
        return MaskingSite(run, algorithm, folder, name, identity, known, minimum, clients)

    return masking_site


def _parties_of(wire: Wire) -> Parties:
    """Whose noise makes the sum private; without anybody's it is not masked either."""
    parties = cast(Ring, wire).parties
    if parties is None:
        raise Incompatible(
            "masked sums over sites carry noise in shares, and this mechanism shares none out; use trust=distributed"
        )
    return parties


def _wire_of(algorithm: Algorithm, job: str) -> Wire:
    if job == "round":
        return algorithm.wire
    if job == "balance" and algorithm.opening is not None:
        return algorithm.opening.wire
    raise BadInput(f"job={job[:40]!r}: this run has no such job")


@dataclass
class MaskedLink:
    """The server's half: a link to sites whose single messages stay hidden from it.

    It asks the sites for their identities unless it is given them: sites trust those that they know themselves.
    """

    remote: Remote
    known: dict[str, bytes] = field(default_factory=dict)
    _round: ServerRound | None = field(default=None, init=False)
    _job: Job | None = field(default=None, init=False)
    _sites: list[str] = field(default_factory=list, init=False)
    _version: int = field(default=0, init=False)
    _count: int = field(default=0, init=False)

    def start(self, job: Job, ids: np.ndarray, state: ServerState) -> None:
        """Exchange keys and shares with the sites, then send them the work."""
        members = sorted(self.remote.roster.members.values(), key=lambda member: member.first)
        self._sites = [member.name for member in members]
        self._introduce(state.version)
        self._count += 1
        number = self.remote.roster.session * _SESSION + self._count
        name = "balance" if job is self._opening else "round"
        clients = tuple(member.clients for member in members)
        order = _Order(number, name, tuple(self._sites), clients, self.remote.minimum)
        terms = order.agreement(self.remote.run, job.wire, self.known)
        self._round, self._job, self._version = ServerRound(terms), job, state.version
        present = [self._sites.index(site) for site in self.remote.roster.present]
        self._stage(dict.fromkeys(present, order.to_bytes()))
        self._stage()
        self.remote.stage(self._version, "mask", self._named(self._round.requests()))
        self.remote.start(job, ids, state)

    def _introduce(self, version: int) -> None:
        """Learn who the sites are."""
        unknown = [site for site in self._sites if site not in self.known]
        if unknown:
            self.known |= self.remote.stage(version, "identity", dict.fromkeys(unknown, b""))
        missing = sorted(set(unknown) - set(self.known))
        if missing:
            raise Aborted(
                f"{', '.join(missing)} did not say who they are: no masked sum without them in the first round; give "
                "each site keys (fedsynth keys create, then [keys] folder in its site.toml)"
            )

    def _named(self, requests: Mapping[int, bytes]) -> dict[str, bytes]:
        return {self._sites[number]: request for number, request in requests.items()}

    def _stage(self, requests: Mapping[int, bytes] | None = None) -> None:
        """One stage with all who are still there; what does not fit is as good as not sent."""
        assert self._round is not None
        requests_by_site = self._named(self._round.requests() if requests is None else requests)
        for site, answer in self.remote.stage(self._version, self._round.stage, requests_by_site).items():
            self._take(site, answer)
        self._round.close()

    def _take(self, site: str, answer: bytes) -> bool:
        assert self._round is not None
        try:
            self._round.take(self._sites.index(site), answer)
        except BadInput as error:
            self.remote.tell(site, self._version, f"is left out of the masked sum: {error}")
            return False
        return True

    def next(self) -> Arrival:
        """The next site whose vector went into the sum, or the news that it did not."""
        arrival = self.remote.next()
        assert self._job is not None
        nothing = self._job.wire.zero()[None][:0]
        if not len(arrival.ids):
            return arrival
        site = self.remote.roster.owner(int(arrival.ids[0]))
        if arrival.messages.dtype == torch.uint8 and self._take(site, arrival.messages.numpy().tobytes()):
            return replace(arrival, messages=nothing)
        nobody = np.empty(0, dtype=np.int64)
        return replace(arrival, ids=nobody, messages=nothing, lost=arrival.lost + len(arrival.ids))

    def open(self) -> Tensor:
        """The sum over the sites that are in it, once enough of them confirmed the same list and revealed shares."""
        assert self._round is not None
        self._round.close()
        self._stage()
        self._stage()
        return torch.from_numpy(self._round.open().astype(np.int64))

    def absent(self, *, for_good: bool = False) -> np.ndarray:
        """Nobody: it is for rounds."""
        return np.empty(0, dtype=np.int64)

    def commit(self) -> None:
        """As the link beneath."""
        self.remote.commit()

    def index(self) -> dict[str, Tensor]:
        """As the link beneath."""
        return self.remote.index()

    def restore(self, index: dict[str, Tensor]) -> None:
        """As the link beneath."""
        self.remote.restore(index)

    def close(self, state: ServerState) -> None:
        """As the link beneath."""
        self.remote.close(state)

    def routed(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm as the server runs it over this link: sums come from here, opened."""
        opening = algorithm.opening
        if opening is not None:
            opening = replace(opening, transport=Routed(self, opening.transport))
        self._opening = opening
        return replace(algorithm, transport=Routed(self, algorithm.transport), opening=opening)
