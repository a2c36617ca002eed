"""One training run from encoded clients to a generator and its privacy statement, stoppable at any moment."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import torch
from dp_accounting import DpEvent

from fedsynth.data.clients import Clients
from fedsynth.data.schema import Schema
from fedsynth.engines.inprocess import InProcess
from fedsynth.engines.store import ClientStore
from fedsynth.errors import BadInput, BudgetExhausted, NotPrivate, nearest
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.link import Link
from fedsynth.federation.loop import Round, ask, learn_balance, run
from fedsynth.federation.query import Query
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import RecordCount
from fedsynth.privacy import account
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import Unit
from fedsynth.recipes.budget import Target, adjacency_of, each_round, fit_budget, once
from fedsynth.recipes.registry import Recipe, recipe_named
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder, Keeper
from fedsynth.synthesis.purse import Purse
from fedsynth.synthesis.request import Request

_SHOWN_PRECISION = 0.001
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
        """The neighbouring relation of the claim."""
        return adjacency_of(self.algorithm)

    @property
    def unit(self) -> Unit:
        """Whom the claim is about."""
        return self.recipe.protection(self.request.unit, self.request.trust)[0]


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
    _check_device(request.device)
    check_claim(request, schema, unit, len(clients) if unit == "client" else clients.rows)
    return recipe


def _check_device(name: str) -> None:
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise BadInput(f"device={name!r}: unknown; {nearest(name, ('cpu', 'cuda'))}")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise BadInput(f"device={name!r}: torch finds no GPU on this machine; use cpu")


def check_claim(request: Request, schema: Schema, unit: Unit, units: int) -> None:
    """A delta that protects nobody and bounds read from rows need the user's word."""
    if request.target is None:
        return
    if request.target.delta >= 1 / units and "delta" not in request.accept:
        raise NotPrivate(
            f"delta={request.target.delta:g} is not below 1 / {units} {unit}s, so losing one of them whole "
            f"would be allowed; choose a smaller delta, or say --accept delta"
        )
    inferred = schema.inferred()
    if inferred and request.seed is None and "inferred" not in request.accept:
        raise NotPrivate(
            f"columns {', '.join(inferred)}: bounds or categories were read from rows without paying; review them "
            f'and set provenance to "public" in the schema, or say --accept inferred'
        )


def task_of(recipe: Recipe, request: Request, schema: Schema, held: Clients) -> Task:
    """What the recipe is asked to do for these clients."""
    return recipe.task(
        schema,
        len(held),
        private=request.private,
        unit=request.unit,
        trust=request.trust,
        transport=request.transport,
    )


def prepare(
    request: Request,
    schema: Schema,
    clients: Clients,
    rng: Rng,
    purse: Purse,
    earlier: Ledger | None = None,
) -> Prepared:
    """Check, pay for the number of records where a recipe needs it, and calibrate.

    What `earlier` shows was spent on these data already: it goes first into this run's ledger.
    """
    recipe = check_request(request, schema, clients)
    held = clients.pooled() if recipe.pooled else clients
    values = recipe.values(request.arguments)
    task = task_of(recipe, request, schema, held)
    if request.target is None:
        if request.rounds is not None:
            values["rounds"] = request.rounds
        return Prepared(recipe, schema, held, recipe.build(task, values), values, request)
    if earlier is not None:
        purse.ledger.adopt(earlier)
    if task.unit == "record" and "records" in values and not values["records"]:
        if task.trust == "distributed":
            raise BadInput(
                "records: the noisy count is one for a trusted server; declare a public number with --set records=N"
            )
        recipe.build(task, {**values, "records": held.rows})  # a bad argument must not cost anything
        values["records"] = _count_records(held, rng, purse)
    spent = [line.cost for line in purse.ledger.lines()]
    algorithm, values = fit_budget(recipe, task, values, request.target, spent)
    purse.approve(algorithm)
    return Prepared(recipe, schema, held, algorithm, values, request)


def resumed(request: Request, schema: Schema, clients: Clients) -> Prepared:
    """The run that a folder's recipe.toml describes: calibrated already, and not to be calibrated again."""
    recipe = check_request(request, schema, clients)
    held = clients.pooled() if recipe.pooled else clients
    values = recipe.values(request.arguments)
    task = task_of(recipe, request, schema, held)
    return Prepared(recipe, schema, held, recipe.build(task, values), values, request)


def _count_records(clients: Clients, rng: Rng, purse: Purse) -> int:
    """A noisy number of records, paid for first."""
    mechanism = CentralGaussian(Clip(1.0), COUNT_NOISE)
    query = Query("number of records", RecordCount(), 1, mechanism, len(clients), "record")
    link = InProcess(clients, rng)
    noisy = ask(query, link, ServerState(0, {}), rng, purse.pay)
    return max(1, round(float(noisy[0])))


@dataclass
class Meter:
    """Epsilon for history and progress: read at every round that lasts, now and then in a run of very short ones."""

    odometer: account.Odometer
    budget: float
    first: int
    rounds: int
    turns: Callable[[int], int] = int  # releases of one client in so many rounds, where clients take turns
    last: float | None = None
    _took: float = 0.0
    _when: float = 0.0

    def read(self, version: int) -> float | None:
        """Epsilon after this round; None where computing it would slow training down."""
        now = time.perf_counter()
        if now - self._when < 10 * self._took and version < self.rounds:
            return None
        # the run was calibrated to the budget more finely than this, so the budget bounds it too
        self.last = min(self.odometer.after(self.turns(version - self.first)), self.budget)
        self._when = time.perf_counter()
        self._took = self._when - now
        return self.last


class Distant(Link, Keeper, Protocol):
    """Clients elsewhere, who remember by themselves."""


@dataclass
class Training:
    """Runs a prepared request to its end; `folder=None` keeps everything in memory.

    `link` reaches clients that are elsewhere; without one they are simulated here.
    """

    prepared: Prepared
    folder: Folder | None
    purse: Purse
    rng: Rng
    watch: Watch | None = None
    chunk: int | None = None
    link: Distant | None = None
    history: list[dict[str, Any]] = field(default_factory=list, init=False)

    def start(self) -> ServerState:
        """Train from the beginning."""
        return self.start_from(self.prepared.algorithm.init(self.rng.at("init")))

    def start_from(self, state: ServerState) -> ServerState:
        """Train from this state, which nobody has worked on yet."""
        store = self.folder.store() if self.folder and self.link is None else None
        return self._train(state, store, self.prepared.algorithm.rounds)

    def resume(self) -> ServerState:
        """Train on from the last checkpoint; rounds that were paid for and lost stay in the ledger."""
        assert self.folder is not None
        store = self.folder.store()
        state = self.folder.restore(store)
        return self.resume_from(state or self.prepared.algorithm.init(self.rng.at("init")), store)

    def resume_from(self, state: ServerState, store: ClientStore | None = None) -> ServerState:
        """Train on from this state, as the checkpoint had it."""
        assert self.folder is not None
        if self._turns and not self.rng.reproducible:
            state = self._past_lost_turns(state)
        self.folder.cut_history(state.version)
        self.history = self.folder.read_history()
        return self._train(state, store, self._affordable(state))

    def _train(self, state: ServerState, store: ClientStore | None, rounds: int) -> ServerState:
        algorithm = self.prepared.algorithm
        link, keeper = self._clients(store)
        known = state.balance is not None
        state = learn_balance(algorithm, link, state, self.rng, self.purse.pay)
        if self.folder and keeper and not known:
            self.folder.checkpoint(state, keeper)
        meter = self._meter(state.version, rounds)

        def seen(state: ServerState, done: Round) -> None:
            epsilon = meter.read(state.version) if meter else None
            self.history.append({**asdict(done), "epsilon": epsilon})
            if self.folder and keeper:
                self.folder.append_history(self.history[-1])
                self.folder.checkpoint(state, keeper)
            if self.watch:
                self.watch(done, epsilon or (meter.last if meter else None), rounds)

        return run(algorithm, link, state, self.rng, self.purse.pay, seen, rounds)

    def _clients(self, store: ClientStore | None) -> tuple[Link, Keeper | None]:
        """The link to the clients, and what the checkpoint has to remember of them."""
        if self.link is not None:
            return self.link, self.link
        assert self.prepared.clients is not None
        device = self.prepared.request.device
        return InProcess(self.prepared.clients, self.rng, device=device, chunk=self.chunk, store=store), store

    def _meter(self, version: int, rounds: int) -> Meter | None:
        """Epsilon after further rounds, on top of what the ledger shows now (a seeded run: of each round once)."""
        target = self.prepared.request.target
        if target is None:
            return None
        spent = [line.cost for line in self.purse.ledger.lines()]
        if self.rng.reproducible:
            spent = spent[: len(spent) - self._repeated(version)]
        each = each_round(self.prepared.algorithm)
        odometer = account.Odometer(
            [account.compose(spent)], each, target.delta, self.prepared.adjacency, precision=_SHOWN_PRECISION
        )
        turns = self.prepared.algorithm.schedule.participations if self._turns else int
        return Meter(odometer, target.epsilon, version, rounds, turns)

    @property
    def _turns(self) -> bool:
        """Whether each client pays for itself and takes part in rounds that were fixed beforehand."""
        algorithm = self.prepared.algorithm
        own = all(charge.holder == "client" for charge in algorithm.charges())
        return own and algorithm.schedule.participations(algorithm.rounds) < algorithm.rounds

    def _past_lost_turns(self, state: ServerState) -> ServerState:
        """The state after rounds that clients paid for and that were lost: their turn is over, and changed nothing."""
        lines = self.purse.ledger.lines()
        asked = self.prepared.algorithm.balance
        if state.balance is None and asked is not None and any(line.what == asked.what for line in lines):
            raise BudgetExhausted(
                f"{asked.what}: the ledger shows that clients answered, but the answers were lost; asking again would "
                "cost them twice. Start a new run with other clients"
            )
        paid = max((_round_number(line.what) for line in lines), default=0)
        return replace(state, version=max(state.version, paid))

    def _repeated(self, version: int) -> int:
        """Ledger lines of rounds after `version`, which a seeded run will write again with the same values."""
        numbers = [_round_number(line.what) for line in self.purse.ledger.lines()]
        return sum(number > version for number in numbers)

    def _affordable(self, state: ServerState) -> int:
        """The version to stop at: all rounds, or fewer if lost rounds were paid for.

        A seeded run repeats the very same noise, so a repeated round tells nobody anything new.
        """
        algorithm, target = self.prepared.algorithm, self.prepared.request.target
        if target is None or self.rng.reproducible or self._turns:
            return algorithm.rounds
        spent = [line.cost for line in self.purse.ledger.lines()]
        waiting = [] if state.balance is not None else once(algorithm)
        left = _rounds_left(each_round(algorithm), target, [*spent, *waiting], self.prepared.adjacency)
        if state.version + left < 1:
            raise BudgetExhausted(
                f"the ledger shows the budget of epsilon {target.epsilon:g} spent; nothing more can be released"
            )
        return min(algorithm.rounds, state.version + left)


def _round_number(what: str) -> int:
    """The round that a ledger line is of; 0 for what came before training."""
    _, _, number = what.rpartition(", round ")
    return int(number) if number.isdigit() else 0


def _rounds_left(event: DpEvent, target: Target, spent: list[DpEvent], adjacency: str) -> int:
    already = account.epsilon(account.compose(spent), target.delta, adjacency=adjacency)
    if not math.isfinite(already) or already >= target.epsilon:
        return 0
    return account.max_rounds(event, target.epsilon, target.delta, fixed=spent, adjacency=adjacency)
