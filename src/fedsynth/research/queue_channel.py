"""A channel without an engine: sites in this process answer from a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

Handle = Callable[[bytes], bytes]  # a site: one message in, one message out


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
