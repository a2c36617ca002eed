"""A federation on a simulated network: one seed decides which messages are lost, late, doubled, and who dies when.

Time is simulated too, so that hours of waiting pass at once, and every schedule can be played again from its seed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from fedsynth.research.queue_channel import Handle


class Crash(BaseException):
    """A process that is gone from one moment to the next: nothing in it can catch this."""


@dataclass(frozen=True)
class Faults:
    """How often things go wrong, as probabilities for each message; `until_s` is when they stop."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0  # late by up to `longest_s`, and so overtaken by others
    site_crash: float = 0.0  # before, in the middle of, or after a message
    server_crash: float = 0.0
    longest_s: float = 40.0
    until_s: float = 300.0


@dataclass(order=True)
class _Event:
    at: float
    number: int
    to: str = field(compare=False)  # a site, or "" for the server
    sender: str = field(compare=False)
    payload: bytes = field(compare=False)


class SimulatedNetwork:
    """A channel to sites that are started anew by `start` after they crashed.

    A site's handle may raise `Crash` by itself (for example at a write to its disk); `overheard` sees every answer
    that leaves a site, whether it arrives or not.
    """

    def __init__(
        self,
        start: Mapping[str, Callable[[], Handle]],
        faults: Faults,
        random: Random,
        overheard: Callable[[str, bytes], None] = lambda site, answer: None,
    ) -> None:
        self._start = dict(start)
        self._faults = faults
        self._random = random
        self._overheard = overheard
        self._alive: dict[str, Handle] = {}
        self._down_until: dict[str, float] = {}
        self._events: list[_Event] = []
        self._number = 0
        self._time = 0.0

    @property
    def sites(self) -> Sequence[str]:
        """The names, in order."""
        return sorted(self._start)

    def now(self) -> float:
        """The simulated time."""
        return self._time

    def send(self, site: str, payload: bytes) -> None:
        """Send to a site, through whatever may happen."""
        self._maybe_crash()
        self._post(site, "", payload)

    def receive(self, timeout_s: float) -> tuple[str, bytes] | None:
        """Let time pass until something reaches the server, or for so long."""
        self._maybe_crash()
        deadline = self._time + timeout_s
        while self._events and self._events[0].at <= deadline:
            event = heapq.heappop(self._events)
            self._time = max(self._time, event.at)
            if not event.to:
                return event.sender, event.payload
            self._deliver(event.to, event.payload)
        self._time = max(self._time, deadline)
        return None

    def forget_server(self) -> None:
        """The server is gone: what is under way to it is lost."""
        self._events = [event for event in self._events if event.to]
        heapq.heapify(self._events)

    def _chance(self, probability: float) -> bool:
        return self._time < self._faults.until_s and self._random.random() < probability

    def _maybe_crash(self) -> None:
        if self._chance(self._faults.server_crash):
            raise Crash

    def _post(self, to: str, sender: str, payload: bytes) -> None:
        copies = 0 if self._chance(self._faults.drop) else 1
        copies += self._chance(self._faults.duplicate)
        for _ in range(copies):
            late = (
                self._random.uniform(0, self._faults.longest_s) if self._chance(self._faults.delay) else 0.0
            )
            self._number += 1
            at = self._time + self._random.uniform(0.01, 0.2) + late
            heapq.heappush(self._events, _Event(at, self._number, to, sender, payload))

    def _deliver(self, site: str, payload: bytes) -> None:
        if self._down_until.get(site, 0.0) > self._time:
            return
        moment = self._random.choice(("before", "after")) if self._chance(self._faults.site_crash) else ""
        try:
            if moment == "before":
                raise Crash
            if site not in self._alive:
                self._alive[site] = self._start[site]()
            answer = self._alive[site](payload)
            if moment == "after":
                raise Crash
        except Crash:
            self._alive.pop(site, None)
            self._down_until[site] = self._time + self._random.uniform(0, self._faults.longest_s)
            return
        self._overheard(site, answer)
        self._post("", site, answer)
