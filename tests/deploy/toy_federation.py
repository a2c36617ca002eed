"""A federation small enough for thousands of schedules: three sites, closed-form training, real disk and ledgers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
import torch

from fedsynth.data.clients import Clients
from fedsynth.data.schema import Schema
from fedsynth.deploy.link.messages import Refuse, Result, Terms, read
from fedsynth.deploy.link.patience import Patience, TooFewSites
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.participation import compose as compose_recipe
from fedsynth.deploy.site.site import Holding, Site, SitePolicy
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.link import Arrival
from fedsynth.federation.loop import learn_balance, run
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.ledger import Entry, Ledger
from fedsynth.research.fault_simulation import Crash, Faults, SimulatedNetwork
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.payer import Payer

SCHEMA = Schema.from_dict(
    {
        "version": 1,
        "kind": "table",
        "label": "ill",
        "columns": [
            {"name": "sex", "type": "binary", "categories": ["F", "M"]},
            {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
        ],
    }
)
CLIENTS = {"ada": 2, "bern": 1, "cern": 2}
ROUNDS = 3
SEED = 5
START = {}  # the state before the first round, by mechanism


@dataclass(frozen=True)
class Toy(Algorithm):
    """The algorithm with training in closed form; what a client keeps counts, so a round lost or doubled is seen."""

    def init(self, rng):
        return START.setdefault(self.mechanism, super().init(rng) if self.mechanism not in START else None)

    def _local(self, sent, memory, data, ids, rng):
        draws = torch.from_numpy(np.stack([rng.at(int(i)).uniforms(4) for i in ids])).float().mean(1)
        rows = (data.x.mean((1, 2)) + draws)[:, None]
        kept = memory["encoder"].expand(len(ids), -1) * 0.5 + rows
        params = {
            "encoder": kept,
            "decoder": sent["decoder"] - 0.1 * sent["decoder"] + 0.05 * kept.mean(1, True),
        }
        return params, {}, rows[:, 0]


def toy(trust: str) -> tuple[Terms, Toy]:
    values = {"latent": 1, "hidden": (1,), "rounds": ROUNDS, "rate": 0.7, "noise_multiplier": 0.3}
    terms = Terms(
        "dpd_fvae",
        values,
        SCHEMA.to_dict(),
        epsilon=1e6,
        delta=1e-5,
        trust=trust,
        clients=sum(CLIENTS.values()),
    )
    made = compose_recipe(terms, SCHEMA)
    copy = {item.name: getattr(made, item.name) for item in fields(made) if item.init} | {"keep": ()}
    return terms, Toy(**copy)


ALGORITHMS = {trust: toy(trust) for trust in ("central", "local")}


def data_of(count: int, seed: int) -> Clients:
    draw = np.random.default_rng(seed)
    width = ALGORITHMS["central"][1].model.width
    x = torch.from_numpy(draw.random((2 * count, width))).float()
    return Clients(x, torch.from_numpy(draw.integers(0, 2, 2 * count)), np.arange(0, 2 * count + 1, 2))


DATA = {name: data_of(count, number) for number, (name, count) in enumerate(CLIENTS.items())}
ALL = Clients(
    torch.cat([held.x for held in DATA.values()]),
    torch.cat([held.y for held in DATA.values()]),
    np.arange(0, 2 * sum(CLIENTS.values()) + 1, 2),
)


def ample(algorithms: Iterable[Algorithm]) -> Budget:
    """A budget that was asked once for far more than any schedule spends, so that later questions cost nothing."""
    budget = Budget(1e12, 1e-5, accountant="rdp")
    entries = []
    for algorithm in algorithms:
        asked = [] if algorithm.opening is None else algorithm.opening.charges()
        for charge in [*algorithm.charges(), *asked]:
            holders = (
                [charge.holder] if charge.holder == "server" else [f"client {n}" for n in names_of(None)]
            )
            trust = charge.release.trust
            entries += [Entry(charge.event, "all", holder, "client", trust, 10_000) for holder in holders]
    budget.check_all(Ledger(None), entries)
    return budget


def names_of(site: str | None) -> tuple[str, ...]:
    sites = CLIENTS if site is None else {site: CLIENTS[site]}
    return tuple(f"{name}-{number}" for name, count in sites.items() for number in range(count))


POLICY = SitePolicy(
    ample(made for _, made in ALGORITHMS.values()), ("dpd_fvae",), ("clear",), minimum_cohort=1
)


def site_at(folder: Path, name: str, trust: str, seed: int | None = SEED) -> Site:
    holding = Holding(DATA[name], names_of(name), SCHEMA)
    return Site(holding, POLICY, folder / name, lambda terms, schema: ALGORITHMS[trust][1], seed=seed)


class FailingDisk:
    """From time to time a process dies, or the disk is full, in the middle of its writes."""

    def __init__(self, random: Random, crash: float, full: float) -> None:
        self._random, self._crash, self._full = random, crash, full

    def around(self, handle):
        def unlucky(payload: bytes) -> bytes:
            draw = self._random.random()
            if draw >= self._crash + self._full:
                return handle(payload)
            left = self._random.randrange(12)
            sync = os.fsync

            def failing(descriptor):
                nonlocal left
                left -= 1
                if left < 0:
                    raise Crash if draw < self._crash else OSError(28, "No space left on device")
                sync(descriptor)

            with patch("os.fsync", failing):
                return handle(payload)

        return unlucky


@dataclass
class Witness:
    """What a schedule left behind, to be checked."""

    state: object
    arrived: dict[int, np.ndarray]  # version → clients in the sum that was kept
    answered: np.ndarray | None  # clients in the class balance that was kept
    used: list[tuple[str, str]]  # results in the kept sums, by site
    opened: int
    ledger: Ledger
    left: dict[str, dict[str, bytes]] = field(default_factory=dict)  # site → order → result
    versions: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    dropped: int = 0
    crashes: int = 0
    refusals: set[str] = field(default_factory=set)


class Recorded:
    """A link that notes who arrived in which version."""

    def __init__(self, inner: Remote) -> None:
        self.inner = inner
        self.now: list[int] = []

    def start(self, job, ids, state):
        self.now = []
        self.inner.start(job, ids, state)

    def next(self) -> Arrival:
        arrival = self.inner.next()
        self.now += arrival.ids.tolist()
        return arrival

    def commit(self):
        self.inner.commit()


class Replayed:
    """The simulator's link, with just those clients present that were present in the federation."""

    def __init__(self, witness: Witness, rng: Rng) -> None:
        self.inner = InProcess(ALL, rng)
        self.witness = witness
        self.lost = 0

    def start(self, job, ids, state):
        kept = self.witness.arrived[state.version]
        if type(job).__name__ == "Query":
            kept = self.witness.answered
        self.lost = len(ids) - len(kept)
        self.wire = job.wire
        self.version = state.version
        self.inner.start(job, kept, state)

    def next(self) -> Arrival:
        if self.lost:
            lost, self.lost = self.lost, 0
            return Arrival(np.empty(0, dtype=np.int64), self.wire.zero()[None][:0], self.version, lost=lost)
        return self.inner.next()

    def commit(self):
        self.inner.commit()


def reference(witness: Witness, trust: str):
    """The same run in the simulator."""
    algorithm, rng = ALGORITHMS[trust][1], Rng(SEED)
    link = Replayed(witness, rng)
    free = lambda *_: None  # noqa: E731
    state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, free)
    return run(algorithm, link, state, rng, free, free, ROUNDS)


def play(
    seed: int, folder: Path, faults: Faults, trust: str, disk: tuple[float, float], noise: int | None = SEED
) -> Witness:
    """Play one schedule to its end: the server is started again whenever it died or gave up.

    `noise` seeds the sites; None takes the system's, which can never be drawn again.
    """
    random = Random(seed)
    witness = Witness(None, {}, None, [], 0, Ledger(None))
    failing = FailingDisk(random, *disk)

    def started(name):
        def start():
            witness.sites[name] = site_at(folder, name, trust, noise)
            return (
                failing.around(witness.sites[name].handle)
                if network.now() < faults.until_s
                else (witness.sites[name].handle)
            )

        return start

    def overheard(site, answer):
        message = read(answer)
        if isinstance(message, Refuse):
            witness.refusals.add(message.code)
        if isinstance(message, Result):
            known = witness.left.setdefault(site, {}).setdefault(message.order, answer)
            assert known == answer, "one order was answered with two results"
            job = "balance" if message.tensors["messages"].shape[1] == 2 else "round"
            witness.versions.setdefault(site, {})[message.order] = (job, message.version)

    network = SimulatedNetwork({name: started(name) for name in CLIENTS}, faults, random, overheard)
    disk_of_server = {}
    for _ in range(200):
        try:
            serve(network, witness, disk_of_server, trust, random, faults)
            return witness
        except (Crash, TooFewSites):
            witness.crashes += 1
            network.forget_server()
    raise AssertionError("the run never finished")


def serve(network, witness, disk, trust, random, faults):
    """One life of the server."""
    terms, algorithm = ALGORITHMS[trust]
    rng = Rng(SEED)
    remote = Remote(network, "run", minimum=1, patience=Patience(10.0, 3.0, 1.0), now=network.now)
    link = Recorded(remote)
    payer = Payer(witness.ledger, "run")
    state = algorithm.init(rng.at("init"))
    if disk:
        state = disk["state"]
        remote.restore(disk["index"])
    if state.version == ROUNDS:  # it died while it told the sites that the run is over
        witness.state = state
        return remote.close(state)

    def die():
        if network.now() < faults.until_s and random.random() < faults.server_crash:
            raise Crash

    def pay(when, charges, ids):
        die()
        payer.pay(when, charges, ids)
        witness.opened += 1
        die()

    def save(state):
        die()
        absorbed = [(site, name) for site, m in remote.roster.members.items() for name in m.used]
        disk.update(state=state, index=remote.index())
        if state.version:
            witness.arrived[state.version - 1] = np.array(sorted(link.now), dtype=np.int64)
            witness.used += [one for one in absorbed if one not in witness.used]
        die()

    remote.invite(terms)
    if len(remote.roster.members) < len(CLIENTS):
        raise TooFewSites("the test waits for all")
    if remote.begin(terms, algorithm, state):
        raise TooFewSites("a site refused for now")
    if state.balance is None:
        state = learn_balance(algorithm, link, state, rng, pay)
        witness.answered = np.array(sorted(link.now), dtype=np.int64)
        save(state)

    def seen(state, done):
        save(state)
        witness.dropped += done.dropped

    witness.state = run(algorithm, link, state, rng, pay, seen, ROUNDS)
    return remote.close(witness.state)
