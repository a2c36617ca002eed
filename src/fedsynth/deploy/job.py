"""What an engine runs for us, at the server and at a site: the engine moves bytes, these do the rest."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from fedsynth.deploy.link.channel import Channel


class JobEnded(Exception):
    """The engine ends this job: its process goes, and the run is continued by another."""


class Regroup(Exception):
    """The job stops at a checkpoint so that the next one can include a site that came back."""


class Tell(Protocol):
    """Posts news for the coordinator; `line` is a finished round."""

    def __call__(self, line: Mapping[str, Any] | None = None, **news: Any) -> None:
        """Post."""
        ...


class Work(Protocol):
    """The server's part of a job."""

    def conduct(
        self, asked: Mapping[str, Any], channel: Channel, folder: Path, tell: Tell, regroup: threading.Event
    ) -> None:
        """Work until the run in `folder` is finished; stop with `Regroup` after a round once `regroup` is set."""
        ...

    def results(self, folder: Path) -> list[Path]:
        """The files of a finished run that the coordinator may have."""
        ...


class SiteWork(Protocol):
    """A site's part of a job; it never raises for what the server sends."""

    def handle(self, payload: bytes) -> bytes:
        """The answer to one message."""
        ...
