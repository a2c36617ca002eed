"""The jobs that an engine runs for us, at the server and at a site: it moves bytes, these do the rest."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from fedsynth.data.lock import alone
from fedsynth.data.schema import Schema
from fedsynth.deploy.link.channel import Channel
from fedsynth.privacy.chain import head_path
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.payer import ledger_of
from fedsynth.synthesis.request import Request

_LOCK_PATIENCE_S = 60.0  # a job that was killed needs a moment to end


class JobEnded(Exception):
    """The engine ends this job: its process goes, and the run is continued by another."""


class Regroup(Exception):
    """The job stops at a checkpoint so that the next one can include a site that came back."""


class Tell(Protocol):
    """Posts news for the coordinator; `line` is a finished round."""

    def __call__(self, line: Mapping[str, Any] | None = None, **news: Any) -> None:
        """Post."""


class ServerWork(Protocol):
    """The server's part of a job."""

    def conduct(
        self,
        assignment: Mapping[str, Any],
        channel: Channel,
        folder: Path,
        tell: Tell,
        regroup: threading.Event,
    ) -> None:
        """Work until the run in `folder` is finished; stop with `Regroup` after a round once `regroup` is set."""

    def results(self, folder: Path) -> list[Path]:
        """The files of a finished run that the coordinator may have."""


class SiteWork(Protocol):
    """A site's part of a job; it never raises for what the server sends."""

    def handle(self, payload: bytes) -> bytes:
        """The answer to one message."""


def one_job(folder: Path) -> AbstractContextManager[None]:
    """One job at a time works on a run."""
    sentence = f"{folder.name}: another job works on this run; wait for it"
    return alone(folder.with_suffix(".lock"), sentence, _LOCK_PATIENCE_S)


def earlier_lines(request: Request, schema: Schema) -> dict[str, str]:
    """Read the ledger beside a schema whose columns were paid for: the server adds it to the run's."""
    ledger = ledger_of(schema, request.schema)
    if ledger is None or ledger.path is None:
        return {}
    return {"lines": ledger.path.read_text(), "head": head_path(ledger.path).read_text()}


def earlier_ledger(assignment: Mapping[str, Any], folder: Path) -> Ledger:
    """Read the ledger paid before a run, as the coordinator sent it; checked line by line beside the run's folder."""
    ledger = Ledger(None)
    payment = assignment.get("earlier") or {}
    if payment:
        path = folder.with_suffix(".earlier.jsonl")
        path.write_text(payment["lines"])
        head_path(path).write_text(payment["head"])
        ledger.adopt(Ledger(path))
        path.unlink()
        head_path(path).unlink()
    return ledger
