"""Free at once what the engine's streams (NVFlare 2.9) leave behind in a job that lives for hours.

Every answer to a question of a site comes as a stream that is remembered for 65 seconds, in case its sender repeats
itself. The engine has no other setting for it than the time for which senders repeat, which must stay. Sites ask for
work up to twenty times a second, so their jobs had 1,100 threads, each with a stack of its own.

Whatever is sent goes through a buffer of 1 MB and holds its message. Both lie in a cycle of references, and Python
looks for cycles among old objects too rarely: between two times that a job did so itself, a site's grew by 80 MB.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.byte_streamer import TxTask


class Appointment:
    """Something to be done at its time, unless it is cancelled before; in place of a `threading.Timer`."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act: Callable[[], None] | None = act

    def cancel(self) -> None:
        """Do nothing when the time comes, and keep nothing alive until then."""
        self.act = None


class Appointments:
    """Does things at their times, one after another, in a thread that begins with the first of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next: list[tuple[float, int, Appointment]] = []
        self._numbers = itertools.count()  # so that two of one time are in order
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._next)

    def add(self, wait_s: float, act: Callable[[], None]) -> Appointment:
        """Do something short after `wait_s` seconds."""
        appointment = Appointment(act)
        with self._changed:
            heapq.heappush(self._next, (time.monotonic() + wait_s, next(self._numbers), appointment))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="appointments", daemon=True)
                self._thread.start()
            if self._next[0][2] is appointment:
                self._changed.notify()
        return appointment

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._next or self._next[0][0] > time.monotonic():
                    self._changed.wait(self._next[0][0] - time.monotonic() if self._next else None)
                act = heapq.heappop(self._next)[2].act
            if act is not None:
                act()
            del act


_FORGETTING = Appointments()
_send = TxTask.send_loop


def keep_streams_small() -> None:
    """Let one thread of this process forget finished streams, and free what a stream sent as soon as it is sent."""
    RxTask._schedule_remove_task = _forget_later
    TxTask.send_loop = _send_and_free


def _send_and_free(task: TxTask) -> None:
    try:
        _send(task)
    finally:  # what may have to be sent again is in copies of its own, until it has arrived
        task.buffer = task.direct_buf = task.stream = None


def _forget_later(task: RxTask, ttl: float | None = None) -> None:
    with task.stop_lock:
        if task.cleanup_timer is None:
            wait_s = task.completed_task_ttl if ttl is None else ttl
            task.cleanup_timer = _FORGETTING.add(wait_s, task._remove_task)
