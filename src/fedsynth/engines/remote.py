"""Clients behind a channel: the server's link to its sites, which may be slow, silent, dead, or back again."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedsynth.engines.channel import Channel
from fedsynth.engines.codec import MOST_BYTES, BadMessage, fingerprint
from fedsynth.engines.messages import (
    Accept,
    Begin,
    Done,
    Invite,
    Message,
    Refuse,
    Result,
    Settle,
    Stage,
    Staged,
    Terms,
    Work,
    read,
    write,
)
from fedsynth.engines.order import opened, order_of
from fedsynth.engines.roster import Member, Roster
from fedsynth.engines.site_state import public
from fedsynth.errors import FedsynthError
from fedsynth.federation.algorithm import Algorithm, Home, Job
from fedsynth.federation.link import Arrival
from fedsynth.federation.state import SEALED, ServerState


class TooFewSites(FedsynthError):
    """Fewer sites than the run may do with; it can be resumed when they are back."""


class Superseded(FedsynthError):
    """Another server conducts this run now."""


@dataclass(frozen=True)
class Patience:
    """How long the server waits: `timeout_s` for an answer, and `resend_s` before it asks the same again."""

    timeout_s: float = 600.0
    resend_s: float = 60.0
    ping_s: float = 2.0  # how often a site that is away is asked whether it is back
    most_bytes: int = MOST_BYTES


@dataclass
class Order:
    """Work that a site was asked for and has not answered."""

    name: str
    site: str
    job: Job
    ids: np.ndarray
    version: int
    payload: bytes
    deadline: float
    resend: float
    sent: int = 0

    @property
    def key(self) -> str:
        """Sites may be asked for the same work, each of its own clients."""
        return f"{self.site} {self.name}"


@dataclass
class Remote:
    """The link over any channel. `tell` hears what happens to sites: (site, version, what)."""

    channel: Channel
    run: str
    minimum: int = 1
    patience: Patience = field(default_factory=Patience)
    now: Callable[[], float] = time.monotonic
    tell: Callable[[str, int, str], None] = lambda site, version, what: None
    enclosed: bytes = b""  # goes along with the plan
    roster: Roster = field(default_factory=Roster, init=False)
    refusals: dict[str, str] = field(default_factory=dict, init=False)  # the last reason, by site
    _algorithm: Algorithm | None = field(default=None, init=False)
    _begin: Begin | None = field(default=None, init=False)
    _orders: dict[str, Order] = field(default_factory=dict, init=False)  # by site and name
    _ready: deque[Arrival] = field(default_factory=deque, init=False)
    _absorbed: list[tuple[str, str]] = field(default_factory=list, init=False)
    _parts: dict[tuple[str, int], int] = field(default_factory=dict, init=False)
    _pinged: dict[str, float] = field(default_factory=dict, init=False)

    def invite(self, terms: Terms) -> Roster:
        """Ask all sites whether they take part; those that refuse or are silent are not in the run.

        After `restore` the sites are those that began it, whether they answer now or not.
        """
        payload = write(Invite(self.run, terms))
        heard = self._ask(dict.fromkeys(self.channel.sites, payload))
        known = bool(self.roster.members)
        for site, answer in heard.items():
            if isinstance(answer, Accept):
                self.roster = self.roster.joined(site, answer.clients, answer.session, answer.seeded, known)
        if not known:
            self.roster = self.roster.numbered()
        for site in self.channel.sites:
            if site not in heard:
                self.tell(site, 0, f"did not answer the invitation within {self.patience.timeout_s:g} s")
        self._enough(self.roster.present)
        return self.roster

    def begin(self, terms: Terms, algorithm: Algorithm, state: ServerState) -> tuple[str, ...]:
        """Give the calibrated plan to the sites in the run; the names of those that refuse it.

        Where some refuse before the first round, `without` them the run can be calibrated and begun again.
        """
        start = {part: state.parts[part] for part, home in algorithm.homes.items() if home is Home.CLIENT}
        session = self.roster.session + 1
        self.roster = replace(self.roster, session=session)
        self._algorithm = algorithm
        self._begin = Begin(self.run, session, terms, 0, len(self.roster.members), start, self.enclosed)
        asked = {name: self._begin_of(name) for name in self.roster.present}
        heard = self._ask(asked)
        refused = []
        for site in asked:
            answer = heard.get(site)
            if isinstance(answer, Done):
                continue
            self.roster = self.roster.away(site)
            if isinstance(answer, Refuse):
                refused.append(site)
            else:
                self.tell(site, state.version, "did not answer; it may come back")
        self._enough(self.roster.present)
        return tuple(refused)

    def without(self, sites: Iterable[str]) -> None:
        """Leave sites out of the run, before its first round."""
        self.roster = self.roster.without(set(sites))

    def _begin_of(self, site: str) -> bytes:
        assert self._begin is not None
        return write(replace(self._begin, first=self.roster.members[site].first))

    def start(self, job: Job, ids: np.ndarray, state: ServerState) -> None:
        """Send each site the work of its clients; who is away is asked only whether it is back."""
        self._await_enough(state)
        name = self._name(job)
        part = self._parts.get((name, state.version), 0)
        self._parts = {(name, state.version): part + 1}
        broadcast = self._broadcast(job, state)
        for site, member in self.roster.members.items():
            mine = ids[(ids >= member.first) & (ids < member.first + member.clients)]
            if member.away or not len(mine):
                self._settle(member, state.version)
                if len(mine):
                    self._ready.append(_nothing(state.version, len(mine), job))
                continue
            tensors = {"ids": torch.from_numpy(mine), **broadcast}
            since = self._since(site, state.version)
            work = Work(
                self.run, self.roster.session, name, state.version, part, len(self.roster.present),
                since, member.used, tensors,
            )  # fmt: skip
            self._send(site, job, mine, work)

    def _send(self, site: str, job: Job, ids: np.ndarray, work: Work) -> None:
        payload, now = write(work), self.now()
        order = Order(
            order_of(work, ids, job), site, job, ids, work.version, payload,
            now + self.patience.timeout_s, now + self.patience.resend_s, len(payload),
        )  # fmt: skip
        self._orders[order.key] = order
        self.channel.send(site, payload)

    def _settle(self, member: Member, version: int) -> None:
        """Tell a site without work where the run stands; one that is away only now and then."""
        now = self.now()
        if member.away and now - self._pinged.get(member.name, -math.inf) < self.patience.ping_s:
            return
        self._pinged[member.name] = now
        self.channel.send(member.name, self._settling(member.name, version))

    def _since(self, site: str, version: int) -> int:
        """The first version of which a result of this site may still be used."""
        return min([order.version for order in self._orders.values() if order.site == site], default=version)

    def next(self) -> Arrival:
        """The next result; or, when a site was silent for too long or refused, the news that it is left out."""
        while not self._ready:
            assert self._orders, "nobody is under way"
            self._listen(self._orders.values())
            for order in [one for one in self._orders.values() if self.now() >= one.deadline]:
                self._lose(order, f"silent for {self.patience.timeout_s:g} s", away=True)
        return self._ready.popleft()

    def _listen(self, orders: Iterable[Order]) -> None:
        """Wait for one message, or until something is due."""
        due = min((min(order.deadline, order.resend) for order in orders), default=self.now())
        got = self.channel.receive(max(0.0, due - self.now()))
        if got is not None:
            self._take(*got)
        for order in [one for one in self._orders.values() if self.now() >= one.resend]:
            order.resend = self.now() + self.patience.resend_s
            order.sent += len(order.payload)
            if order.resend < order.deadline:
                self.channel.send(order.site, order.payload)

    def _take(self, site: str, payload: bytes) -> None:
        if site not in self.roster.members:
            return
        try:
            message = read(payload, self.patience.most_bytes)
            if isinstance(message, Result):
                order = self._orders.get(f"{site} {message.order}")
                if order is not None:
                    self._arrived(order, message, len(payload))
                self._back(site)
            elif message.run == self.run:
                self._answered(site, message)
        except BadMessage as error:
            self.tell(site, -1, f"sent what cannot be used: {error}")
            for order in [one for one in self._orders.values() if one.site == site]:
                self._lose(order, "sent what cannot be used")

    def _arrived(self, order: Order, result: Result, size: int) -> None:
        member = self.roster.members[order.site]
        ids, messages = opened(result, order.job, member.first, member.first + member.clients)
        del self._orders[order.key]
        self.roster = self.roster.changed(replace(member, used=()))  # it has heard of all that was used
        if self._name(order.job) == "round":
            self._absorbed.append((order.site, result.name))
        lost = len(order.ids) - len(ids)
        self._ready.append(Arrival(ids, messages, order.version, size, order.sent, lost))

    def _answered(self, site: str, message: Message) -> None:
        """What a site says apart from results: that it is there, or why it does not work."""
        if isinstance(message, Done):
            self._back(site)
        if not isinstance(message, Refuse):
            return
        if message.code == "begin" and self._begin is not None:
            self.channel.send(site, self._begin_of(site))
        for order in [one for one in self._orders.values() if one.site == site]:
            if message.answers != fingerprint(order.payload):
                continue
            if message.code == "session":
                raise Superseded(f"{site}: {message.reason}; stop this server, another one conducts the run")
            self.refusals[site] = message.reason
            self.roster = self.roster.refused(site, message.final)
            self._lose(order, f"refuses: {message.reason}")

    def _back(self, site: str) -> None:
        member = self.roster.members[site]
        if member.away and not member.out:
            self.tell(site, -1, "is back")
            self.roster = self.roster.changed(replace(member, away=False))

    def _lose(self, order: Order, why: str, *, away: bool = False) -> None:
        """Go on without a site in this round."""
        self._orders.pop(order.key, None)
        self.tell(order.site, order.version, why)
        if away:
            self.roster = self.roster.away(order.site)
        self._ready.append(_nothing(order.version, len(order.ids), order.job, order.sent))
        self._enough(self.roster.present)

    def commit(self, state: ServerState) -> None:
        """Remember which results are in this state; sites hear of it with the next message, when it is on disk."""
        for site, name in self._absorbed:
            member = self.roster.members[site]
            self.roster = self.roster.changed(replace(member, used=(*member.used, name)))
        self._absorbed.clear()

    def index(self) -> dict[str, Tensor]:
        """The sites of the run and which of their results are in the state."""
        return self.roster.to_tensors()

    def restore(self, index: dict[str, Tensor]) -> None:
        """Go back to a checkpoint: what sites have sent since is asked for again."""
        self.roster = Roster.from_tensors(index)
        self._orders.clear()
        self._ready.clear()
        self._absorbed.clear()
        self._parts.clear()

    def close(self, state: ServerState) -> None:
        """Tell all sites that the run is over and what was used at last; who is away is told but not waited for."""
        told = {name: self._settling(name, state.version, over=True) for name in self.roster.members}
        for name in set(told) - set(self.roster.present):
            self.channel.send(name, told[name])
        self._ask({name: told[name] for name in self.roster.present})

    @property
    def seeded(self) -> bool:
        """True if the randomness of some site can be repeated: the run is then a simulation."""
        return any(member.seeded for member in self.roster.members.values())

    def stage(self, version: int, name: str, payloads: dict[str, bytes]) -> dict[str, bytes]:
        """One step of the transport's protocol with these sites: the answers of those that gave one in time."""
        asked = {
            site: write(Stage(self.run, self.roster.session, version, name, payload))
            for site, payload in payloads.items()
        }
        heard = self._ask(asked)
        return {site: answer.blob for site, answer in heard.items() if isinstance(answer, Staged)}

    def _ask(self, payloads: dict[str, bytes]) -> dict[str, Message]:
        """The answers to these messages, one a site, of those that answered in time."""
        waiting = {site: fingerprint(payload) for site, payload in payloads.items()}
        heard: dict[str, Message] = {}
        deadline, resend = self.now() + self.patience.timeout_s, self.now()
        while waiting and self.now() < deadline:
            if self.now() >= resend:
                resend = self.now() + self.patience.resend_s
                for site in waiting:
                    self.channel.send(site, payloads[site])
            got = self.channel.receive(max(0.0, min(resend, deadline) - self.now()))
            if got is None:
                continue
            site, payload = got
            try:
                message = read(payload, self.patience.most_bytes)
            except BadMessage as error:
                self.tell(site, -1, f"sent what cannot be used: {error}")
                continue
            if getattr(message, "answers", None) != waiting.get(site, ""):
                self._take(site, payload)
                continue
            heard[site] = message
            del waiting[site]
            if isinstance(message, Refuse):
                self.refusals[site] = message.reason
                self.tell(site, -1, f"refuses: {message.reason}")
        return heard

    def _await_enough(self, state: ServerState) -> None:
        """Where too many sites are away, wait once more for them to come back before giving up."""
        if len(self.roster.present) >= self.minimum:
            return
        away = [site for site, member in self.roster.members.items() if member.away and not member.out]
        for site in self._ask({site: self._begin_of(site) for site in away}):
            self._back(site)
        self._enough(self.roster.present)

    def _enough(self, present: tuple[str, ...]) -> None:
        if len(present) < self.minimum:
            reasons = "".join(f"; {site} refuses: {reason}" for site, reason in self.refusals.items())
            raise TooFewSites(
                f"{len(present)} sites take part ({', '.join(present) or 'none'}), at least {self.minimum} must; "
                f"start the others again and continue with --resume{reasons}"
            )

    def _settling(self, site: str, version: int, *, over: bool = False) -> bytes:
        member = self.roster.members[site]
        since = self._since(site, version)
        return write(Settle(self.run, self.roster.session, version, since, member.used, over))

    def _broadcast(self, job: Job, state: ServerState) -> dict[str, Tensor]:
        """What the clients may know: shared parts, and the mechanism's state but for what it keeps secret."""
        assert self._algorithm is not None
        sent = {}
        if job is self._algorithm:
            sealed = SEALED in state.memory  # nobody here can open the average: sites do
            told = self._algorithm.unsealed if sealed else self._algorithm.broadcast
            sent = {f"parts/{name}": state.parts[name] for name in told}
            sent |= {SEALED: state.memory[SEALED]} if sealed else {}
            secret = tuple(getattr(self._algorithm.mechanism, "secret", ()))
            sent |= {f"mechanism/{name}": value for name, value in public(state.mechanism, secret).items()}
        return sent

    def _name(self, job: Job) -> str:
        assert self._algorithm is not None
        known: dict[str, Job | None] = {"round": self._algorithm, "balance": self._algorithm.balance}
        return next(name for name, one in known.items() if one is job)


def _nothing(version: int, lost: int, job: Job, sent: int = 0) -> Arrival:
    """The news that clients will not arrive."""
    empty = job.wire.zero()[None][:0]
    return Arrival(np.empty(0, dtype=np.int64), empty, version, 0, sent, lost)
