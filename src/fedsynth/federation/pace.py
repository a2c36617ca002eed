"""Public times for rounds whose own length would tell how many clients were drawn.

Predictive mitigation (Askarov, Zhang and Myers 2010): rounds end at the ticks of a public pace. A round that overruns
its tick doubles the pace for good, so the times of a whole run take one more value for each doubling, and no other.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

FIRST_S = 0.25
_LOOK_S, _STOPPED_S = 1.0, 5.0  # between looks at the clock; what a look may be late by
_IDLE = 0.05  # of the time that it is late: a process that computed longer was not stopped, only busy


class Stoppage:
    """Seconds in which this whole process stood still, as on a paused machine; no round can bring that about.

    A look that is late because the interpreter computes something long is not a pause: `used`, the seconds of the
    processor, went on, and how long a sum takes may depend on who was drawn.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, used: Callable[[], float] = time.process_time
    ) -> None:
        self._now, self._used, self._lock = now, used, threading.Lock()
        self._looked, self._worked, self._seconds = now(), used(), 0.0

    def look(self) -> None:
        """Look at the clock; this has to be called every second."""
        with self._lock:
            looked, worked = self._now(), self._used()
            late = looked - self._looked - _LOOK_S
            idle = worked - self._worked - _LOOK_S < _IDLE * late
            self._seconds += late if late > _STOPPED_S and idle else 0.0
            self._looked, self._worked = looked, worked

    def taken(self) -> float:
        """Return the seconds since this was asked last."""
        self.look()
        with self._lock:
            seconds, self._seconds = self._seconds, 0.0
        return seconds


@cache  # there is one process
def watched_stoppage() -> Callable[[], float]:
    """Watch this process from now on; what is returned tells how long it stood still since it was asked last."""
    stoppage = Stoppage()

    def watch() -> None:
        while True:
            time.sleep(_LOOK_S)
            stoppage.look()

    threading.Thread(target=watch, daemon=True).start()
    return stoppage.taken


@dataclass
class Pace:
    """The length of a round as everybody may know it: `seconds` is that of the last one.

    The first round of a process warms it up: it gets a length of its own, which later rounds do not keep. `present`
    names the sites that take part, of which everybody may know. Time in which the whole process `stopped` moves the
    ticks and changes no pace.
    """

    step_s: float = FIRST_S
    present: Callable[[], Iterable[str]] = tuple
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    stopped: Callable[[], float] = lambda: 0.0
    seconds: float = field(default=0.0, init=False)
    _tick: float = field(default=0.0, init=False)
    _here: frozenset[str] = field(default=frozenset(), init=False)

    def cover(self, took_s: float) -> float:
        """Return the public length of a round that took so long.

        >>> pace = Pace(step_s=1.0)
        >>> [pace.cover(took) for took in (9.0, 0.2, 0.9, 1.5, 0.2)]
        [16.0, 1.0, 1.0, 2.0, 2.0]
        """
        length = self.step_s
        while length < took_s:
            length *= 2
        if self.seconds:
            self.step_s = length
        self.seconds = length
        return length

    def start(self) -> None:
        """The first round begins now."""
        self.stopped()
        self._tick, self._here = self.now(), frozenset(self.present())

    def wait(self) -> None:
        """Wait for the tick that ends this round.

        A round in which a site was waited for in vain takes as many ticks as that needs, and the pace stays.
        """
        self._tick += self.stopped()
        took_s, here = self.now() - self._tick, frozenset(self.present())
        if self._here - here:
            self.seconds = self.step_s * max(1, math.ceil(took_s / self.step_s))
        else:
            self.cover(took_s)
        self._tick, self._here = self._tick + self.seconds, here
        self.sleep(max(0.0, self._tick - self.now()))


def last_step(history: Sequence[Mapping[str, Any]]) -> float:
    """The pace that a run had when it was interrupted; the longer rounds beside it were warm-ups or outages.

    >>> last_step([{"seconds": 0.25}, {"seconds": 0.5}, {"seconds": 0.5}]), last_step([{"seconds": 8.0}])
    (0.5, 0.25)
    """
    lengths = [float(line["seconds"]) for line in history[-2:]]
    return max(FIRST_S, min(lengths)) if len(lengths) == 2 else FIRST_S
