"""The coordinator's side of a federated run: submit it, watch it, submit it again if the engine lost it, fetch it.

The run itself is on the server's disk, with its checkpoint and ledger; here are only its name and, at the end, its
result. So a coordinator may be killed at any moment and go on later.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsynth.data.atomic import write_file
from fedsynth.data.configuration import build, check, keys_of, read_file
from fedsynth.data.schema import Schema
from fedsynth.deploy.nvflare.kits import Kit, Unreachable
from fedsynth.deploy.nvflare.session import ENDED, WAITS, ConnectionLost, CoordinatorSession
from fedsynth.errors import BadInput, FedsynthError, Incompatible
from fedsynth.federation.loop import Round
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.training import Watch

_POLL_S, _QUIET_POLL_S = 0.3, 1.0
_LOOK_S = 5.0  # between two looks at who is connected
_REGROUPS = 5  # times that a job is begun anew for the same site
_CANCEL_S = 5.0  # for a server that does not answer somebody who interrupts
_SILENT_S = 30.0  # without anything new, until a line says why
_TRIES = 5  # jobs in a row that may end without a finished round


class Lost(Exception):
    """The job is gone though the run is not finished; why, for people."""


class Stopped(FedsynthError):
    """The run stands still and can be gone on with."""

    resumable = True


@dataclass(frozen=True)
class CoordinatorPatience:
    """How long the coordinator waits: for the server, for all sites, and for a site that answers nothing in a round."""

    server_s: float = 120.0
    sites_s: float = 60.0
    round_s: float = 600.0


@dataclass(frozen=True)
class Assignment:
    """RUN/federation.json: what makes a run on the server this one's."""

    run: str
    federation: str
    minimum_sites: int
    request: Mapping[str, Any]
    schema: Mapping[str, Any]
    round_s: float
    earlier: Mapping[str, str] = field(default_factory=dict)  # the ledger of a schema that was paid for
    job: str = ""
    inspection: Mapping[str, Any] = field(default_factory=dict)  # what to look for

    @classmethod
    def new(
        cls,
        kit: Kit,
        request: Request,
        schema: Schema,
        minimum_sites: int,
        patience: CoordinatorPatience,
        earlier: Mapping[str, str],
    ) -> Assignment:
        """A run with a name of its own."""
        if not 1 <= minimum_sites <= len(kit.sites):
            raise BadInput(f"--minimum-sites {minimum_sites}: this federation has {len(kit.sites)} sites")
        for name in ("data", "client_column", "clients", "split_seed", "budget"):
            if getattr(request, name) is not None:
                raise Incompatible(
                    f"{name}: in a federation each site decides that, in its site.toml; leave it out"
                )
        name = f"{time.strftime('%Y%m%d')}-{secrets.token_hex(6)}"
        place, request = str(kit.folder), request.resolved(schema)
        return cls(name, place, minimum_sites, request.to_toml(), schema.to_dict(), patience.round_s, earlier)

    @classmethod
    def load(cls, out: Path) -> Assignment:
        """Read what `save` wrote."""
        path = out / "federation.json"
        if not path.is_file():
            raise BadInput(f"{out}: not a federated run (no federation.json); leave --federation out")
        values = read_file(path)
        check(values, keys_of(cls), path)
        return build(cls, values)

    def save(self, out: Path) -> None:
        """Write it whole."""
        write_file(out / "federation.json", json.dumps(self.__dict__, indent=1) + "\n")

    @property
    def for_server(self) -> dict[str, Any]:
        """The values that are sent to the server."""
        hidden = ("federation", "job")
        return {name: value for name, value in self.__dict__.items() if name not in hidden}


@dataclass
class _Silence:
    """Says now and then what is waited for, while nothing moves."""

    say: Callable[[str], None]
    _since: float = field(default_factory=time.monotonic, init=False)
    _said: float = field(default=0.0, init=False)

    def note(self, moved: bool) -> None:
        """Begin anew when something moved."""
        if moved:
            self._since = self._said = time.monotonic()

    def passes(self, why: str) -> None:
        """Say how long nothing has moved, and why, if it is long and was not said lately."""
        now = time.monotonic()
        if now - max(self._since, self._said) > _SILENT_S:
            self._said = now
            self.say(f"nothing has moved for {now - self._since:.0f} s: {why}")


@dataclass
class Coordinator:
    """Brings one assignment to its end."""

    kit: Kit
    out: Path
    assignment: Assignment
    watch: Watch
    say: Callable[[str], None]
    patience: CoordinatorPatience = field(default_factory=CoordinatorPatience)
    advice: str = "continue with --resume"  # after a failure
    _version: int = field(default=0, init=False)
    _round_s: float = field(default=0.0, init=False)  # how long the last round took, as everybody may know it
    _told: dict[str, str] = field(default_factory=dict, init=False)
    _regrouped: dict[str, int] = field(default_factory=dict, init=False)
    _answered: bool = field(default=False, init=False)  # whether the job answered since the session broke

    def run(self) -> Folder:
        """Submit the run as often as it takes, and fetch the result."""
        failures, version, silences = 0, -1, 0
        while True:
            try:
                with self._session() as session:
                    self._attend(session)
                return Folder(self.out)
            except (
                ConnectionLost
            ) as reason:  # the job may well be alive: look for it before another is submitted
                silences = 0 if self._answered else silences + 1
                self._answered = False
                if silences >= _TRIES:
                    raise Stopped(f"{reason}, {silences} times in a row; {self.advice}") from None
                self.say(f"{reason}; asking again")
            except Lost as reason:
                failures = 0 if self._version > version else failures + 1
                version = self._version
                if failures >= _TRIES:
                    raise Stopped(
                        f"the run was lost {failures} times in a row without a finished round ({reason}); look at "
                        f"the server's console.log and {self.advice}"
                    ) from None
                self._change(job="")
                self.say(f"{reason}; going on from the server's checkpoint")

    def cancel(self) -> None:
        """Stop the job on the server, if it answers soon; the run can be resumed."""
        job = self.assignment.job
        try:
            with self._session(_CANCEL_S) as session:
                if job and session.stage(job) != ENDED:
                    session.abort(job)
        except FedsynthError as error:
            self.say(f"{error}; a job of this run that is alive there was not stopped")

    def _session(self, patience_s: float | None = None) -> CoordinatorSession:
        """A session with the server, which may be starting again."""
        deadline = time.monotonic() + (self.patience.server_s if patience_s is None else patience_s)
        while True:
            try:
                return CoordinatorSession(self.kit)
            except (Unreachable, ConnectionLost) as error:
                if time.monotonic() > deadline:
                    raise Stopped(f"{error}; {self.advice}") from None
                time.sleep(1.0)

    def _attend(self, session: CoordinatorSession) -> None:
        """One job from its beginning (or wherever it is) to its end."""
        job = self._job(session)
        shown, looked, recalled, silence = 0, time.monotonic(), False, _Silence(self.say)
        while True:
            news = session.news(job, shown)
            if news is None:
                stage = session.stage(job)
                if stage == ENDED:
                    raise Lost("the job ended before the run did (a site's or the server's process died)")
                if stage == WAITS and time.monotonic() - looked > self.patience.server_s:
                    session.abort(job)
                    raise Lost(f"the server did not begin the job within {self.patience.server_s:g} s")
                silence.passes("the server has not begun the job yet, or is too busy to answer")
                time.sleep(_POLL_S)
                continue
            self._answered = True
            if news["state"] == "failed":
                session.done(job)
                self._fail(news)
            silence.note(bool(news["history"]))
            shown += len(news["history"])
            self._show(news)
            if news["state"] == "finished" and not news["history"]:
                self._fetch(session, job, news["files"])
                return
            if news["state"] == "regrouping":
                self._await_end(session, job)
                raise Lost("the job is begun anew, for a site that came back or for its memory")
            if time.monotonic() - looked > _LOOK_S:
                looked = time.monotonic()
                recalled = recalled or self._take_back(session, job, news)
                silence.passes(f"waiting for the sites' answers{self._usual}")
            time.sleep(
                _POLL_S if news["history"] else _QUIET_POLL_S
            )  # each question is a line in the server's log

    def _job(self, session: CoordinatorSession) -> str:
        """The job that works on this run; a new one only if there is none."""
        job = self.assignment.job
        if not job or session.stage(job) == ENDED:
            job = session.job_of(self.assignment.run) or ""
            if not job:
                self._gather(session)
                job = session.submit(self.assignment.for_server)
            self._change(job=job)
        return job

    def _fail(self, news: Mapping[str, Any]) -> None:
        """End with the server's sentence, without the reasons that were shown already."""
        sentence = str(news["error"])
        for site, what in self._told.items():
            sentence = sentence.replace(f"; {site} {what}", "")
        raise (Stopped if news.get("resumable") else FedsynthError)(sentence)

    def _take_back(self, session: CoordinatorSession, job: str, news: Mapping[str, Any]) -> bool:
        """Have the job begin anew after this round if a site is connected that does not work on it; whether it will."""
        here = set(session.sites())
        missing = here - set(news.get("members", here)) | here & set(news.get("away", ()))
        back = missing - session.working(job) if missing and news["state"] == "training" else set()
        worth = {name for name in back if self._regrouped.get(name, 0) < _REGROUPS}
        if worth:
            self._regrouped |= {name: self._regrouped.get(name, 0) + 1 for name in worth}
            self.say(f"{', '.join(sorted(worth))}: connected again; taken back in after this round")
            session.regroup(job)
        return bool(worth)

    def _gather(self, session: CoordinatorSession) -> None:
        """Wait for all sites, and go on with fewer if they are enough."""
        deadline, announced = time.monotonic() + self.patience.sites_s, False
        while True:
            here = session.sites()
            missing = sorted(set(self.kit.sites) - set(here))
            if not missing or (time.monotonic() > deadline and len(here) >= self.assignment.minimum_sites):
                break
            if time.monotonic() > deadline:
                raise Stopped(
                    f"{len(here)} sites are connected ({', '.join(here) or 'none'}), at least "
                    f"{self.assignment.minimum_sites} must be; start {', '.join(missing)} and {self.advice}"
                )
            if not announced:
                self.say(f"waiting for {', '.join(missing)}")
                announced = True
            time.sleep(_POLL_S)
        for name in missing:
            self._tell(name, "not connected")

    def _await_end(self, session: CoordinatorSession, job: str) -> None:
        session.done(job)
        deadline = time.monotonic() + 60.0
        while session.stage(job) != ENDED and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _show(self, news: Mapping[str, Any]) -> None:
        for name, what in news["sites"].items():
            self._tell(name, what)
        for line in news["history"]:
            if line["version"] > self._version:
                self._version, self._round_s = line["version"], line["seconds"]
                epsilon = line.get("epsilon")
                self.watch(Round(line["version"], line["loss"], line["seconds"]), epsilon, news["rounds"])

    @property
    def _usual(self) -> str:
        return f"; the last round took {self._round_s:g} s" if self._round_s > _SILENT_S else ""

    def _tell(self, site: str, what: str) -> None:
        if self._told.get(site) != what:
            self._told[site] = what
            self.say(f"{site}: {what}")

    def _fetch(self, session: CoordinatorSession, job: str, files: Mapping[str, int]) -> None:
        """The result's files; the generator last, because with it the folder counts as finished."""
        for name in sorted(files, key=lambda name: (name == "privacy.json", name == "generator.safetensors")):
            content = session.fetch(job, Path(name).name, files[name])
            if content is None:
                raise Lost("the job ended while its result was fetched")
            write_file(self.out / Path(name).name, content)
        session.done(job)

    def _change(self, job: str) -> None:
        self.assignment = Assignment(**{**self.assignment.__dict__, "job": job})
        self.assignment.save(self.out)
