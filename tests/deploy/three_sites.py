"""Three sites in one process, with the ten small clients dealt to them, for the tests of the federation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsynth.data.clients import Clients
from fedsynth.data.schema import Schema
from fedsynth.deploy.link.messages import Terms
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.participation import compose
from fedsynth.deploy.site.site import Holding, Site, SitePolicy
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.loop import learn_balance, run
from fedsynth.privacy.budget import Budget
from fedsynth.recipes.registry import RECIPES, recipe_named
from fedsynth.research.queue_channel import QueueChannel
from fedsynth.rng import Rng

SHARES = {"ada": 3, "bern": 3, "cern": 4}  # clients of each site
AMPLE = Budget(1e6, 1e-5)


def part_of(clients: Clients, first: int, count: int) -> Clients:
    """Some of the clients, with their rows."""
    offsets = clients.offsets[first : first + count + 1]
    rows = slice(int(offsets[0]), int(offsets[-1]))
    return Clients(clients.x[rows], clients.y[rows], (offsets - offsets[0]).astype(np.int64))


def holdings(clients: Clients, schema: Schema) -> dict[str, Holding]:
    """What each site holds."""
    found, first = {}, 0
    for name, count in SHARES.items():
        names = tuple(f"{name}-{number}" for number in range(count))
        found[name] = Holding(part_of(clients, first, count), names, schema)
        first += count
    return found


def make_sites(
    clients: Clients,
    schema: Schema,
    folder: Path,
    *,
    seed: int | None = 1,
    budget: Budget = AMPLE,
    **more: object,
) -> dict[str, Site]:
    """Three sites that allow everything."""
    policy = SitePolicy(
        budget, tuple(RECIPES), ("clear", "secagg", "he"), minimum_cohort=1, without_privacy=True
    )
    return {
        name: Site(holding, policy, folder / name, compose, seed=seed, **more)
        for name, holding in holdings(clients, schema).items()
    }


def terms_for(name: str, schema: Schema, values: dict[str, object], **changes: object) -> Terms:
    """Terms of a small run of ten clients."""
    unit, trust = recipe_named(name).offers[0]
    given = {"unit": unit, "trust": trust, "epsilon": 1e5, "delta": 1e-5, "clients": 10, **changes}
    return Terms(name, values, schema.with_client(None).to_dict(), **given)


def conducted(remote: Remote, terms: Terms, algorithm: Algorithm, *, seed: int = 1, pay=lambda *_: None):
    """A whole run over a link."""
    rng = Rng(seed)
    remote.invite(terms)
    state = algorithm.init(rng.at("init"))
    assert remote.begin(terms, algorithm, state) == ()
    state = learn_balance(algorithm, remote, state, rng, pay)
    state = run(algorithm, remote, state, rng, pay, lambda *_: None, algorithm.rounds)
    remote.close(state)
    return state


def queue_of(sites: dict[str, Site]) -> QueueChannel:
    return QueueChannel({name: site.handle for name, site in sites.items()})
