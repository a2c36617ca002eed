"""A site's state of a run on its own disk: the plan, its clients' memory, and results that are not settled yet.

A result and what clients learned for it wait together until the server says whether it was used. `standing.bin` is
replaced in one step and is the only file that says what is valid; the others are written before it points to them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.atomic import write_file
from fedsynth.deploy.link.codec import Envelope, decode, encode
from fedsynth.errors import BadInput
from fedsynth.simulator.store import ClientStore


@dataclass(frozen=True)
class Waiting:
    """A result that is not settled: `key` can be answered once, `order` names the question that it answers."""

    key: str
    order: str
    name: str
    session: int
    version: int
    clients: np.ndarray  # numbers within the site

    @property
    def job(self) -> str:
        """The kind of work."""
        return self.key.partition(" ")[0]


@dataclass(frozen=True)
class SiteProgress:
    """Where the site is in a run. Versions before `since` are settled; `over` once the run is.

    `floors` has, for each client of whom a result was used, the first version from which it may work again.
    """

    session: int = 0
    since: int = 0
    over: bool = False
    waiting: tuple[Waiting, ...] = ()
    floors: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def without(self, names: set[str]) -> SiteProgress:
        """The same, with these results settled."""
        return replace(self, waiting=tuple(one for one in self.waiting if one.name not in names))

    def used(self, names: set[str], separation: int) -> SiteProgress:
        """The same after the server used these results: their clients work again so many versions later."""
        used = [one for one in self.waiting if one.name in names]
        room = max([len(self.floors), *(int(one.clients.max()) + 1 for one in used)])
        floors = np.concatenate([self.floors, np.zeros(room - len(self.floors), dtype=np.int64)])
        for one in used:
            floors[one.clients] = np.maximum(floors[one.clients], one.version + separation)
        return replace(self.without(names), floors=floors)

    def floor(self, clients: np.ndarray) -> int:
        """The first version from which all of these may work."""
        known = clients[clients < len(self.floors)]
        return int(self.floors[known].max(initial=0))


class RunFolder:
    """The files of one run at a site."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin = path / "begin.bin"
        self._standing = path / "standing.bin"
        self._results = path / "results"
        self._store: ClientStore | None = None

    @property
    def exists(self) -> bool:
        """True once the site began this run."""
        return self._begin.exists() and self._standing.exists()

    @property
    def store(self) -> ClientStore:
        """The clients' memory."""
        if self._store is None:
            self._results.mkdir(parents=True, exist_ok=True)
            self._store = ClientStore(self.path / "clients.bin")
        return self._store

    def create(self, begin: bytes, standing: SiteProgress) -> None:
        """Write the plan down, or the plan of a later start of the server."""
        self._results.mkdir(parents=True, exist_ok=True)
        write_file(self._begin, begin)
        self.save(standing)

    def begin(self) -> bytes:
        """The plan as it came."""
        return self._begin.read_bytes()

    def load(self) -> SiteProgress:
        """Where the site stands; the store goes back to it."""
        envelope = decode(self._standing.read_bytes())
        self.store.restore(envelope.tensors)
        written = envelope.fields
        waiting = [
            Waiting(**one, clients=envelope.tensors[f"clients/{one['name']}"].numpy())
            for one in written["waiting"]
        ]
        floors = envelope.tensors["floors"].numpy() if "floors" in envelope.tensors else SiteProgress().floors
        return SiteProgress(written["session"], written["since"], written["over"], tuple(waiting), floors)

    def save(self, standing: SiteProgress) -> None:
        """Make this the valid standing, with the store as it is now."""
        tensors: dict[str, Tensor] = {**self.store.index(), **self.store.waiting()}
        tensors["floors"] = torch.from_numpy(standing.floors)
        tensors |= {f"clients/{one.name}": torch.from_numpy(one.clients) for one in standing.waiting}
        written = [
            {name: getattr(one, name) for name in ("key", "order", "name", "session", "version")}
            for one in standing.waiting
        ]
        fields = {
            "session": standing.session,
            "since": standing.since,
            "over": standing.over,
            "waiting": written,
        }
        write_file(self._standing, encode(Envelope("standing", fields, tensors)))
        kept = {f"{one.name}.bin" for one in standing.waiting}
        for file in self._results.iterdir():
            if file.name not in kept:
                file.unlink()

    def keep(self, name: str, result: bytes) -> None:
        """Write a result down before the standing names it."""
        write_file(self._results / f"{name}.bin", result)

    def result(self, name: str) -> bytes:
        """A result that waits."""
        return (self._results / f"{name}.bin").read_bytes()

    def forget(self) -> None:
        """Remove the clients' private parts when the run is over; plan, standing and ledger stay."""
        if self._store is not None:
            self._store.close()
            self._store = None
        (self.path / "clients.bin").unlink(missing_ok=True)
        shutil.rmtree(self._results, ignore_errors=True)

    def close(self) -> None:
        """Close the store's file."""
        if self._store is not None:
            self._store.close()
            self._store = None


def run_path(state: Path, run: str) -> Path:
    """Where a site keeps a run; a name that would lead elsewhere is refused.

    >>> run_path(Path("state"), "../../etc")
    Traceback (most recent call last):
    fedsynth.errors.BadInput: run '../../etc': expected up to 80 letters, digits, hyphens and underscores
    """
    if not run or len(run) > 80 or not run.replace("-", "").replace("_", "").isalnum() or not run.isascii():
        raise BadInput(f"run {run[:80]!r}: expected up to 80 letters, digits, hyphens and underscores")
    return state / "runs" / run


def public(state: Mapping[str, Tensor], secret: tuple[str, ...]) -> dict[str, Tensor]:
    """A mechanism's state as it may be sent: without what it names secret."""
    return {name: value for name, value in state.items() if name not in secret}
