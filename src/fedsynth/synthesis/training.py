"""One training run from encoded clients to a generator and its privacy statement, stoppable at any moment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from dp_accounting import DpEvent

from fedsynth.data.clients import Clients
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, BudgetExhausted, FedsynthError, NotPrivate
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.client_uses import ClientUses
from fedsynth.federation.link import Link
from fedsynth.federation.loop import Round, ask, learn_balance, run
from fedsynth.federation.pace import Pace
from fedsynth.federation.query import Query
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import RecordCount
from fedsynth.privacy import account
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import Charge, Unit, When
from fedsynth.recipes.budget import Target, adjacency_of, each_round, fit_budget, once
from fedsynth.recipes.effect import refuse_without_effect
from fedsynth.recipes.registry import Recipe, recipe_named
from fedsynth.recipes.sharing import shared_count
from fedsynth.recipes.task import Task
from fedsynth.recipes.usefulness import doubt
from fedsynth.rng import Rng
from fedsynth.simulator.devices import check_device
from fedsynth.simulator.inprocess import InProcess
from fedsynth.simulator.speeds import Speeds
from fedsynth.simulator.store import ClientStore
from fedsynth.simulator.virtual_clock import VirtualClock
from fedsynth.synthesis.folder import Folder, Keeper
from fedsynth.synthesis.meter import Meter, worst_off
from fedsynth.synthesis.payer import Payer
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.resume_uses import with_paid_uses

_SHOWN_PRECISION = 0.001
_NAMED = 5  # columns that a refusal lists
COUNT_NOISE = 20.0  # standard deviation of the paid-for number of records
Watch = Callable[[Round, float | None, int], None]  # round, epsilon so far, rounds in all


@dataclass(frozen=True)
class Prepared:
    """A run that is checked and calibrated, before anything is written."""

    recipe: Recipe
    schema: Schema
    clients: Clients | None  # None where they are behind a link of their own
    algorithm: Algorithm
    values: Mapping[str, Any]
    request: Request

    @property
    def adjacency(self) -> str:
        """The neighboring relation of the claim."""
        return adjacency_of(self.algorithm)

    @property
    def unit(self) -> Unit:
        """Whom the claim is about."""
        return self.recipe.protection(self.request.unit, self.request.trust)[0]

    def doubt(self) -> str | None:
        """Why this run will hardly be useful, from public facts; None where nothing says so."""
        task = self.request.task(self.schema, round(self.algorithm.schedule.clients))
        records = self.recipe.value_of("records", self.values) or None
        return doubt(self.algorithm, replace(task, records=records))


def check_request(request: Request, schema: Schema, clients: Clients) -> Recipe:
    """Refuse what cannot run or may not be claimed, before any work."""
    recipe = recipe_named(request.recipe)
    if not clients.rows:
        raise BadInput("the data have no rows; expected at least one")
    if len(clients) < 2 and not recipe.pooled:
        raise BadInput(
            f"clients={len(clients)}: a federation needs at least two; use the recipe central_vae for one"
        )
    if schema.classes and len(schema.classes) < 2:
        raise BadInput(f"label {schema.label!r} has one class, {schema.classes[0]!r}; leave the label out")
    unit, _ = recipe.protection(request.unit, request.trust)
    check_device(request.device, request.matmul)
    Speeds.parse(request.simulate_speeds or "default")
    check_claim(request, schema, unit, len(clients) if unit == "client" else clients.rows)
    return recipe


def check_claim(request: Request, schema: Schema, unit: Unit, units: int) -> None:
    """A delta that protects nobody and bounds read from rows need the user's word."""
    if request.target is None:
        return
    if request.target.delta >= 1 / units and "delta" not in request.accept:
        raise NotPrivate(
            f"delta={request.target.delta:g} is not below 1 / {units} {unit}s, so publishing one of them in full "
            f"would be allowed; choose a smaller delta, or say --accept delta"
        )
    inferred = schema.inferred()
    if inferred and request.seed is None and "inferred" not in request.accept:
        more = f" and {len(inferred) - _NAMED} more" if len(inferred) > _NAMED else ""
        files = " ".join(name for name in (request.schema, request.data) if name)
        review = (
            f"review them with `fedsynth schema review {files}`"
            if request.schema
            else "say what is publicly known with `schema.made_public`"
        )
        raise NotPrivate(
            f"columns {', '.join(inferred[:_NAMED])}{more}: types, decimals, bounds or categories were read from "
            f"rows without paying; {review}, or say --accept inferred"
        )


def prepare(
    request: Request,
    schema: Schema,
    clients: Clients,
    rng: Rng,
    payer: Payer,
    earlier: Ledger | None = None,
) -> Prepared:
    """Check, pay for the number of records where a recipe needs it, and calibrate.

    What `earlier` shows was spent on the schema already: it goes first into this run's ledger.
    """
    recipe = check_request(request, schema, clients)
    participants = clients.pooled() if recipe.pooled else clients
    values = recipe.values(request.arguments)
    task = request.task(schema, len(participants))
    refuse_without_effect(recipe, task, request.arguments)
    if request.target is None:
        if request.rounds is not None:
            values |= recipe.with_role("rounds", request.rounds)
        return Prepared(recipe, schema, participants, recipe.build(task, values), values, request)
    if earlier is not None:
        payer.begin_with(earlier)
    if task.unit == "record" and recipe.value_of("records", values) == 0:
        built = recipe.build(
            task, {**values, **recipe.with_role("records", participants.rows)}
        )  # bad arguments cost nothing
        payer = payer.capped(request.target, task.unit, adjacency_of(built))
        values |= recipe.with_role("records", _count_records(task, values, participants, rng, payer))
    algorithm, values = fit_budget(recipe, task, values, request.target, payer.ledger.lines())
    payer.approve(algorithm, algorithm.rounds)
    return Prepared(recipe, schema, participants, algorithm, values, request)


def resumed(request: Request, schema: Schema, clients: Clients) -> Prepared:
    """The run that a folder's recipe.toml describes: calibrated already, and not to be calibrated again."""
    recipe = check_request(request, schema, clients)
    participants = clients.pooled() if recipe.pooled else clients
    values = recipe.values(request.arguments)
    task = request.task(schema, len(participants))
    return Prepared(recipe, schema, participants, recipe.build(task, values), values, request)


def _count_records(task: Task, values: Mapping[str, Any], clients: Clients, rng: Rng, payer: Payer) -> int:
    """A noisy number of records, paid for first; without a trusted server as a masked sum."""
    mechanism = CentralGaussian(Clip(1.0), COUNT_NOISE)
    query = Query("number of records", RecordCount(), 1, mechanism, len(clients), "record")
    if task.trust == "distributed":
        query = shared_count(query, task, values)
    link = InProcess(clients, rng)
    noisy = ask(query, link, ServerState(0, {}), rng, payer.pay)
    return max(1, round(float(noisy[0])))


class Distant(Link, Keeper, Protocol):
    """Clients elsewhere, who remember by themselves."""


@dataclass
class Training:
    """Runs a prepared request to its end; `folder=None` keeps everything in memory.

    `link` reaches clients that are elsewhere; without one they are simulated here. With a link,
    `history` is what a coordinator may know; who took part, and how long it took, is in the folder's rounds.jsonl.
    """

    prepared: Prepared
    folder: Folder | None
    payer: Payer
    rng: Rng
    watch: Watch | None = None
    chunk: int | None = None
    link: Distant | None = None
    pace: Pace | None = None  # rounds wait for its ticks if their own length would tell who was drawn
    history: list[dict[str, Any]] = field(default_factory=list, init=False)
    notes: list[str] = field(default_factory=list, init=False)  # why training ended early, if it did

    def __post_init__(self) -> None:
        target = self.prepared.request.target
        if (
            target is not None and not self.rng.reproducible
        ):  # a seeded run releases its noise again, at no new cost
            self.payer = self.payer.capped(target, self.prepared.unit, self.prepared.adjacency)

    def start(self) -> ServerState:
        """Train from the beginning."""
        return self.start_from(self.prepared.algorithm.init(self.rng.at("init")))

    def start_from(self, state: ServerState) -> ServerState:
        """Train from this state, which nobody has worked on yet."""
        store = self.folder.store() if self.folder and self.link is None else None
        return self._train(state, self.link or self._simulated(store), self.prepared.algorithm.rounds)

    def resume(self) -> ServerState:
        """Train on from the last checkpoint; rounds that were paid for and lost stay in the ledger."""
        assert self.folder is not None
        link = self._simulated(self.folder.store())
        state = self.folder.restore(link)
        return self.resume_from(state or self.prepared.algorithm.init(self.rng.at("init")), link)

    def resume_from(self, state: ServerState, link: Distant | None = None) -> ServerState:
        """Train on from this state, as the checkpoint had it."""
        assert self.folder is not None
        reached = link or self.link
        assert reached is not None
        if self.prepared.algorithm.schedule.buffered and not self.rng.reproducible:
            algorithm, ledger, name = self.prepared.algorithm, self.payer.ledger, self.payer.name
            state = with_paid_uses(state, algorithm, ledger, name, asked_again=self.link is not None)
        elif self._turns and not self.rng.reproducible:
            state = self._past_lost_turns(state)
        self.folder.cut_history(state.version)
        self.history = self.folder.read_history()
        return self._train(state, reached, self._affordable(state), paid_version=state.version)

    def _train(
        self, state: ServerState, link: Distant, rounds: int, paid_version: int | None = None
    ) -> ServerState:
        """`paid_version` is the version whose clients may have paid already for what arrived."""
        algorithm = self.prepared.algorithm
        self.payer.approve(algorithm, rounds - state.version)
        known = state.balance is not None
        state = learn_balance(algorithm, link, state, self.rng, self.payer.pay)
        if not known:
            self._hold(state, link)
        if self.pace is not None:
            self.pace.start()
        meter, before = self._meter(state.version, rounds), self._releases(state)
        repeated = None if paid_version is None else When(paid_version + 1)

        def pay(when: When, charges: list[Charge], ids: np.ndarray) -> None:
            if self.pace is not None:
                self.pace.wait()
            again = algorithm.schedule.buffered and when == repeated
            (self.payer.pay_once if again else self.payer.pay)(when, charges, ids)

        def after_round(state: ServerState, done: Round) -> None:
            epsilon = meter.read(state.version, self._releases(state) - before) if meter else None
            self._note(done, epsilon)
            self._hold(state, link)
            if self.watch:
                self.watch(done, epsilon or (meter.last if meter else None), rounds)

        def hold(state: ServerState) -> None:
            self._hold(state, link)

        ahead = hold if self.link is not None else lambda _: None  # who is simulated charges nobody by itself
        state = run(
            algorithm, link, state, self.rng, pay, after_round, rounds, hold, self.notes.append, ahead
        )
        if self.notes and state.version == 0:
            raise FedsynthError(f"nothing was learned: {self.notes[-1]}")
        return state

    def _note(self, done: Round, epsilon: float | None) -> None:
        """Write down a finished round; over sites, what the coordinator gets apart from what stays on the server."""
        line = {**asdict(done), "epsilon": epsilon}
        line = {key: value for key, value in line.items() if value is not None or key != "simulated_s"}
        if self.link is not None:
            if self.folder:
                self.folder.append_round(line)
            seconds = self.pace.seconds if self.pace else done.seconds
            line = {"version": done.version, "loss": done.loss, "seconds": seconds, "epsilon": epsilon}
        self.history.append(line)
        if self.folder:
            self.folder.append_history(line)

    def _hold(self, state: ServerState, link: Distant) -> None:
        """Write down where the run stands."""
        if self.folder:
            self.folder.checkpoint(state, link)

    def _simulated(self, store: ClientStore | None) -> Distant:
        """Clients in this process, with simulated speeds if those were asked for."""
        assert self.prepared.clients is not None
        request = self.prepared.request
        clients, device, matmul = self.prepared.clients, request.device, request.matmul
        link = InProcess(clients, self.rng, device=device, matmul=matmul, chunk=self.chunk, store=store)
        if request.simulate_speeds is None and not self.prepared.algorithm.schedule.buffered:
            return link
        return VirtualClock(link, Speeds.parse(request.simulate_speeds or "default"), self.rng)

    def _releases(self, state: ServerState) -> int:
        """How many rounds whoever took part most often was in."""
        schedule = self.prepared.algorithm.schedule
        if schedule.buffered:
            return int(ClientUses.from_tensors(state.standing, schedule.clients).uses.max())
        return schedule.participations(state.version) if self._turns else state.version

    def _meter(self, version: int, rounds: int) -> Meter | None:
        """Epsilon after further rounds, on top of what the ledger shows now (a seeded run: of each round once)."""
        target = self.prepared.request.target
        if target is None:
            return None
        lines = self.payer.ledger.lines()
        if self.rng.reproducible:
            lines = lines[: len(lines) - self._repeated(version)]
        spent = worst_off(lines, target, self.prepared.unit, self.prepared.adjacency)
        each = each_round(self.prepared.algorithm)
        odometer = account.Odometer(
            [account.compose(spent)], each, target.delta, self.prepared.adjacency, precision=_SHOWN_PRECISION
        )
        return Meter(odometer, target.epsilon, rounds, secret=self.pace is not None)

    @property
    def _turns(self) -> bool:
        """Whether each client pays for itself and takes part in rounds that were fixed beforehand."""
        algorithm = self.prepared.algorithm
        own = all(charge.holder == "client" for charge in algorithm.charges())
        return own and algorithm.schedule.participations(algorithm.rounds) < algorithm.rounds

    def _past_lost_turns(self, state: ServerState) -> ServerState:
        """The state after rounds that clients paid for and that were lost: their turn is over, and changed nothing."""
        lines = self.payer.ledger.lines()
        opening = self.prepared.algorithm.opening
        if (
            state.balance is None
            and opening is not None
            and any(line.release == opening.what for line in lines)
        ):
            raise BudgetExhausted(
                f"{opening.what}: the ledger shows that clients answered, but the answers were lost; asking again "
                "would cost them twice. Start a new run with other clients"
            )
        paid = max((line.round for line in lines), default=0)
        return replace(state, version=max(state.version, paid))

    def _repeated(self, version: int) -> int:
        """Ledger lines of rounds after `version`, which a seeded run will write again with the same values."""
        return sum(line.round > version for line in self.payer.ledger.lines())

    def _affordable(self, state: ServerState) -> int:
        """The version to stop at: all rounds, or fewer if lost rounds were paid for.

        A seeded run repeats the very same noise, so a repeated round tells nobody anything new.
        """
        algorithm, target = self.prepared.algorithm, self.prepared.request.target
        if target is None or self.rng.reproducible or self._turns or algorithm.schedule.buffered:
            return algorithm.rounds
        spent = worst_off(self.payer.ledger.lines(), target, self.prepared.unit, self.prepared.adjacency)
        waiting = [] if state.balance is not None else once(algorithm)
        left = _rounds_left(each_round(algorithm), target, [*spent, *waiting], self.prepared.adjacency)
        if state.version + left < 1:
            raise BudgetExhausted(
                f"the ledger shows the budget of epsilon {target.epsilon:g} spent; nothing more can be released"
            )
        return min(algorithm.rounds, state.version + left)


def _rounds_left(event: DpEvent, target: Target, spent: list[DpEvent], adjacency: str) -> int:
    already = account.epsilon(account.compose(spent), target.delta, adjacency=adjacency)
    if not math.isfinite(already) or already >= target.epsilon:
        return 0
    return account.max_rounds(event, target.epsilon, target.delta, fixed=spent, adjacency=adjacency)
