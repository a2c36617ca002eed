"""What a federation engine has to do: move bytes between the server and named sites. It promises nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

Handle = Callable[[bytes], bytes]  # a site: one message in, one message out


class Channel(Protocol):
    """The server's end. Messages may be lost, delayed, doubled or reordered; a site's name is authentic."""

    @property
    def sites(self) -> Sequence[str]:
        """The sites that can be reached, or could at some time."""
        ...

    def send(self, site: str, payload: bytes) -> None:
        """Send without waiting; nothing is said if it does not arrive."""
        ...

    def receive(self, timeout_s: float) -> tuple[str, bytes] | None:
        """The next message and who sent it, or None if there was none for so long."""
        ...


class QueueChannel:
    """Sites in this process, each called when the server waits: the shortest way through the whole protocol."""

    def __init__(self, sites: Mapping[str, Handle]) -> None:
        self._handles = dict(sites)
        self._queue: deque[tuple[str, bytes]] = deque()

    @property
    def sites(self) -> Sequence[str]:
        """The names, in order."""
        return sorted(self._handles)

    def send(self, site: str, payload: bytes) -> None:
        """Queue a message."""
        self._queue.append((site, payload))

    def receive(self, timeout_s: float) -> tuple[str, bytes] | None:
        """Let the next site answer; None at once if nobody was asked."""
        if not self._queue:
            return None
        site, payload = self._queue.popleft()
        return site, self._handles[site](payload)
