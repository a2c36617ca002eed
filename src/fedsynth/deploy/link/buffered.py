"""Clients at sites that outlive a version: each is asked by itself, and what it sends is used whenever it comes.

Nobody waits for the slowest site: it goes on with the version that it was sent. A checkpoint knows who is under way
from which version, with what was broadcast then, and which results came since the last step. A server that is started
again asks for the very same work. A site that has done it answers with the same bytes, unless the server's noise
makes a second release of them: then the site charges it, and the server counts it, once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedsynth.deploy.link.order import nothing, once_for_all
from fedsynth.deploy.link.patience import TooFewSites
from fedsynth.deploy.link.remote import Remote
from fedsynth.federation.algorithm import Job
from fedsynth.federation.link import Arrival
from fedsynth.federation.state import ServerState

_AT_ONCE = 2  # pieces of work at a site: the one that it does, and the next
_ROOM = "flight/"


@dataclass(frozen=True)
class Journey:
    """A client's work from a version; `ordered` if its site may have begun it."""

    client: int
    version: int
    ordered: bool = False


@dataclass
class Buffered:
    """The link over a channel for schedules that step after so many arrivals."""

    remote: Remote
    _job: Job | None = field(default=None, init=False)  # once training has begun, or begun again
    _version: int = field(default=0, init=False)
    _waiting: list[Journey] = field(default_factory=list, init=False)  # to be asked, in order
    _sent: dict[int, dict[str, Tensor]] = field(default_factory=dict, init=False)  # broadcasts by version
    _kept: list[Arrival] = field(default_factory=list, init=False)  # results since the last step

    def __post_init__(self) -> None:
        self.remote.unsettled = self._unsettled

    def start(self, job: Job, ids: np.ndarray, state: ServerState) -> None:
        """Line these clients up; they are asked when somebody is waited for, so that a checkpoint comes first."""
        if not job.schedule.buffered:
            self.remote.start(job, ids, state)
            return
        self.remote.await_enough()
        if self._job is None:  # whoever has no use left by the ledger is not under way any more
            busy = set(state.standing["busy"].tolist()) if state.standing else set()
            self._waiting = [journey for journey in self._waiting if journey.client in busy]
        self._job, self._version = job, state.version
        if len(ids):
            self._sent[state.version] = self.remote.broadcast(job, state)
        self._waiting += [Journey(client, state.version) for client in ids.tolist()]

    def next(self) -> Arrival:
        """The next result, or the news that a client will not come; where nobody is under way, that one is back."""
        if self._job is None:
            return self.remote.next()
        remote, absent = self.remote, set(self.remote.absent().tolist())
        self._forward(self._job)
        idle, deadline = not (remote.orders or remote.ready), remote.now() + remote.patience.timeout_s
        while not remote.ready:
            if idle and (not absent or absent - set(remote.absent().tolist())):
                return nothing(self._version, np.empty(0, dtype=np.int64), self._job)
            if idle and remote.now() >= deadline:
                raise TooFewSites(
                    f"nobody whom the next version could wait for was there within {remote.patience.timeout_s:g} s; "
                    "start the sites again and continue with --resume"
                )
            away = [one for one in remote.roster.members.values() if one.away and not one.out]
            for member in away:
                remote.settle(member, self._version)
            remote.wait(remote.now() + max(0.05, remote.patience.ping_s) if away or idle else float("inf"))
            self._forward(self._job)
        arrival = remote.take()
        if arrival.name:
            self._kept.append(arrival)
        return arrival

    def _forward(self, job: Job) -> None:
        """Ask those whose site has room for more work; who is away sends nothing, or what it was asked for is lost."""
        waiting = []
        for journey in self._waiting:
            member = self.remote.roster.members[self.remote.roster.owner(journey.client)]
            client = np.array([journey.client], dtype=np.int64)
            if member.away:
                self.remote.ready.append(nothing(journey.version, client, job, spared=not journey.ordered))
            elif sum(order.site == member.name for order in self.remote.orders.values()) >= _AT_ONCE:
                waiting.append(journey)
            else:
                sent = self._sent[journey.version]
                self.remote.ask(member, job, client, journey.version, journey.client, sent)
        self._waiting = waiting

    def _unsettled(self, site: str) -> Iterable[int]:
        """The versions of work that this site is still to be asked for."""
        owner = self.remote.roster.owner
        return [journey.version for journey in self._waiting if owner(journey.client) == site]

    def absent(self, *, for_good: bool = False) -> np.ndarray:
        """As the link beneath."""
        return self.remote.absent(for_good=for_good)

    def commit(self) -> None:
        """Note that all arrivals are in the new state; forget broadcasts that nobody works from."""
        self.remote.commit()
        self._kept.clear()
        needed = {journey.version for journey in self._under_way()}
        needed |= {result.version for result in self._results()}
        self._sent = {version: sent for version, sent in self._sent.items() if version in needed}

    def _under_way(self) -> list[Journey]:
        """Everybody who was asked, or is to be asked, and of whom there is no result yet."""
        ordered = [(order.version, order.ids) for order in self.remote.orders.values()]
        news = [(one.version, ids) for one in self.remote.ready for ids in (one.gone, one.spared)]
        ordered_journeys = [
            Journey(int(client), version, True) for version, ids in (*ordered, *news) for client in ids
        ]
        return [*ordered_journeys, *self._waiting]

    def _results(self) -> list[Arrival]:
        """Return the results since the last step, and those that nobody has taken yet."""
        return [*self._kept, *(one for one in self.remote.ready if one.name)]

    def index(self) -> dict[str, Tensor]:
        """The sites, who is under way from which broadcast, and what came since the last step."""
        journeys, kept = self._under_way(), self._results()
        if self._job is not None and not once_for_all(self._job):  # a sum noised again is paid for again
            journeys = [*(Journey(int(one.ids[0]), one.version, True) for one in kept), *journeys]
            kept = []
        rows = [(journey.client, journey.version) for journey in journeys]
        tensors = {
            **self.remote.index(),
            f"{_ROOM}journeys": torch.tensor(rows, dtype=torch.int64).reshape(-1, 2),
        }
        for version in {journey.version for journey in journeys}:
            for name, value in self._sent[version].items():
                tensors[f"{_ROOM}version {version}/{name}"] = value.clone()
        for number, one in enumerate(kept):
            tensors |= {f"{_ROOM}kept {number}/{name}": value for name, value in _written(one).items()}
        return tensors

    def restore(self, index: Mapping[str, Tensor]) -> None:
        """Go back to a checkpoint: what came is there again, and the others will be asked for the same work."""
        self.remote.restore(dict(index))
        self._job, self._kept, self._sent = None, [], {}
        rows = index[f"{_ROOM}journeys"].tolist() if f"{_ROOM}journeys" in index else []
        self._waiting = [Journey(client, version, True) for client, version in rows]
        kept: dict[int, dict[str, Tensor]] = {}
        for key in (key.removeprefix(_ROOM) for key in index if key.startswith(f"{_ROOM}")):
            (kind, _, number), name = key.partition("/")[0].partition(" "), key.partition("/")[2]
            if kind == "version":
                self._sent.setdefault(int(number), {})[name] = index[_ROOM + key]
            elif kind == "kept":
                kept.setdefault(int(number), {})[name] = index[_ROOM + key]
        self.remote.ready.extend(_read(kept[number]) for number in sorted(kept))

    def close(self, state: ServerState) -> None:
        """As the link beneath."""
        self.remote.close(state)


def _written(arrival: Arrival) -> dict[str, Tensor]:
    """A client's result as named tensors."""
    numbers = [int(arrival.ids[0]), arrival.version, arrival.bytes_up, arrival.bytes_down]
    name = np.frombuffer(arrival.name.encode(), dtype=np.uint8).copy()
    return {
        "numbers": torch.tensor(numbers),
        "name": torch.from_numpy(name),
        "messages": arrival.messages.clone(),
    }


def _read(tensors: Mapping[str, Tensor]) -> Arrival:
    """Read what `_written` wrote."""
    client, version, up, down = tensors["numbers"].tolist()
    name = tensors["name"].numpy().tobytes().decode()
    return Arrival(np.array([client]), tensors["messages"], version, up, down, name=name)
