"""Who was told what about whose data: an append-only record, durable before each release leaves.

A crash may count a release that never left; it never forgets one that did. Local mechanisms write one line
for each client that sent something, and the cost is that of the client who spent most, never an average.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent, NonPrivateDpEvent, NoOpDpEvent

from fedsynth.errors import BadInput, NotPrivate
from fedsynth.privacy import chain
from fedsynth.privacy.accountant import SpentEpsilon, answer
from fedsynth.privacy.events import compose, event_from_json, event_to_json, repeat, replaced
from fedsynth.privacy.mechanism import Charge, Trust, Unit, When

EVERYONE = ("server", "client")  # holders whose lines concern every client; other names are one client's own
SEAL = "hashes of the released files"
VERSION = 2
_SAME = ("release", "holder", "unit", "trust", "count", "run", "round", "session")  # in an entry and its line
_BEFORE = re.compile(
    r"(?P<release>.*?)(?:, round (?P<round>\d+))?(?:(?:, )?, asked again in session (?P<session>\d+))?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Entry:
    """A release about to leave: what it is, whom it concerns, and its cost for one use."""

    event: DpEvent
    release: str  # the kind of release: the same in every round
    holder: str = "server"
    unit: Unit = "client"
    trust: Trust = "central"
    count: int = 1
    run: str = ""
    public: DpEvent | None = None  # noise in shares: the cost against those who know none of them
    files: Mapping[str, str] | None = None  # of a seal: SHA-256 by file name
    round: int = 0  # counted from 1; 0 for what is no round
    session: int = 0  # of the server that asked for the same once more; 0 for the first time

    @classmethod
    def of(cls, charge: Charge, holder: str, run: str, when: When, times: int = 1) -> Entry:
        """The line that a charge is for one holder."""
        spent = charge.release
        release = f"{spent.what}, {when.note}" if when.note else spent.what
        count, public = spent.count * times, charge.public
        entry = cls(charge.event, release, holder, spent.unit, spent.trust, count, run, public)
        return replace(entry, round=when.round, session=when.session)

    @property
    def what(self) -> str:
        """The release in words, for people alone."""
        again = f", asked again in session {self.session}" if self.session else ""
        return self.release + (f", round {self.round}" if self.round else "") + again

    @property
    def cost(self) -> DpEvent:
        """The release as often as it happens, as one event."""
        return repeat(self.event, self.count)


@dataclass(frozen=True)
class LedgerLine:
    """One line of the ledger, as written."""

    index: int
    time: str
    previous: str
    hash: str
    holder: str
    unit: Unit
    trust: Trust
    event: dict[str, Any]
    count: int
    what: str
    run: str
    version: int
    release: str  # as in an entry, like round and session
    round: int
    session: int
    public: dict[str, Any] | None = None
    files: Mapping[str, str] | None = None  # of a seal: SHA-256 by file name

    @property
    def cost(self) -> DpEvent:
        """The cost of the line as one event."""
        return repeat(event_from_json(self.event), self.count)

    @property
    def entry(self) -> Entry:
        """The release itself, to be written into another ledger."""
        same = {name: getattr(self, name) for name in _SAME}
        public = None if self.public is None else event_from_json(self.public)
        return Entry(event_from_json(self.event), public=public, **same)

    @property
    def to_the_public(self) -> LedgerLine:
        """The line as those see it who know no share of its noise: all but the participants."""
        return self if self.public is None else replace(self, event=self.public)


class Ledger:
    """The lines in one file, or in memory for a run without a folder (`path=None`).

    >>> from dp_accounting import GaussianDpEvent
    >>> ledger = Ledger(None)
    >>> ledger.append(GaussianDpEvent(10.0), what="round 1").index
    0
    >>> round(ledger.epsilon(1e-5), 3), ledger.verify()
    (0.341, [])
    """

    def __init__(self, path: Path | str | None) -> None:
        self.path = None if path is None else Path(path)
        self._lines: list[dict[str, Any]] = []
        self._size = 0
        self._depth = 0

    def append(
        self,
        event: DpEvent,
        *,
        what: str,
        holder: str = "server",
        unit: Unit = "client",
        trust: Trust = "central",
        count: int = 1,
        run: str = "",
    ) -> LedgerLine:
        """Write one release down; once this returns the line is on disk, and the release may leave."""
        return self.append_all([Entry(event, what, holder, unit, trust, count, run)])[0]

    def append_all(self, entries: Sequence[Entry]) -> list[LedgerLine]:
        """Write several releases with one wait for the disk, for example a round of many local clients."""
        with self.locked():
            self._refresh()
            fresh: list[dict[str, Any]] = []
            previous = self._last_hash
            for entry in entries:
                fresh.append(chain.link(_plain(entry), len(self._lines) + len(fresh), previous))
                previous = fresh[-1]["hash"]
            self._write(fresh)
            return [_line(line) for line in fresh]

    def seal(self, files: Mapping[str, str]) -> LedgerLine:
        """Name the released files by their SHA-256, in a line that costs nothing; the last such line counts."""
        return self.append_all([Entry(NoOpDpEvent(), SEAL, count=0, files=dict(files))])[0]

    def files(self) -> Mapping[str, str] | None:
        """The SHA-256 of each released file, as the last seal names them; None for a ledger without one."""
        return next((line.files for line in reversed(self.lines()) if line.files is not None), None)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the ledger so that a look at it and the next line belong together; may be nested."""
        if self.path is None or self._depth:
            yield
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with chain.exclusive(self.path):
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def lines(self, start: int = 0) -> list[LedgerLine]:
        """Every line from `start` on, also those that other runs wrote; refuses a ledger that somebody changed."""
        self._look()
        return [_line(line) for line in self._lines[start:]]

    def releases(self) -> list[LedgerLine]:
        """The lines that stand for a release: without seals and repairs, which cost nothing."""
        return [line for line in self.lines() if line.count]

    def verify(self) -> list[str]:
        """List the ledger's problems in sentences; empty if there are none.

        Finds changed and reordered lines and lines cut from the middle by the chain, a cut tail by the file
        beside it. Somebody who rewrites both files is not found: keep the last hash elsewhere as well.
        """
        if self.path is None:
            return chain.check(self._lines)
        contents = chain.read(self.path)
        return [*contents.problems, *chain.check_head(self.path, contents.lines)]

    def composed(self, holder: str | None = None, unit: str | None = None) -> DpEvent:
        """All releases as one event, over all runs; of one holder or one unit if named."""
        return compose(line.cost for line in self.lines() if _matches(line, holder, unit))

    def epsilon(self, delta: float, *, adjacency: str = "add-remove", unit: str | None = None) -> float:
        """Return the epsilon of whoever is worst off by the releases."""
        return self.answer(delta, adjacency=adjacency, unit=unit).epsilon

    def answer(
        self,
        delta: float,
        *,
        adjacency: str = "add-remove",
        accountant: str = "pld",
        unit: str | None = None,
        following: Sequence[Entry] = (),
        public: bool = False,
    ) -> SpentEpsilon:
        """Epsilon of whoever is worst off, and the accountant that gave it; `following` count as if already written.

        It holds against all participants; against the server and the `public` it may be smaller.
        """
        lines = [*self.lines(), *(_line(chain.link(_plain(entry), -1, "")) for entry in following)]
        lines = [line.to_the_public for line in lines] if public else lines
        unit = unit or _only_unit(lines)
        answers = [
            answer(
                compose(priced(line, unit, adjacency) for line in group),
                delta,
                adjacency=adjacency,
                accountant=accountant,
            )
            for group in exposures(lines)
        ]
        return max(answers, key=lambda found: found.epsilon)

    def adopt(self, earlier: Ledger) -> None:
        """Begin with the lines of another ledger, hashes and all; only while this one is empty."""
        earlier._look()
        with self.locked():
            self._refresh()
            if self._lines:
                raise BadInput(f"ledger {self.path} has lines already; it cannot begin with another's")
            self._write(list(earlier._lines))

    @property
    def head(self) -> str:
        """The hash of the last line, worth keeping elsewhere."""
        self._look()
        return self._last_hash

    @property
    def shown(self) -> str:
        """How many lines there are and the hash of the last: what a site shows of its ledger."""
        self._look()
        return f"{len(self._lines)}:{self._last_hash}"

    def hash_at(self, count: int) -> str:
        """The hash of the last of the first `count` lines; empty if there are not so many."""
        self._look()
        return str(self._lines[count - 1]["hash"]) if 0 < count <= len(self._lines) else ""

    @property
    def _last_hash(self) -> str:
        return str(self._lines[-1]["hash"]) if self._lines else chain.FIRST

    def _write(self, fresh: list[dict[str, Any]]) -> None:
        if self.path is not None:
            if not self._lines:
                chain.write_head(self.path, 0, chain.FIRST)  # from now on a missing head means a removed one
            self._size += chain.write_lines(self.path, fresh)
        self._lines.extend(fresh)
        if self.path is not None:
            chain.write_head(self.path, len(self._lines), self._last_hash)

    def _look(self) -> None:
        """Read what is new without writing; an unfinished last line does not count: nothing left."""
        if self.path is None or (self.path.exists() and self.path.stat().st_size == self._size):
            return
        contents = chain.read(self.path)
        problems = [*contents.problems, *chain.check_head(self.path, contents.lines)]
        if problems:
            raise NotPrivate(
                f"ledger {self.path} cannot be trusted: {problems[0]}; see `fedsynth ledger verify`, and "
                "restore it from a copy before anything else is released"
            )
        self._lines, self._size = list(contents.lines), contents.size

    def _refresh(self) -> None:
        """Read what is new and mend the traces of a crash; only under the lock."""
        self._look()
        if self.path is None or not self.path.exists() or self.path.stat().st_size == self._size:
            return
        contents = chain.read(self.path)
        if chain.finish_torn(self.path, contents, len(self._lines), self._last_hash):
            self._look()
            return
        what = f"repair: {len(contents.torn)} bytes of a line that was never finished were removed"
        entry = Entry(NoOpDpEvent(), what, count=0)
        self._write([chain.link(_plain(entry), len(self._lines), self._last_hash)])


def _plain(entry: Entry) -> dict[str, Any]:
    if entry.count < 0 or not entry.release:
        raise BadInput(
            f"count={entry.count}, what={entry.release!r}: a release has a name and a count of 0 or more"
        )
    fields = {"version": VERSION, "what": entry.what, **{name: getattr(entry, name) for name in _SAME}}
    optional = {} if entry.public is None else {"public": event_to_json(entry.public)}
    optional |= {} if entry.files is None else {"files": dict(entry.files)}
    moment = datetime.now(UTC).isoformat()
    return {**fields, "event": event_to_json(entry.event), **optional, "time": moment}


def upgraded(data: Mapping[str, Any]) -> dict[str, Any]:
    """A line with the fields of today; lines of before, which have no version, say in words what is a field now.

    >>> upgraded({"what": "noisy sum, round 2, asked again in session 3"})["round"]
    2
    """
    if "version" in data or "what" not in data:
        return dict(data)
    words = _BEFORE.fullmatch(data["what"])
    assert words is not None, "every text matches"
    number, session = int(words["round"] or 0), int(words["session"] or 0)
    return {**data, "version": 1, "release": words["release"], "round": number, "session": session}


def _line(data: dict[str, Any]) -> LedgerLine:
    if data.get("version", 1) not in (1, VERSION):
        raise BadInput(
            f"ledger line {data.get('index')} has version {data['version']}; this fedsynth reads up to {VERSION}: "
            "install a newer one"
        )
    try:
        return LedgerLine(**upgraded(data))
    except TypeError as error:
        raise BadInput(f"ledger line {data.get('index')} has unknown or missing fields: {error}") from error


def plain(line: LedgerLine) -> dict[str, Any]:
    """The line as JSON values; a field that the line does not have is left out."""
    return {name: value for name, value in asdict(line).items() if value is not None}


def _matches(line: LedgerLine, holder: str | None, unit: str | None) -> bool:
    return holder in (None, line.holder) and unit in (None, line.unit)


def _only_unit(lines: Sequence[LedgerLine]) -> str:
    units = sorted({line.unit for line in lines if line.count})
    if len(units) > 1:
        raise BadInput(
            "the ledger holds releases for clients and for records; say unit='client' or unit='record'"
        )
    return units[0] if units else "client"


def exposures(lines: Sequence[LedgerLine]) -> list[list[LedgerLine]]:
    """The lines that concern each client, those of everyone included; equal cases once."""
    common = [line for line in lines if line.holder in EVERYONE]
    own: dict[str, list[LedgerLine]] = {}
    for line in lines:
        if line.holder not in EVERYONE:
            own.setdefault(line.holder, []).append(line)
    distinct = {repr([(line.unit, line.trust, line.cost) for line in group]): group for group in own.values()}
    return [common + group for group in distinct.values()] or [common]


def priced(line: LedgerLine | Entry, unit: str, adjacency: str) -> DpEvent:
    """Return the cost of a line to one client, or one record, as an event to be accounted under `adjacency`.

    A record's change replaces its client's contribution; a guarantee for records says nothing about a client. Whoever
    sends a message with noise of its own shows that it is there, so add-remove has nothing to hide: another message in
    its place moves it by twice the clip.
    """
    if line.unit != unit:
        return replaced(line.cost) if unit == "record" else repeat(NonPrivateDpEvent(), min(line.count, 1))
    shows_presence = line.trust == "local" and unit == "client" and adjacency == "add-remove"
    return replaced(line.cost) if shows_presence else line.cost
