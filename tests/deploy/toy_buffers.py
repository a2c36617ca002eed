"""The small federation with a buffer instead of rounds: what is played, what is noted, and the loop it must equal."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from random import Random

import numpy as np
import torch
from toy_federation import (
    ALL,
    CLIENTS,
    DATA,
    SCHEMA,
    SEED,
    Crash,
    FailingDisk,
    Faults,
    Toy,
    ample,
    names_of,
)

from fedsynth.deploy.link.buffered import Buffered
from fedsynth.deploy.link.messages import Refuse, Result, Terms, read
from fedsynth.deploy.link.patience import Patience, TooFewSites
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.participation import compose as compose_recipe
from fedsynth.deploy.site.site import Holding, Site, SitePolicy
from fedsynth.errors import BudgetExhausted
from fedsynth.federation.fedbuff import FedBuff
from fedsynth.federation.link import Arrival
from fedsynth.federation.loop import learn_balance, run
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import When
from fedsynth.research.fault_simulation import SimulatedNetwork
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.payer import Payer
from fedsynth.synthesis.resume_uses import with_paid_uses

VERSIONS = 4
BUFFER = 2


def toy(trust: str) -> tuple[Terms, Toy]:
    """Under `none` nobody pays; `banded` is `central` with noise that cancels over versions."""
    values = {
        "latent": 1, "hidden": (1,), "rounds": VERSIONS, "noise_multiplier": 0.3,
        "buffer": BUFFER, "concurrency": 4, "turns": 3, "separation": 2 if trust == "banded" else 1,
    }  # fmt: skip
    private = trust != "none"
    terms = Terms(
        "dpd_fvae", values, SCHEMA.to_dict(), private=private, epsilon=1e6, delta=1e-5,
        trust="local" if trust == "local" else "central", clients=sum(CLIENTS.values()),
    )  # fmt: skip
    made = compose_recipe(terms, SCHEMA)
    copy = {item.name: getattr(made, item.name) for item in fields(made) if item.init} | {"keep": ()}
    return terms, Toy(**copy)


ALGORITHMS = {trust: toy(trust) for trust in ("central", "banded", "local", "none")}
BUDGET = ample(made for _, made in ALGORITHMS.values())
POLICY = SitePolicy(BUDGET, ("dpd_fvae",), ("clear",), minimum_cohort=1, without_privacy=True)


def site_at(folder: Path, name: str, trust: str, seed: int | None) -> Site:
    holding = Holding(DATA[name], names_of(name), SCHEMA)
    return Site(holding, POLICY, folder / name, lambda terms, schema: ALGORITHMS[trust][1], seed=seed)


@dataclass
class Witness:
    """What a schedule left behind, to be checked."""

    state: object = None
    versions: list[list[tuple[int, int]]] = field(
        default_factory=list
    )  # (client, from) in the order of arrival
    balance: torch.Tensor | None = None
    used: list[str] = field(default_factory=list)  # results in the kept versions
    ledger: Ledger = field(default_factory=lambda: Ledger(None))
    left: dict[str, dict[str, bytes]] = field(default_factory=dict)  # site → order → result
    results: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)  # site → name → client, from
    sites: dict[str, Site] = field(default_factory=dict)
    opened: list[tuple[int, ...]] = field(default_factory=list)  # the clients of each sum that was opened
    bills: dict[int, Counter[int]] = field(default_factory=dict)  # whom each round charged, and how often
    ended: str = ""
    lost: int = 0
    stale: int = 0
    crashes: int = 0
    refusals: set[str] = field(default_factory=set)


class Restless:
    """The server's seeded randomness, but that each of its lives asks other clients."""

    def __init__(self, rng: Rng, life: int) -> None:
        self.rng, self.life = rng, life

    def at(self, purpose, *keys):
        return self.rng.at(purpose, *keys, *((self.life,) if purpose == "cohort" else ()))


class Recorded:
    """A link that notes who arrived since the last step, and from which version."""

    def __init__(self, inner: Buffered, witness: Witness) -> None:
        self.inner, self.witness, self.now, self.names = inner, witness, [], []

    def start(self, job, ids, state):
        self.inner.start(job, ids, state)

    def next(self) -> Arrival:
        arrival = self.inner.next()
        self.now += [(int(client), arrival.version) for client in arrival.ids]
        self.names += [arrival.name] if arrival.name else []
        self.witness.lost += arrival.lost
        return arrival

    def absent(self, **more):
        return self.inner.absent(**more)

    def commit(self):
        self.inner.commit()


@dataclass(frozen=True)
class Told(FedBuff):
    """The schedule that asks just for those who are known to have come."""

    versions: tuple = ()

    def start(self, clock, rng):
        if clock.arrived or clock.in_flight:
            return np.empty(0, dtype=np.int64)
        return np.array([client for client, _ in self.versions[clock.version]], dtype=np.int64)


class Replayed:
    """The simulator's clients, one by one, each from the version that it really had and in the order of arrival."""

    def __init__(self, versions, rng: Rng) -> None:
        self.inner, self.versions = InProcess(ALL, rng), versions
        self.states, self.queue, self.job = {}, [], None

    def start(self, job, ids, state):
        if len(ids):
            self.job, self.queue = job, list(self.versions[state.version])
        self.states[state.version] = state

    def next(self) -> Arrival:
        client, version = self.queue.pop(0)
        self.inner.start(self.job, np.array([client]), self.states[version])
        arrival = self.inner.next()
        return replace(arrival, messages=arrival.messages.cpu())

    def absent(self, **_):
        return np.empty(0, dtype=np.int64)

    def commit(self):
        self.inner.commit()


def reference(witness: Witness, trust: str):
    """The loop fed with just those arrivals in that order."""
    made, rng = ALGORITHMS[trust][1], Rng(SEED)
    plain = {item.name: getattr(made.schedule, item.name) for item in fields(made.schedule)}
    algorithm = replace(made, schedule=Told(**plain, versions=tuple(witness.versions)))
    start = replace(made.init(rng.at("init")), balance=witness.balance)
    free = lambda *_: None  # noqa: E731
    return run(algorithm, Replayed(witness.versions, rng), start, rng, free, free, len(witness.versions))


def play(
    seed: int, folder: Path, faults: Faults, trust: str, disk: tuple[float, float], noise: int | None = SEED
) -> Witness:
    """Play one schedule to its end: the server is started again whenever it died or gave up."""
    random, witness = Random(seed), Witness()
    failing = FailingDisk(random, *disk)

    def started(name):
        def start():
            site = witness.sites[name] = site_at(folder, name, trust, noise)
            return failing.around(site.handle) if network.now() < faults.until_s else site.handle

        return start

    def overheard(site, answer):
        message = read(answer)
        if isinstance(message, Refuse):
            witness.refusals.add(message.code)
        if isinstance(message, Result):
            known = witness.left.setdefault(site, {}).setdefault(message.order, answer)
            assert known == answer, "one order was answered with two results"
            if message.tensors["messages"].shape[1] != 2:  # no answer about the class balance
                client = int(message.tensors["ids"][0])
                witness.results.setdefault(site, {})[message.name] = (client, message.version)

    network = SimulatedNetwork({name: started(name) for name in CLIENTS}, faults, random, overheard)
    saved: dict[str, object] = {}
    for _ in range(200):
        try:
            serve(network, witness, saved, trust, random, faults)
            return witness
        except (Crash, TooFewSites):
            witness.crashes += 1
            network.forget_server()
    raise AssertionError("the run never finished")


def serve(network, witness, saved, trust, random, faults):
    """One life of the server, with the order of writes of a real one."""
    terms, algorithm = ALGORITHMS[trust]
    rng = Restless(Rng(SEED), witness.crashes)
    remote = Remote(network, "run", minimum=1, patience=Patience(10.0, 3.0, 1.0), now=network.now)
    buffered = Buffered(remote)
    link, payer = Recorded(buffered, witness), Payer(witness.ledger, "run")
    state = algorithm.init(rng.at("init"))
    if saved:
        state = saved["state"]
        buffered.restore(saved["index"])
        try:
            state = with_paid_uses(state, algorithm, witness.ledger, "run", asked_again=True)
        except BudgetExhausted as reason:
            witness.ended = str(reason)
    repeated = When(state.version + 1) if saved else None

    def die():
        if network.now() < faults.until_s and random.random() < faults.server_crash:
            raise Crash

    def pay(when, charges, ids):
        die()
        (payer.pay_once if when == repeated else payer.pay)(when, charges, ids)
        witness.opened += [tuple(client for client, _ in link.now)] if when.round else []
        witness.bills[when.round] = Counter(ids.tolist())
        die()

    def hold(state):
        die()
        saved.update(state=state, index={name: value.clone() for name, value in buffered.index().items()})
        die()

    def seen(state, done):
        die()
        hold_now = {name: value.clone() for name, value in buffered.index().items()}
        saved.update(state=state, index=hold_now)
        witness.versions.append(link.now)
        witness.used += link.names
        witness.stale += sum(state.version - 1 - version > 0 for _, version in link.now)
        link.now, link.names = [], []
        die()

    if state.version == VERSIONS or witness.ended:
        witness.state = state
        return remote.close(state)
    remote.invite(terms)
    if len(remote.roster.members) < len(CLIENTS):
        raise TooFewSites("the test waits for all")
    if remote.begin(terms, algorithm, state):
        raise TooFewSites("a site refused for now")
    if state.balance is None:
        state = learn_balance(algorithm, link, state, rng, pay)
        link.now, link.names, witness.balance = [], [], state.balance
        hold(state)

    def ended(why):
        witness.ended = why

    witness.state = run(algorithm, link, state, rng, pay, seen, VERSIONS, hold, ended, hold)
    return remote.close(witness.state)
