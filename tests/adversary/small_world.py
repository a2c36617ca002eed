"""Real sites, small enough for thousands of schedules, in two worlds that differ in one client's rows.

All clients but one, the victim, have no rows and contribute nothing: what a site sends is noise, and what differs
between the worlds is the victim's contribution. Training is in closed form; everything else is what runs in earnest.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from fedsynth.data.clients import Clients
from fedsynth.data.schema import Schema
from fedsynth.deploy.link.masked import masking
from fedsynth.deploy.link.messages import Terms
from fedsynth.deploy.participation import compose
from fedsynth.deploy.site.site import Holding, Site, SitePolicy
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy.budget import Budget
from fedsynth.rng import Rng
from fedsynth.transport.primitives import Identity

SCHEMA = Schema.from_dict(
    {
        "version": 1,
        "kind": "table",
        "label": "ward",
        "columns": [
            {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
            {"name": "ward", "type": "categorical", "categories": [f"ward {number}" for number in range(60)]},
        ],
    }
)
CLIENTS = 3  # of each site
NAMES = ("ada", "bern", "cern")
HOME, VICTIM = "ada", 1  # the victim is this client of this site
DELTA = 1e-5
ROUNDS = 3


@dataclass(frozen=True)
class ClosedForm(Algorithm):
    """An algorithm whose clients change the model by their row times a long vector that the broadcast decides."""

    def _local(self, sent, memory, data, ids, rng):
        rows = (data.x * data.mask[..., None]).sum((1, 2))[:, None]
        losses = (data.mask.any(1) * self.loss_bounds[1]).to(rows)
        decoder = sent["decoder"] + 100.0 * rows * (2.0 + torch.sin(sent["decoder"]))
        return {"encoder": memory["encoder"].expand(len(ids), -1) + rows, "decoder": decoder}, {}, losses


def terms_for(trust: str, sites: int = len(NAMES), **values: object) -> Terms:
    """Terms of three rounds at so many sites."""
    settings = {
        "latent": 1, "hidden": (16,), "rounds": ROUNDS, "rate": 1.0, "noise_multiplier": 2.0, **values,
    }  # fmt: skip
    transport = "secagg" if trust == "distributed" else "clear"
    return Terms(
        "dpd_fvae", settings, SCHEMA.to_dict(), epsilon=50.0, delta=DELTA, trust=trust, transport=transport,
        minimum_cohort=2, clients=CLIENTS * sites, largest=CLIENTS,
    )  # fmt: skip


@lru_cache(maxsize=256)
def _composed(terms_of: tuple[object, ...], values: tuple[tuple[str, object], ...]) -> ClosedForm:
    names = ("trust", "transport", "clients", "largest")
    terms = replace(terms_for("central"), values=dict(values), **dict(zip(names, terms_of, strict=True)))
    whole = compose(terms, SCHEMA)
    parts = {item.name: getattr(whole, item.name) for item in fields(whole) if item.init}
    return ClosedForm(**{**parts, "keep": ()})


def composed(terms: Terms, schema: Schema = SCHEMA) -> ClosedForm:
    """The algorithm that a site makes of these terms."""
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in terms.values.items()
    }
    return _composed(
        (terms.trust, terms.transport, terms.clients, terms.largest), tuple(sorted(values.items()))
    )


@lru_cache(maxsize=1)
def start() -> dict[str, torch.Tensor]:
    """The public starting point of the model."""
    return composed(terms_for("central")).init(Rng(1).at("init")).parts


@lru_cache(maxsize=8)
def rows_of(site: str, victim: float | None) -> Clients:
    """A site's clients: nobody has a row but the victim, whose row says `victim` if it has one."""
    width = composed(terms_for("central")).model.width
    owners = [VICTIM] if site == HOME and victim is not None else []
    x = torch.full((len(owners), width), 1.0 if victim is None else victim)
    offsets = np.searchsorted(owners, np.arange(CLIENTS + 1))
    return Clients(x, torch.zeros(len(owners), dtype=torch.int64), offsets)


def first_of(site: str) -> int:
    """The number of a site's first client in the run."""
    return CLIENTS * NAMES.index(site)


@lru_cache(maxsize=1)
def identities() -> dict[str, Identity]:
    """Long-term keys of the sites, the same in both worlds."""
    return {name: Identity(name.encode().ljust(32, b".")) for name in NAMES}


def site_at(folder: Path, name: str, victim: float | None, budget: Budget) -> Site:
    """A site with the noise of a real release, whose own budget and the cap of each run hold."""
    known = {site: identity.public for site, identity in identities().items()}
    seals = {"secagg": masking(name, identities()[name], known, 2, CLIENTS)}
    policy = SitePolicy(budget, ("dpd_fvae",), ("clear", "secagg"), minimum_cohort=2)
    clients = tuple(f"{name}-{number}" for number in range(CLIENTS))
    return Site(Holding(rows_of(name, victim), clients, SCHEMA), policy, folder / name, composed, seals=seals)
