"""The server's side of a federated run: ask the sites, calibrate to those that agree, train, release.

Everything that a run needs to go on is in its folder on the server's disk, so a job may die at any moment and the
next one continues from the last finished round.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from fedsynth.data.schema import Schema
from fedsynth.deploy.copies import WORDS, RefusedCopies
from fedsynth.deploy.inspection.server_job import inspect, inspection_results
from fedsynth.deploy.job import Regroup, Tell, earlier_ledger, one_job
from fedsynth.deploy.link.buffered import Buffered
from fedsynth.deploy.link.channel import Channel
from fedsynth.deploy.link.ledger_heads import LedgerHeads
from fedsynth.deploy.link.masked import MaskedLink
from fedsynth.deploy.link.messages import Notice, Terms, write
from fedsynth.deploy.link.patience import Patience, TooFewSites
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.link.sealed import SealedLink
from fedsynth.deploy.memory import EVERY, give_back, resident_bytes
from fedsynth.deploy.participation import terms_of
from fedsynth.deploy.sealed_release import SealedGenerator
from fedsynth.errors import BadInput, BudgetExhausted, FedsynthError
from fedsynth.federation.algorithm import Algorithm, secret_draw
from fedsynth.federation.loop import Round, ended
from fedsynth.federation.pace import Pace, last_step, watched_stoppage
from fedsynth.federation.state import SEALED, ServerState
from fedsynth.privacy.chain import head_path
from fedsynth.privacy.ledger import Ledger
from fedsynth.recipes.budget import fit_budget
from fedsynth.recipes.effect import refuse_without_effect
from fedsynth.recipes.registry import Recipe, recipe_named
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.payer import Payer
from fedsynth.synthesis.release import public_units, release
from fedsynth.synthesis.released_files import close, complete
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.training import Prepared, Training, check_claim
from fedsynth.transport.agreement import Aborted

LEDGERS = "ledgers.json"  # beside the runs: what each site's ledger showed
_CAVEATS = ("The server knows how many clients each site has, and a site knows which of its own were drawn.",)
_NO_OTHER = "too few sites may take part in another round (what was lost stays paid for)"
_GROWTH = (
    150 * 2**20
)  # bytes: the engine's memory grows a little with each message, so a long run takes several jobs
_REPEATS = (
    4  # times that rounds of one job may be begun anew because too few sites were left to open a masked sum
)


class ServerJob:
    """The work of a fedsynth job at the server."""

    def __init__(self, pace: Callable[..., Pace] = Pace) -> None:
        """`pace` makes the clock by which secret rounds end."""
        self._pace = pace

    def conduct(
        self,
        assignment: Mapping[str, Any],
        channel: Channel,
        folder: Path,
        tell: Tell,
        regroup: threading.Event,
    ) -> None:
        """Bring the run to its end, from wherever it is."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        with one_job(folder):
            heads = LedgerHeads(folder.parent / LEDGERS)
            if assignment.get("inspection"):  # a list of runs, each for one question or model
                inspect(assignment, channel, folder, tell, heads)
                return
            place = Folder(folder)
            if place.finished:
                complete(place)
            else:
                _Run(assignment, channel, place, tell, regroup, self._pace, heads).finish()
            tell(rounds=len(place.read_history()))

    def results(self, folder: Path) -> list[Path]:
        """List the files of a finished run's folder; the sites' private parts were never here."""
        place = Folder(folder)
        if not place.recipe.exists():
            return inspection_results(folder)
        ledger = (place.ledger, head_path(place.ledger))
        released = (place.privacy, place.generator, place.sealed)
        named = (place.recipe, place.schema, *ledger, place.history, *released)
        return [path for path in named if path.exists()]


@dataclass
class _Run:
    """One run over the sites of one job."""

    assignment: Mapping[str, Any]
    channel: Channel
    place: Folder
    tell: Tell
    regroup: threading.Event
    make_pace: Callable[..., Pace]
    heads: LedgerHeads
    schema: Schema = field(init=False)
    remote: Remote = field(init=False)
    link: Remote | Buffered | MaskedLink | SealedLink = field(init=False)
    _sites: dict[str, str] = field(default_factory=dict, init=False)
    _first_resident: int = field(default=0, init=False)
    _trained: Training | None = field(default=None, init=False)
    _copies: RefusedCopies = field(default_factory=RefusedCopies, init=False)

    def __post_init__(self) -> None:
        self.schema = Schema.from_dict(dict(self.assignment["schema"]))
        patience = Patience(
            timeout_s=self.assignment["round_s"], resend_s=max(5.0, self.assignment["round_s"] / 4)
        )
        self.remote = Remote(
            self.channel,
            self.assignment["run"],
            minimum=self.assignment["minimum_sites"],
            patience=patience,
            tell=self._news,
            whisper=self._own_note,
            heads=self.heads,
        )
        self.link = self.remote

    def _routed(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm over the link that its schedule and its transport need."""
        if algorithm.transport.needs_cohort:
            self.link = masked = MaskedLink(self.remote)
            return masked.routed(algorithm)
        beneath = Buffered(self.remote) if algorithm.schedule.buffered else self.remote
        if algorithm.transport.blind:
            self.link = sealed = SealedLink(self.remote, beneath)
            self._check_openable(algorithm)
            return sealed.routed(algorithm)
        self.link = beneath
        return algorithm

    def _check_openable(self, algorithm: Algorithm) -> None:
        """Sites open averages of so many clients or more, and a version must be one."""
        schedule, minimum = algorithm.schedule, self.assignment["minimum_sites"]
        if schedule.buffered and schedule.expected < minimum:
            raise BadInput(
                f"buffer={schedule.expected:g}: sites open no sealed average over fewer than {minimum} clients; "
                f"set buffer={minimum}, or a smaller --minimum-sites"
            )

    def finish(self) -> None:
        """Train to the end, release, and tell the sites that it is over."""
        state = self.place.restore(self.remote)
        if state is None and self.place.path.exists():
            self._refuse_lost_checkpoint()
            shutil.rmtree(self.place.path)  # it was stopped before anything was released
        work: Callable[[ServerState], ServerState]
        if state is None:
            rng = Rng(self.assignment["request"].get("seed"))
            prepared, state = self._begin(rng)
            work = self._training(prepared, rng).start_from
        else:
            prepared = self._return()
            state = self.place.restore(self.link) or state
            rng = Rng(prepared.request.seed)
            work = self._rejoined(prepared, state, rng)
        try:
            state = self._worked(prepared, work, state, rng)
        except (TooFewSites, BudgetExhausted) as reason:
            last = self._all_that_may_be(reason)
            if last is None:
                raise
            why = _NO_OTHER if isinstance(reason, TooFewSites) else str(reason)
            self._news("server", 0, f"{why}; training ends with the model of round {last.version}")
            state = ended(prepared.algorithm, last)
        for note in [] if self._trained is None else self._trained.notes:
            self._news("server", 0, note)
        seeded = rng.reproducible or self.remote.roster.seeded
        generator, statement = release(
            prepared, Ledger(self.place.ledger), state, seeded=seeded, caveats=_CAVEATS
        )
        if SEALED in state.memory:  # whatever the server knows of the parameters, it is not the average
            sealed = state.memory[SEALED].numpy().tobytes()
            clients = prepared.algorithm.schedule.clients
            known = {part: state.parts[part] for part in prepared.algorithm.unsealed}
            SealedGenerator(sealed, clients, state.balance, known).save(self.place.sealed)
        else:
            generator.save(self.place.generator)
        statement.save(self.place.privacy)
        with suppress(
            FedsynthError
        ):  # the result is safe: whoever is not there to hear that it is over need not be
            self.remote.close(state)
        close(self.place)

    def _refuse_lost_checkpoint(self) -> None:
        """A run that released something goes on from its checkpoint or not at all: its ledger is not thrown away."""
        if any(line.run == self.assignment["run"] for line in Ledger(self.place.ledger).lines()):
            raise FedsynthError(
                f"{self.place.path.name}: the ledger on the server shows releases of this run, but its checkpoint is "
                "gone; restore the checkpoint from a copy, or start a new run for what the sites' budgets leave"
            )

    def _rejoined(
        self, prepared: Prepared, state: ServerState, rng: Rng
    ) -> Callable[[ServerState], ServerState]:
        """Begin a new session with the sites of the run, from this checkpoint."""
        self.remote.invite(self._terms(prepared))
        self.remote.begin(self._terms(prepared), prepared.algorithm, state)
        self._greet()
        return self._training(prepared, rng).resume_from

    def _worked(
        self, prepared: Prepared, work: Callable[[ServerState], ServerState], state: ServerState, rng: Rng
    ) -> ServerState:
        """Train to the end; a round of which too few were left to open it is done anew, and paid for anew."""
        for left in reversed(range(_REPEATS)):
            try:
                return work(state)
            except Aborted as reason:
                last = self.place.restore(self.link)
                if not left or last is None:
                    raise
                self._news("server", last.version, f"{reason}; the round is begun anew")
                state = last
                work = self._rejoined(prepared, state, rng)
        raise AssertionError("a round is either done or given up")

    def _all_that_may_be(self, reason: FedsynthError) -> ServerState | None:
        """The last finished round, if no other can come: where rounds were lost, sites paid for them all the same.

        Then the run's budget is spent, here or at so many sites that the rest are too few.
        """
        open_sites = [member for member in self.remote.roster.members.values() if not member.out]
        enough = len(open_sites) >= self.assignment["minimum_sites"]
        if enough and not isinstance(reason, BudgetExhausted):
            return None
        state = self.place.restore(_Nobody())
        return state if state is not None and state.version else None

    def _begin(self, rng: Rng) -> tuple[Prepared, ServerState]:
        """Ask the sites, calibrate to their number of clients, and write the first checkpoint."""
        request = Request.from_toml(dict(self.assignment["request"]))
        recipe = recipe_named(request.recipe)
        values = recipe.values(request.arguments)
        self.remote.invite(
            terms_of(request, self.schema, values, minimum_cohort=self.assignment["minimum_sites"])
        )
        while True:
            prepared = self._prepare(recipe, request)
            state = prepared.algorithm.init(rng.at("init"))
            refused = self.remote.begin(self._terms(prepared), prepared.algorithm, state)
            if not refused:
                break
            self.remote.without(refused)
        self._greet()
        self.place.create(prepared.request.to_toml(), self.schema)
        self._adopt_earlier()
        self.place.checkpoint(state, self.remote)
        return prepared, state

    def _task(self, request: Request) -> Task:
        """The recipe's task for the clients of all sites in the roster."""
        return request.task(self.schema, self.remote.roster.clients, self.remote.roster.largest)

    def _prepare(self, recipe: Recipe, request: Request) -> Prepared:
        """Calibrate for the clients that there are."""
        values, task = recipe.values(request.arguments), self._task(request)
        refuse_without_effect(recipe, task, request.arguments)
        if request.target is None:
            if request.rounds is not None:
                values |= recipe.with_role("rounds", request.rounds)
            algorithm = recipe.build(task, values)
        else:
            if task.unit == "record" and recipe.value_of("records", values) == 0:
                raise BadInput(
                    "records: sites do not tell how many they have; declare a public number with --set records=N"
                )
            check_claim(
                request, self.schema, task.unit, public_units(recipe, task.unit, task.clients, values)
            )
            spent = self._earlier().lines()
            algorithm, values = fit_budget(recipe, task, values, request.target, spent)
        arguments = replace(request, arguments=values)
        return Prepared(recipe, self.schema, None, self._routed(algorithm), values, arguments)

    def _return(self) -> Prepared:
        """The run as it was calibrated, for the clients that it began with."""
        request = Request.from_toml(self.place.read_recipe())
        recipe = recipe_named(request.recipe)
        values = recipe.values(request.arguments)
        algorithm = self._routed(recipe.build(self._task(request), values))
        return Prepared(recipe, self.schema, None, algorithm, values, request)

    def _greet(self) -> None:
        for name in self.remote.roster.present:
            self._news(name, 0, "takes part")

    def _terms(self, prepared: Prepared) -> Terms:
        return terms_of(
            prepared.request,
            self.schema,
            prepared.values,
            self.remote.roster.clients,
            self.assignment["minimum_sites"],
            self.remote.roster.largest,
        )

    def _training(self, prepared: Prepared, rng: Rng) -> Training:
        payer = Payer(Ledger(self.place.ledger), self.assignment["run"])
        self.tell(state="training", rounds=prepared.algorithm.rounds)
        self._trained = Training(
            prepared, self.place, payer, rng, self._seen, link=self.link, pace=self._pace(prepared, rng)
        )
        return self._trained

    def _pace(self, prepared: Prepared, rng: Rng) -> Pace | None:
        """The clock by which rounds end, if their own length must not be seen."""
        if rng.reproducible or not secret_draw(prepared.algorithm):
            return None
        return self.make_pace(
            last_step(self.place.read_history()),
            lambda: self.remote.roster.present,
            stopped=watched_stoppage(),
        )

    def _seen(self, done: Round, epsilon: float | None, rounds: int) -> None:
        assert self._trained is not None
        members = set(self.remote.roster.members)
        # whoever is back is seen by the engine; when its absence was noticed may show that it was drawn
        away = sorted(members if self._trained.pace else members - set(self.remote.roster.present))
        self.tell(line={**self._trained.history[-1], "epsilon": epsilon}, rounds=rounds, away=away)
        self._warn_of_copies()
        if done.version % EVERY == 0:
            give_back()
        resident = resident_bytes()
        self._first_resident = self._first_resident or resident
        if self.regroup.is_set() or (resident - self._first_resident > _GROWTH and done.version < rounds):
            raise Regroup

    def _warn_of_copies(self) -> None:
        for site in self._copies.following():
            if site in self.remote.roster.members:
                self._news(site, 0, WORDS)
                self.channel.send(site, write(Notice(self.assignment["run"], WORDS)))

    def _news(self, site: str, version: int, what: str) -> None:
        self._sites = {**self._sites, site: what if version < 1 else f"{what} (round {version + 1})"}
        self.tell(sites=self._sites)

    def _own_note(self, site: str, version: int, what: str) -> None:
        """Write down on the server's disk alone what would tell the coordinator that a site was drawn."""
        with (self.place.path / "sites.log").open("a") as file:
            file.write(f"round {version + 1}: {site} {what}\n")

    def _earlier(self) -> Ledger:
        """The ledger of the schema's cost, as the coordinator sent it."""
        return earlier_ledger(self.assignment, self.place.path)

    def _adopt_earlier(self) -> None:
        Ledger(self.place.ledger).adopt(self._earlier())


class _Nobody:
    """Remembers nothing: for a look at the checkpoint's state alone."""

    def index(self) -> dict[str, Tensor]:
        return {}

    def restore(self, index: dict[str, Tensor]) -> None:
        pass
