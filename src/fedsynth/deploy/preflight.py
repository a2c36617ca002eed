"""Is a site fit to take part? One finding for each thing that can be wrong, with what to do about it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import psutil

from fedsynth.deploy.nvflare.kits import Kit, server_time
from fedsynth.deploy.nvflare.metrics import family_of, is_connected
from fedsynth.deploy.nvflare.node import running
from fedsynth.deploy.site.reservations import Reservations
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.errors import BadInput, FedsynthError
from fedsynth.privacy.ledger import Ledger

_GB = 2**30
_MOST_SKEW_S = 300.0  # between this clock and the server's
_SOON_DAYS = 30  # before a certificate ends, when it is said
_ENGINE = "2.9."


@dataclass(frozen=True)
class PreflightCheck:
    """One check: what was looked at, whether it is well, and the value or what to do."""

    what: str
    ok: bool
    words: str


def preflight(kit: Path, config: Path) -> Iterator[PreflightCheck]:
    """Check all that `fedsynth site start` and a run need, before either."""
    parts = _Parts(kit, config)
    yield from _common(parts)
    yield _finding("server", lambda: _server(parts.kit))
    yield _finding("clock", lambda: _clock(parts.kit))
    yield _finding("transports", lambda: _transports(parts.described))
    yield _finding("rows", lambda: _rows(parts.described))


def health(kit: Path, config: Path) -> Iterator[PreflightCheck]:
    """Check a site that runs; quick enough to be asked every minute."""
    parts = _Parts(kit, config)
    yield _finding("process", lambda: _process(kit))
    yield from _common(parts)
    yield _finding("connection", lambda: _connection(parts.kit))


class _Parts:
    """The kit and site.toml, each read once: what is wrong with one is said once, however many checks need it."""

    def __init__(self, kit: Path, config: Path) -> None:
        self._kit, self._config = kit, config
        self._bad: set[str] = set()

    @cached_property
    def kit(self) -> Kit:
        """The site's kit."""
        with self._said_once("keys"):
            return Kit.load(self._kit, "site")

    @cached_property
    def described(self) -> SiteFile:
        """The site, as its site.toml describes it."""
        with self._said_once("site.toml"):
            return SiteFile.load(self._config)

    @contextmanager
    def _said_once(self, name: str) -> Iterator[None]:
        if name in self._bad:
            raise BadInput(f"not looked at, because of {name}")
        self._bad.add(name)
        yield
        self._bad.discard(name)


def _common(parts: _Parts) -> Iterator[PreflightCheck]:
    yield _finding("versions", _versions)
    yield _finding("keys", lambda: _keys(parts.kit))
    yield _finding("site.toml", lambda: _site_file(parts.described))
    yield _finding("permissions", lambda: _permissions(parts.described))
    yield _finding("disk", lambda: _disk(parts.described))
    yield _finding("memory", _memory)
    yield _finding("budget", lambda: _budget(parts.described))


def _finding(what: str, check: Callable[[], str]) -> PreflightCheck:
    try:
        return PreflightCheck(what, True, check())
    except (FedsynthError, OSError) as error:
        return PreflightCheck(what, False, str(error))


def _versions() -> str:
    engine = version("nvflare")
    if not engine.startswith(_ENGINE):
        raise BadInput(
            f"NVIDIA FLARE {engine} is installed; install {_ENGINE}*: pip install 'fedsynth[federation]'"
        )
    return f"fedsynth {version('fedsynth')}, NVIDIA FLARE {engine}"


def _keys(kit: Kit) -> str:
    days = (kit.expires - datetime.now(UTC)).days
    soon = "; ask for a new one now (fedsynth federation renew)" if days < _SOON_DAYS else ""
    return f"certificate of {kit.title}, valid for {days} days{soon}"


def _server(kit: Kit) -> str:
    kit.reach()
    proxy = next((name for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY") if os.environ.get(name)), "")
    note = f" ({proxy} is set, but the connection does not go through it)" if proxy else ""
    return f"{kit.host}:{kit.port} answers and takes this kit's certificate{note}"


def _clock(kit: Kit) -> str:
    there = server_time(kit.reach())
    if there is None:
        return "the server does not tell its time; this clock fits the certificate"
    skew = abs((there - datetime.now(UTC)).total_seconds())
    if skew > _MOST_SKEW_S:
        raise BadInput(f"this clock differs from the server's by {skew:.0f} s; turn time synchronization on")
    return f"within {skew:.0f} s of the server's"


def _site_file(described: SiteFile) -> str:
    return (
        f"takes part in {', '.join(described.policy.recipes)} over {', '.join(described.policy.transports)}"
    )


def _permissions(described: SiteFile) -> str:
    described.check_state()
    place = described.folder if described.folder.exists() else described.folder.parent
    if not os.access(place, os.W_OK | os.X_OK):
        raise BadInput(f"{place}: this user may not write here; run chown or choose another [state] folder")
    return f"{described.folder} is for this user alone"


def _disk(described: SiteFile) -> str:
    place = described.folder if described.folder.exists() else described.path.parent
    free = shutil.disk_usage(place).free
    if free < _GB:
        raise BadInput(f"{place}: {free / _GB:.2f} GB are free; a run needs at least 1 GB: make room")
    return f"{free / _GB:.0f} GB are free"


def _memory() -> str:
    free = psutil.virtual_memory().available
    if free < _GB:
        raise BadInput(
            f"{free / _GB:.2f} GB of memory are free; a site needs about 1 GB: stop something else"
        )
    return f"{free / _GB:.1f} GB are free"


def _budget(described: SiteFile) -> str:
    budget, ledger = described.policy.budget, Ledger(described.folder / "ledger.jsonl")
    problems = ledger.verify() if described.folder.exists() else []
    if problems:
        raise BadInput(f"{ledger.path}: {problems[0]}; restore the state folder from its newest copy")
    left = budget.left(ledger) if described.folder.exists() else budget.epsilon
    if left <= 0:
        raise BadInput(
            f"nothing is left of epsilon {budget.epsilon:g}; whoever owns the data may raise [budget]"
        )
    runs = Reservations(described.folder / "reserved.json", ledger).names()
    promised = f"; reserved for {', '.join(runs)}" if runs else ""
    return f"epsilon {left:.4g} of {budget.epsilon:g} is left at delta {budget.delta:g}{promised}"


def _transports(described: SiteFile) -> str:
    sealed = {"clear", *described.seals(1)}
    missing = [name for name in described.policy.transports if name not in sealed]
    if missing:
        raise BadInput(
            f"{', '.join(missing)}: allowed in [policy], but [keys] has no keys for it; fedsynth keys create makes them"
        )
    return ", ".join(described.policy.transports)


def _rows(described: SiteFile) -> str:
    return f"{len(described.holding().clients)} clients; all rows fit the schema"


def _process(kit: Path) -> str:
    process = running(kit)
    if process is None:
        raise BadInput(f"{kit}: the site does not run here; start it with fedsynth site start")
    return f"process {process}"


def _connection(kit: Kit) -> str:
    if is_connected(family_of(running(kit.folder)), kit.port):
        return f"connected to {kit.host}:{kit.port}"
    raise BadInput(f"not connected to {kit.host}:{kit.port}; see {kit.folder / 'console.log'}")
