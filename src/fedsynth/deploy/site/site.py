"""A site: it keeps its rows, its clients' private parts and its own ledger, and decides what it takes part in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsynth.data.clients import Clients, RawClients
from fedsynth.data.schema import Schema
from fedsynth.deploy.link.codec import MOST_BYTES, BadMessage, fingerprint
from fedsynth.deploy.link.ledger_heads import RESTORE
from fedsynth.deploy.link.messages import (
    Accept,
    Begin,
    Done,
    Invite,
    Message,
    Notice,
    Refuse,
    Report,
    Settle,
    Stage,
    Staged,
    Status,
    Terms,
    Work,
    read,
    write,
)
from fedsynth.deploy.site.activity_log import ActivityLog
from fedsynth.deploy.site.look import Assigned, Look
from fedsynth.deploy.site.payer import SitePayer
from fedsynth.deploy.site.policy import SitePolicy, too_few
from fedsynth.deploy.site.reservations import Reservations
from fedsynth.deploy.site.run import Labor, Refusal, Seal, SiteRun, check_start
from fedsynth.deploy.site.state import RunFolder, SiteProgress, run_path
from fedsynth.errors import BadInput, BudgetExhausted, FedsynthError, nearest
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng

_INSPECT = "whoever owns the data may allow them: inspect = true under [policy] in site.toml"
Compose = Callable[
    [Terms, Schema], Algorithm
]  # a recipe's algorithm, built here from what this site has installed
Differs = Callable[[Mapping[str, Any], str], str]


@dataclass(frozen=True)
class Holding:
    """The rows of a site, encoded; a client is a patient, or the site as a whole."""

    clients: Clients
    names: tuple[str, ...]
    schema: Schema
    raw: RawClients | None = None  # the rows as they were read, for inspections


class Site:
    """Answers the server's messages, one at a time."""

    def __init__(
        self,
        holding: Holding,
        policy: SitePolicy,
        folder: Path,
        compose: Compose,
        *,
        seed: int | None = None,
        device: str = "cpu",
        chunk: int | None = None,
        seals: Mapping[str, Seal] | None = None,
        most_bytes: int = MOST_BYTES,
        look: Look | None = None,
        differs: Differs | None = None,
    ) -> None:
        """`seed` makes its randomness repeatable: for tests, and private for nobody. `seals` go by transport.

        `differs` says why the server's software does not compose the run that this site's does.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.holding = holding
        self.policy = policy
        self.folder = folder
        self.seeded = seed is not None
        self.audit = ActivityLog(folder / "audit.jsonl")
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.reserved = Reservations(folder / "reserved.json", self.ledger)
        self._compose = compose
        self._look = look
        self._differs = differs
        if chunk is None and seed is None and device == "cpu":
            chunk = 1  # clients in one stack change each other's last bits: docs/noise.md
        self._labor = Labor(holding.clients, Rng(seed), device, chunk)
        self._seals = dict(seals or {})
        self._most_bytes = most_bytes
        self._runs: dict[str, SiteRun] = {}
        self._lock = threading.Lock()

    def handle(self, payload: bytes) -> bytes:
        """The answer to one message; what cannot be done is refused with a reason, and nothing is half done."""
        with self._lock:
            answers = fingerprint(payload)
            try:
                message = read(payload, self._most_bytes)
            except BadMessage as error:
                return self._refused("", answers, Refusal("message", str(error)))
            try:
                return self._answer(message, answers)
            except Refusal as refusal:
                return self._refused(message.run, answers, refusal)
            except BudgetExhausted as error:
                return self._refused(message.run, answers, Refusal("budget", str(error), final=True))
            except BadMessage as error:
                return self._refused(message.run, answers, Refusal("message", str(error)))
            except OSError as error:
                self._runs.clear()  # what was not written did not happen
                why = error.strerror or type(error).__name__
                reason = f"the site cannot write its state ({why}); it takes part again when it can"
                return self._refused(message.run, answers, Refusal("disk", reason), error)
            except Exception as error:  # the coordinator shall hear of it, and other runs shall go on
                self._runs.clear()
                reason = f"the site failed ({type(error).__name__}); what happened is in its own audit log"
                return self._refused(message.run, answers, Refusal("error", reason), error)

    def _answer(self, message: Message, answers: str) -> bytes:
        match message:
            case Invite():
                return self._invited(message, answers)
            case Begin():
                return self._begun(message, answers)
            case Work():
                return self._worked(message)
            case Settle():
                return self._settled(message, answers)
            case Stage():
                return self._staged(message, answers)
            case Notice():
                self.audit.note("told by the server", run=message.run, text=message.text)
                return write(Report(message.run, answers, 0))
            case Status():
                version = self._standing(message.run).since
                return write(Report(message.run, answers, version))
        raise BadMessage(f"kind={message.kind!r}: a site is not asked that")

    def _refused(self, run: str, answers: str, refusal: Refusal, cause: Exception | None = None) -> bytes:
        """Tell the coordinator why; the text of a `cause` may quote a row, so it stays in this site's own log."""
        kept = {} if cause is None else {"cause": f"{type(cause).__name__}: {cause}"}
        with suppress(OSError):  # a full disk must not keep the coordinator from hearing of it
            self.audit.note("refused", run=run, code=refusal.code, reason=str(refusal), **kept)
        return write(Refuse(run, answers, refusal.code, str(refusal)[:2000], refusal.final))

    def _invited(self, invite: Invite, answers: str) -> bytes:
        self._agree(invite.terms)
        proof = self.ledger.hash_at(invite.known)
        if invite.known and not proof:
            reason = f"its ledger is shorter than the {invite.known} lines that it showed before: {RESTORE}"
            raise Refusal("ledger", reason, final=True)
        session = self._standing(invite.run).session
        self.audit.note("accepted an invitation", run=invite.run, recipe=invite.terms.recipe)
        clients = len(self.holding.clients)
        return write(Accept(invite.run, answers, clients, session, self.seeded, self.ledger.shown, proof))

    def _begun(self, begin: Begin, answers: str) -> bytes:
        folder = self._folder(begin.run)
        standing = folder.load() if folder.exists else SiteProgress()
        written = write(begin)
        same = folder.exists and folder.begin() == written
        if not (same and standing.session == begin.session):
            self._check_begin(begin, folder, standing)
            assigned = self._assigned(begin)
            check_start(assigned.algorithm, begin.tensors)
            self._payer(begin, assigned).approve(assigned.whole)
            folder.create(written, replace(standing, session=begin.session, over=False))
            self.audit.note("began", run=begin.run, session=begin.session, recipe=begin.terms.recipe)
        folder.close()
        self._runs.pop(begin.run, None)
        return write(Done(begin.run, answers, self._run(begin.run).payer.rounds, self.ledger.shown))

    def _check_begin(self, begin: Begin, folder: RunFolder, standing: SiteProgress) -> None:
        if begin.session <= standing.session:
            raise Refusal("session", f"session {begin.session}: this site obeys session {standing.session}")
        if standing.over:
            raise Refusal("stale", f"run {begin.run} is over here", final=True)
        self._agree(begin.terms)
        if begin.sites < self.policy.minimum_cohort:
            raise Refusal("policy", too_few(begin.sites, self.policy))
        if begin.first + len(self.holding.clients) > begin.terms.clients:
            raise BadMessage(
                f"first={begin.first}: {len(self.holding.clients)} clients from there are more than the "
                f"{begin.terms.clients} of the run; has the number of clients here changed since it began?"
            )
        if begin.terms.trust == "distributed" and len(self.holding.clients) > begin.terms.largest:
            raise BadMessage(
                f"largest={begin.terms.largest}: this site has {len(self.holding.clients)} clients and knows as many "
                "shares of the noise, more than the promise counts on"
            )
        paid = any(line.run == begin.run for line in self.ledger.lines())
        if not folder.exists or not (standing.since or standing.waiting or paid):
            return
        earlier = read(folder.begin())
        assert isinstance(earlier, Begin)
        before, now = (replace(one.terms, software={}) for one in (earlier, begin))
        if (before, earlier.first) != (now, begin.first):
            raise Refusal("policy", "the plan of this run is not the one that it began with", final=True)

    def _worked(self, work: Work) -> bytes:
        run = self._current(work.run, work.session)
        if work.sites < self.policy.minimum_cohort:
            raise Refusal("policy", too_few(work.sites, self.policy))
        terms = run.begin.terms
        if terms.inspection and not self._looking().allows(terms, work.job):
            raise BadMessage(f"job={work.job[:40]!r}: this step of an inspection has no such job")
        if work.sites > run.begin.sites:
            raise BadMessage(f"sites={work.sites}: this run began with {run.begin.sites}")
        _check_version(run, work.version, work.since, most=run.rounds - 1 if work.job == "round" else 0)
        run.settle(work.used, work.since, work.version)
        result = run.answer(work)
        self.audit.note("answered", run=work.run, job=work.job, version=work.version, session=work.session)
        return result

    def _settled(self, settle: Settle, answers: str) -> bytes:
        if settle.over and settle.run in self.reserved.names() and not self._folder(settle.run).exists:
            with self.ledger.locked():  # the whole of an inspection is over
                self.reserved.drop(settle.run)
            return write(Done(settle.run, answers, 0))
        if settle.over and self._standing(settle.run).over:
            return write(Done(settle.run, answers, 0))
        run = self._current(settle.run, settle.session)
        _check_version(run, settle.version, settle.since, most=run.rounds)
        run.settle(settle.used, settle.since, settle.version)
        paid = run.payer.rounds
        if settle.over:
            self._finish(run, settle.version)
        return write(Done(settle.run, answers, paid, self.ledger.shown))

    def _finish(self, run: SiteRun, version: int) -> None:
        name = run.begin.run
        self._pay_for_the_rest(run, version)
        run.finish()
        if not run.begin.terms.inspection:  # all steps of an inspection share what was reserved
            run.payer.release()
        self._runs.pop(name, None)
        self.audit.note("finished", run=name, version=version)

    def end(self, name: str) -> None:
        """End a run that its server gave up: the rest of its plan is charged, and no budget stays reserved for it."""
        with self._lock:
            if not self._folder(name).exists or self._standing(name).over:
                raise BadInput(
                    f"run {name}: this site is in no run of that name; {nearest(name, self.open_runs())}"
                )
            run = self._run(name)
            self._finish(run, run.standing.since)

    def open_runs(self) -> list[str]:
        """The runs that this site began and that are not over."""
        standings = sorted((self.folder / "runs").glob("*/standing.bin"))
        return [path.parent.name for path in standings if not self._standing(path.parent.name).over]

    def _pay_for_the_rest(self, run: SiteRun, version: int) -> None:
        """Charge the plan to its end where the server stops before: why it does is not known here."""
        try:
            run.payer.pay_for_the_rest(version)
        except BudgetExhausted as error:
            self.audit.note("the rest of the plan is not charged", run=run.begin.run, reason=str(error))

    def _staged(self, stage: Stage, answers: str) -> bytes:
        run = self._current(stage.run, stage.session)
        _check_version(run, stage.version, stage.version, most=run.rounds)
        if run.sealer is None:
            raise BadMessage(f"stage={stage.name[:40]!r}: the transport of this run has no stages")
        with _without_rows():
            blob = run.sealer.stage(stage.version, stage.name, stage.blob)
        return write(Staged(stage.run, answers, stage.name, blob))

    def _folder(self, run: str) -> RunFolder:
        with _without_rows():
            return RunFolder(run_path(self.folder, run))

    def _standing(self, run: str) -> SiteProgress:
        folder = self._folder(run)
        if run in self._runs:
            return self._runs[run].standing
        standing = folder.load() if folder.exists else SiteProgress()
        folder.close()
        return standing

    def _current(self, name: str, session: int) -> SiteRun:
        """The run, if this server session is the one to obey."""
        run = self._run(name)
        if session != run.standing.session:
            code = "begin" if session > run.standing.session else "session"
            raise Refusal(code, f"session {session}: this site obeys session {run.standing.session}")
        if run.standing.over:
            raise Refusal("stale", f"run {name} is over here", final=True)
        return run

    def _run(self, name: str) -> SiteRun:
        if name not in self._runs:
            folder = self._folder(name)
            if not folder.exists:
                raise Refusal("begin", f"run {name}: this site has not begun it")
            begin = read(folder.begin())
            assert isinstance(begin, Begin)
            assigned = self._assigned(begin)
            algorithm = assigned.algorithm
            seal = self._seals.get(begin.terms.transport)
            sealer = None if seal is None else seal(name, algorithm, folder.path / "seal")
            payer = self._payer(begin, assigned)
            labor = replace(self._labor, clients=assigned.clients(), rng=self._labor.rng.at(*assigned.stream))
            self._runs[name] = SiteRun(begin, algorithm, folder, payer, labor, sealer)
        return self._runs[name]

    def _assigned(self, begin: Begin) -> Assigned:
        if begin.terms.inspection:
            with _without_rows():  # they are looked at when its clients are
                return self._looking().assigned(begin)
        with _without_rows():
            algorithm = self._compose(begin.terms, self.holding.schema)
        return Assigned(algorithm, lambda: self.holding.clients)

    def _payer(self, begin: Begin, assigned: Assigned) -> SitePayer:
        terms = begin.terms
        cap = None
        if not self.seeded and terms.private:
            adjacency = assigned.algorithm.schedule.adjacency
            cap = Budget(terms.epsilon, terms.delta, terms.unit, adjacency)  # type: ignore[arg-type]
        budget, names = self.policy.budget, self.holding.names
        return SitePayer(
            begin.run, assigned.algorithm, self.ledger, budget, cap, names, assigned.agreement, self.reserved
        )

    def _agree(self, terms: Terms) -> None:
        """Refuse what the policy does not allow, and what other code would compose."""
        self.policy.agree(terms, self.holding.schema, self._seals)
        with _without_rows():
            why = "" if self._differs is None else self._differs(terms.software, terms.recipe)
        if why:
            raise Refusal("version", why)
        if terms.inspection:
            self._agree_to_look(terms)

    def _agree_to_look(self, terms: Terms) -> None:
        if not self.policy.inspect:
            raise Refusal("policy", f"inspections are not allowed here; {_INSPECT}")
        with _without_rows():
            self._looking().agree(terms)

    def _looking(self) -> Look:
        if self._look is None:
            raise Refusal("policy", "this job is for training; an inspection is a job of its own")
        return self._look


@contextmanager
def _without_rows() -> Iterator[None]:
    """Around work that sees no row: what is wrong with it may be told in its own words."""
    try:
        yield
    except (Refusal, BadMessage, BudgetExhausted):
        raise
    except FedsynthError as error:
        raise Refusal("policy", str(error)) from error


def _check_version(run: SiteRun, version: int, since: int, *, most: int) -> None:
    """A site agreed to so many rounds; a message about others is refused before anything is written."""
    if not since <= version <= most:
        raise BadMessage(
            f"version={version}, since={since}: this site agreed to {run.rounds} rounds; expected since <= version "
            f"<= {most}"
        )
