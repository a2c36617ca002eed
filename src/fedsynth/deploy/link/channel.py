"""The interface to a federation engine: it moves bytes between the server and named sites, and promises no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Channel(Protocol):
    """The server's end. Messages may be lost, delayed, doubled or reordered; a site's name is authentic."""

    @property
    def sites(self) -> Sequence[str]:
        """The sites that can be reached, or could at some time."""

    def send(self, site: str, payload: bytes) -> None:
        """Send without waiting; nothing is said if it does not arrive."""

    def receive(self, timeout_s: float) -> tuple[str, bytes] | None:
        """The next message and who sent it, or None if there was none for so long."""
