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

from fedsynth.deploy.link.channel import Channel
from fedsynth.deploy.link.codec import BadMessage, fingerprint
from fedsynth.deploy.link.ledger_heads import LedgerHeads

from fedsynth.deploy.link.messages import (  # isort: skip
    Accept, Begin, Done, Invite, Message, Notice, Refuse, Result, Settle, Stage, Staged, Terms, Work, read, write,
)  # fmt: skip
from fedsynth.deploy.link.order import Order, broadcast_of, nothing, opened, order_of, remembers
from fedsynth.deploy.link.patience import Patience, Superseded, too_few
from fedsynth.deploy.link.roster import Member, Roster
from fedsynth.federation.algorithm import Algorithm, Home, Job, secret_draw
from fedsynth.federation.link import Arrival
from fedsynth.federation.state import ServerState

_BEFORE_WORK = ("begin", "budget", "message", "policy", "turns")  # refusals after which nothing was sent


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
    advice: str = "start the others again and continue with --resume"  # where too few sites take part
    # hears instead of `tell` what would show that a site was drawn, where nobody but the server may know it
    whisper: Callable[[str, int, str], None] = lambda site, version, what: None
    heads: LedgerHeads = field(default_factory=LedgerHeads)  # of the sites' ledgers
    roster: Roster = field(default_factory=Roster, init=False)
    refusals: dict[str, Refuse] = field(default_factory=dict, init=False)  # the last of each site
    _algorithm: Algorithm | None = field(default=None, init=False)
    _begin: Begin | None = field(default=None, init=False)
    # versions of which results of a site are still to be asked for
    unsettled: Callable[[str], Iterable[int]] = field(default_factory=lambda: lambda site: (), init=False)
    orders: dict[str, Order] = field(default_factory=dict, init=False)  # by site and name
    ready: deque[Arrival] = field(default_factory=deque, init=False)  # news that nobody has taken yet
    _absorbed: list[Arrival] = field(default_factory=list, init=False)  # names of results since the last step
    _resting: dict[int, float] = field(default_factory=dict, init=False)  # clients, not asked until then
    _parts: dict[tuple[str, int], int] = field(default_factory=dict, init=False)
    _secret: bool = field(default=False, init=False)  # whether nobody else may know who was drawn
    _pinged: dict[str, float] = field(default_factory=dict, init=False)

    def invite(self, terms: Terms) -> Roster:
        """Ask all sites whether they take part; those that refuse or are silent are not in the run.

        After `restore` the sites are those that began it, whether they answer now or not.
        """
        known_lines = {site: self.heads.known(site) for site in self.channel.sites}
        heard = self._ask({site: write(Invite(self.run, terms, n)) for site, n in known_lines.items()})
        known = bool(self.roster.members)
        for site, answer in heard.items():
            if isinstance(answer, Accept) and self._trusted(site, answer):
                self.roster = self.roster.joined(site, answer.clients, answer.session, answer.seeded, known)
        if not known:
            self.roster = self.roster.numbered()
        for site in self.channel.sites:
            if site not in heard:
                self.tell(site, 0, f"did not answer the invitation within {self.patience.timeout_s:g} s")
        self.heads.save()
        self._enough(self.roster.present)
        return self.roster

    def _trusted(self, site: str, accept: Accept) -> bool:
        """Whether the site's ledger goes on from the one that it showed before; both sides hear if it does not."""
        problem = self.heads.problem(site, accept)
        if problem:
            self.refusals[site] = Refuse(self.run, "", "ledger", problem, final=True)
            self.tell(site, -1, f"is refused: {problem}")
            self.channel.send(site, write(Notice(self.run, f"this site is refused: {problem}")))
        else:
            self.heads.note(site, accept.ledger)
        return not problem

    def begin(self, terms: Terms, algorithm: Algorithm, state: ServerState) -> tuple[str, ...]:
        """Give the calibrated plan to the sites in the run; the names of those that refuse it.

        Where some refuse before the first round, `without` them the run can be calibrated and begun again.
        """
        start = {part: state.parts[part] for part, home in algorithm.homes.items() if home is Home.CLIENT}
        session = self.roster.session + 1
        self.roster = replace(self.roster, session=session)
        self._algorithm = algorithm
        self._begin = Begin(self.run, session, terms, 0, len(self.roster.members), start, self.enclosed)
        messages = {name: self._begin_of(name) for name in self.roster.present}
        heard = self._ask(messages)
        refused = []
        for site in messages:
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
        self._secret = secret_draw(job)
        if self._secret:
            self._call_roll(state.version)
        self.await_enough()
        name = self._name(job)
        part = self._parts.get((name, state.version), 0)
        self._parts = {(name, state.version): part + 1}
        sent = self.broadcast(job, state)
        for member in self.roster.members.values():
            mine = ids[(ids >= member.first) & (ids < member.first + member.clients)]
            if len(mine) and not member.away:
                self.ask(member, job, mine, state.version, part, sent)
                continue
            if member.away or not self._secret:  # the others have heard it in the roll-call
                self.settle(member, state.version)
            if len(mine):
                self.ready.append(nothing(state.version, mine, job))

    def ask(
        self, member: Member, job: Job, ids: np.ndarray, version: int, part: int, sent: dict[str, Tensor]
    ) -> None:
        """Send a site the work of these clients of its, from a version that was broadcast as `sent`."""
        work = Work(
            self.run, self.roster.session, self._name(job), version, part, len(self.roster.present),
            self._since(member, version), member.used, {"ids": torch.from_numpy(ids), **sent},
        )  # fmt: skip
        payload, now = write(work), self.now()
        order = Order(
            order_of(work, ids, job), member.name, job, ids, version, payload,
            now + self.patience.timeout_s, now + self.patience.resend_s, member.used, len(payload),
            math.inf if self._secret else now + self.patience.slow_s,  # it would show who was drawn
        )  # fmt: skip
        self.orders[order.key] = order
        self.channel.send(member.name, payload)

    def settle(self, member: Member, version: int) -> None:
        """Tell a site without work where the run stands; one that is away only now and then."""
        now = self.now()
        if member.away and now - self._pinged.get(member.name, -math.inf) < self.patience.ping_s:
            return
        self._pinged[member.name] = now
        self.channel.send(member.name, self._settling(member, version))

    def _since(self, member: Member, version: int) -> int:
        """The first version of which a result of this site may still be used."""
        ordered = [order.version for order in self.orders.values() if order.site == member.name]
        came = [one.version for one in (*self.ready, *self._absorbed) if one.name and member.owns(one.ids)]
        return min([version, *ordered, *came, *self.unsettled(member.name)])

    def absent(self, *, for_good: bool = False) -> np.ndarray:
        """The clients of sites that are away or out, and those that refused a moment ago or have had their turns."""
        away = [one.ids for one in self.roster.members.values() if one.out or (one.away and not for_good)]
        least = math.inf if for_good else math.nextafter(self.now(), math.inf)
        resting = [client for client, until in self._resting.items() if until >= least]
        return np.concatenate([np.array(resting, dtype=np.int64), *away])

    def next(self) -> Arrival:
        """The next result; or, when a site was silent for too long or refused, the news that it is left out."""
        while not self.ready:
            assert self.orders, "nobody is under way"
            self.wait()
        return self.take()

    def take(self) -> Arrival:
        """The news that came first; a result among them is in the next state."""
        arrival = self.ready.popleft()
        if arrival.name:
            self._absorbed.append(replace(arrival, messages=arrival.messages[:0]))
        return arrival

    def wait(self, until: float = math.inf) -> None:
        """Wait for one message, until something is due, or until then; give up who was silent for too long."""
        due = min([until, *(order.due for order in self.orders.values())])
        got = self.channel.receive(max(0.0, due - self.now()))
        if got is not None:
            self._take(*got)
        for order in [one for one in self.orders.values() if self.now() >= one.resend]:
            order.resend = self.now() + self.patience.resend_s
            order.sent += len(order.payload)
            if order.resend < order.deadline:
                self.channel.send(order.site, order.payload)
        for order in [one for one in self.orders.values() if self.now() >= one.slow]:
            order.slow = math.inf
            self.tell(order.site, -1, self.patience.slow_news)
        for order in [one for one in self.orders.values() if self.now() >= one.deadline]:
            self._lose(order, f"silent for {self.patience.timeout_s:g} s", away=True)

    def _take(self, site: str, payload: bytes) -> None:
        if site not in self.roster.members:
            return
        try:
            message = read(payload, self.patience.most_bytes)
            if isinstance(message, Result | Done):
                self.heads.note(site, message.ledger)
            if isinstance(message, Result):
                order = self.orders.get(f"{site} {message.order}")
                if order is not None:
                    self._arrived(order, message, len(payload))
                self._back(site)
            elif message.run == self.run:
                self._answered(site, message)
        except BadMessage as error:
            (self.whisper if self._secret else self.tell)(site, -1, f"sent what cannot be used: {error}")
            for order in [one for one in self.orders.values() if one.site == site]:
                self._lose(order, "sent what cannot be used")

    def _arrived(self, order: Order, result: Result, size: int) -> None:
        member = self.roster.members[order.site]
        ids, messages = opened(result, order.job, member.first, member.first + member.clients)
        if order.job.schedule.buffered and not np.array_equal(ids, order.ids):
            raise BadMessage(f"ids {ids.tolist()}: expected {order.ids.tolist()}, who were asked")
        del self.orders[order.key]
        unheard = tuple(name for name in member.used if name not in order.used)
        self.roster = self.roster.changed(replace(member, used=unheard))
        name = result.name if self._name(order.job) == "round" else ""
        lost = len(order.ids) - len(ids)
        self.ready.append(Arrival(ids, messages, order.version, size, order.sent, lost, name=name))

    def _answered(self, site: str, message: Message) -> None:
        """Handle a site's message other than a result: that it is there, or why it does not work."""
        if isinstance(message, Done):
            self._back(site)
        if not isinstance(message, Refuse):
            return
        if message.code == "begin" and self._begin is not None:
            self.channel.send(site, self._begin_of(site))
        for order in [one for one in self.orders.values() if one.site == site]:
            if message.answers != fingerprint(order.payload):
                continue
            if message.code == "session":
                raise Superseded(f"{site}: {message.reason}; stop this server, another one conducts the run")
            self.refusals[site] = message
            self.roster = self.roster.refused(site, message.final)
            self._lose(order, f"refuses: {message.reason}", code=message.code)

    def _back(self, site: str) -> None:
        member = self.roster.members[site]
        if member.away and not member.out:
            self.tell(site, -1, "is back")
            self.roster = self.roster.changed(replace(member, away=False))

    def _lose(self, order: Order, why: str, *, away: bool = False, code: str = "") -> None:
        """Go on without a site in this round, or without a client until it has rested."""
        self.orders.pop(order.key, None)
        quiet = self._secret and not (away or self.roster.members[order.site].out)
        (self.whisper if quiet else self.tell)(order.site, order.version, why)
        if away:
            self.roster = self.roster.away(order.site)
        elif order.job.schedule.buffered:
            rest_s = {"turns": math.inf, "begin": self.patience.ping_s}.get(code, self.patience.resend_s)
            self._resting |= dict.fromkeys(order.ids.tolist(), self.now() + rest_s)
        spared = code in _BEFORE_WORK
        self.ready.append(nothing(order.version, order.ids, order.job, order.sent, spared=spared))
        self._enough(self.roster.present)

    def commit(self) -> None:
        """Remember which results are in the new state; sites hear of it with the next message, when it is on disk."""
        for arrival in self._absorbed:
            member = self.roster.members[self.roster.owner(int(arrival.ids[0]))]
            self.roster = self.roster.changed(replace(member, used=(*member.used, arrival.name)))
        self._absorbed.clear()
        self.heads.save()

    def index(self) -> dict[str, Tensor]:
        """The sites of the run and which of their results are in the state."""
        return self.roster.to_tensors()

    def restore(self, index: dict[str, Tensor]) -> None:
        """Go back to a checkpoint: what sites have sent since is asked for again."""
        self.roster = Roster.from_tensors(index)
        self.orders.clear()
        self.ready.clear()
        self._absorbed.clear()
        self._resting.clear()
        self._parts.clear()

    def close(self, state: ServerState) -> None:
        """Tell all sites that the run is over and what was used at last; who is away is told but not waited for.

        Nor is who still works on something that nobody will use, unless it has clients' private parts to remove.
        """
        members = self.roster.members
        messages = {
            name: self._settling(member, state.version, over=True) for name, member in members.items()
        }
        working = set() if remembers(self._algorithm) else {order.site for order in self.orders.values()}
        waited_for = [name for name in self.roster.present if name not in working]
        for name in set(messages) - set(waited_for):
            self.channel.send(name, messages[name])
        self._ask({name: messages[name] for name in waited_for})
        self.heads.save()

    def stage(self, version: int, name: str, payloads: dict[str, bytes]) -> dict[str, bytes]:
        """One step of the transport's protocol with these sites: the answers of those that gave one in time."""
        messages = {
            site: write(Stage(self.run, self.roster.session, version, name, payload))
            for site, payload in payloads.items()
        }
        heard = self._ask(messages)
        return {site: answer.blob for site, answer in heard.items() if isinstance(answer, Staged)}

    def _ask(self, payloads: dict[str, bytes]) -> dict[str, Message]:
        """The answers to these messages, one a site, of those that answered in time."""
        waiting = {site: fingerprint(payload) for site, payload in payloads.items()}
        heard: dict[str, Message] = {}
        deadline, resend = self.now() + self.patience.timeout_s, self.now()
        slow = self.now() + self.patience.slow_s
        while waiting and self.now() < deadline:
            if self.now() >= slow:
                slow = deadline
                for site in waiting:
                    self.tell(site, -1, self.patience.slow_news)
            if self.now() >= resend:
                resend = self.now() + self.patience.resend_s
                for site in waiting:
                    self.channel.send(site, payloads[site])
            got = self.channel.receive(max(0.0, min(resend, slow, deadline) - self.now()))
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
            if isinstance(message, Done):
                self.heads.note(site, message.ledger)
            del waiting[site]
            if isinstance(message, Refuse):
                self.refusals[site] = message
                self.tell(site, -1, f"refuses: {message.reason}")
        return heard

    def await_enough(self) -> None:
        """Where too many sites are away, wait once more for them to come back before giving up."""
        if len(self.roster.present) >= self.minimum:
            return
        away = [site for site, member in self.roster.members.items() if member.away and not member.out]
        for site, answer in self._ask({site: self._begin_of(site) for site in away}).items():
            if isinstance(answer, Done):
                self._back(site)
        self._enough(self.roster.present)

    def _call_roll(self, version: int) -> None:
        """Leave out who is silent or refuses, drawn or not: so its absence does not show that it was drawn."""
        messages = {name: self._settling(self.roster.members[name], version) for name in self.roster.present}
        heard = self._ask(messages)
        for site in [name for name in messages if not isinstance(heard.get(name), Done)]:
            if site not in heard:
                self.tell(site, version, f"silent for {self.patience.timeout_s:g} s")
            self.roster = self.roster.away(site)

    def _enough(self, present: tuple[str, ...]) -> None:
        if len(present) >= self.minimum:
            return
        possible = {*self.channel.sites, *self.roster.members}
        raise too_few(present, self.minimum, self.refusals, possible, self.advice)

    def _settling(self, member: Member, version: int, *, over: bool = False) -> bytes:
        since = self._since(member, version)
        return write(Settle(self.run, self.roster.session, version, since, member.used, over))

    def broadcast(self, job: Job, state: ServerState) -> dict[str, Tensor]:
        """Return the tensors that clients may know; a question needs none."""
        return broadcast_of(self._algorithm, state) if self._algorithm and job is self._algorithm else {}

    def _name(self, job: Job) -> str:
        assert self._algorithm is not None
        known: dict[str, Job | None] = {"round": self._algorithm, "balance": self._algorithm.opening}
        return next(name for name, one in known.items() if one is job)
