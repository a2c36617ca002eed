"""Clients in this process that take simulated time: results arrive in the order in which real ones would.

The work itself is done by cohort: all clients that started from one version and have not been computed yet are one
stack of tensors, however far apart they arrive. Nothing waits, so a day of stragglers is simulated in minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedsynth.federation.algorithm import Job
from fedsynth.federation.link import Arrival
from fedsynth.federation.state import ServerState
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.simulator.speeds import Speeds

_NOBODY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class _Journey:
    """A client under way: from which version, and when it arrives (or is given up)."""

    client: int
    version: int
    due_s: float
    lost: bool


class VirtualClock:
    """A link over `InProcess` with a clock of its own. A checkpoint knows who is under way and from what."""

    def __init__(self, inner: InProcess, speeds: Speeds, rng: Rng) -> None:
        self._inner, self._speeds, self._rng = inner, speeds, rng.at("virtual clock")
        count = len(inner.clients)
        self._paces = speeds.paces(count, self._rng)
        self._starts = np.zeros(count, dtype=np.int64)
        self._now_s = 0.0
        self._job: Job | None = None
        self._flight: dict[int, _Journey] = {}
        self._versions: dict[int, ServerState] = {}  # those that somebody under way started from
        self._computed: dict[int, Arrival] = {}  # of clients under way
        self._arrived: list[Arrival] = []  # since the last step
        self._again: list[Arrival] = []  # what had arrived before a restart

    def start(self, job: Job, ids: np.ndarray, state: ServerState) -> None:
        """Send these clients on their way."""
        self._job = job
        if len(ids):
            self._versions[state.version] = state
        for client in ids.tolist():
            stream = self._rng.at("journey", client, int(self._starts[client]))
            takes_s, lost = self._speeds.journey(float(self._paces[client]), stream)
            self._flight[client] = _Journey(client, state.version, self._now_s + takes_s, lost)
            self._starts[client] += 1

    def next(self) -> Arrival:
        """The earliest arrival: one client's."""
        if self._again:
            arrival = self._again.pop(0)
            self._arrived.append(arrival)
            return arrival
        first = min(self._flight.values(), key=lambda journey: (journey.due_s, journey.client))
        self._now_s = max(self._now_s, first.due_s)
        if first.lost:
            del self._flight[first.client]
            self._computed.pop(first.client, None)
            return self._gone(first)
        if first.client not in self._computed:
            self._compute(first.version)
        del self._flight[first.client]
        arrival = replace(self._computed.pop(first.client), at_s=self._now_s)
        self._arrived.append(arrival)
        return arrival

    def _gone(self, journey: _Journey) -> Arrival:
        assert self._job is not None
        nothing = self._job.wire.zero()[None][:0]
        gone = np.array([journey.client], dtype=np.int64)
        return Arrival(_NOBODY, nothing, journey.version, lost=1, gone=gone, at_s=self._now_s)

    def _compute(self, version: int) -> None:
        """The work of everybody that started from this version and has not been computed."""
        assert self._job is not None
        waiting = [
            j.client
            for j in self._flight.values()
            if j.version == version and not j.lost and j.client not in self._computed
        ]
        self._inner.start(self._job, np.array(sorted(waiting), dtype=np.int64), self._versions[version])
        done = 0
        while done < len(waiting):
            arrival = self._inner.next()
            done += len(arrival.ids)
            for row, client in enumerate(arrival.ids.tolist()):
                self._computed[client] = Arrival(
                    arrival.ids[row : row + 1],
                    arrival.messages[row : row + 1],
                    version,
                    arrival.bytes_up // len(arrival.ids),
                    arrival.bytes_down // len(arrival.ids),
                )

    def absent(self, *, for_good: bool = False) -> np.ndarray:
        """Nobody."""
        return np.empty(0, dtype=np.int64)

    def commit(self) -> None:
        """Make valid what those that arrived have learned; the others' waits until they arrive."""
        self._inner.commit(self._came())
        self._arrived.clear()
        needed = {journey.version for journey in self._flight.values()}
        self._versions = {number: past for number, past in self._versions.items() if number in needed}

    def _came(self) -> np.ndarray:
        """Those that arrived since the last step."""
        return np.concatenate([_NOBODY, *(arrival.ids for arrival in self._arrived)])

    def index(self) -> dict[str, Tensor]:
        """The time, who is under way from which version, and what has arrived since the last step."""
        flight = [(j.client, j.version, j.lost) for j in self._flight.values()]
        tensors = {
            "clock/now": torch.tensor([self._now_s], dtype=torch.float64),
            "clock/paces": torch.from_numpy(self._paces.copy()),
            "clock/starts": torch.from_numpy(self._starts.copy()),
            "clock/flight": torch.tensor(flight, dtype=torch.int64).reshape(-1, 3),
            "clock/due": torch.tensor([j.due_s for j in self._flight.values()], dtype=torch.float64),
        }
        for number, state in self._versions.items():
            saved = replace(state, memory={}, standing={}).to_tensors()
            tensors |= {f"version {number}/{name}": value.clone() for name, value in saved.items()}
        if self._arrived:
            tensors |= _kept(self._arrived)
        return {**tensors, **self._inner.index(self._came())}

    def restore(self, index: Mapping[str, Tensor]) -> None:
        """Go back to a checkpoint; work that was under way is done again from the version it began with."""
        self._inner.restore(dict(index))
        self._computed.clear()
        self._arrived.clear()
        self._now_s = float(index["clock/now"][0])
        self._paces, self._starts = index["clock/paces"].numpy(), index["clock/starts"].numpy().copy()
        journeys = zip(index["clock/flight"].tolist(), index["clock/due"].tolist(), strict=True)
        self._flight = {
            client: _Journey(client, version, due_s, bool(lost))
            for (client, version, lost), due_s in journeys
        }
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in index.items():
            label, _, rest = name.partition("/")
            if label.startswith("version "):
                states.setdefault(int(label.removeprefix("version ")), {})[rest] = value
        self._versions = {number: ServerState.from_tensors(tensors) for number, tensors in states.items()}
        self._again = _replayed(index)

    def close(self, state: ServerState) -> None:
        """Nobody has to be told."""


def _kept(arrived: list[Arrival]) -> dict[str, Tensor]:
    """Arrivals as tensors."""
    numbers = [(int(a.ids[0]), a.version, a.bytes_up, a.bytes_down) for a in arrived]
    return {
        "arrived/numbers": torch.tensor(numbers, dtype=torch.int64),
        "arrived/at": torch.tensor([a.at_s for a in arrived], dtype=torch.float64),
        "arrived/messages": torch.cat([a.messages.cpu() for a in arrived]),
    }


def _replayed(index: Mapping[str, Tensor]) -> list[Arrival]:
    """The arrivals that `_kept` wrote."""
    if "arrived/numbers" not in index:
        return []
    rows = zip(index["arrived/numbers"].tolist(), index["arrived/at"].tolist(), strict=True)
    return [
        Arrival(
            np.array([client], dtype=np.int64),
            index["arrived/messages"][row : row + 1],
            version,
            up,
            down,
            at_s=at_s,
        )  # fmt: skip
        for row, ((client, version, up, down), at_s) in enumerate(rows)
    ]
