"""A federation over masked sums in one process: sites with identities, a server, and a channel that can lose some."""

import itertools

from three_sites import part_of

from fedsynth.deploy.link.masked import MaskedLink, masking
from fedsynth.deploy.link.messages import Terms, read
from fedsynth.deploy.link.patience import Patience
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.participation import compose
from fedsynth.deploy.site.site import Holding, Site, SitePolicy
from fedsynth.federation.loop import learn_balance, run
from fedsynth.privacy.budget import Budget
from fedsynth.recipes.registry import RECIPES
from fedsynth.research.queue_channel import QueueChannel
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.transport.primitives import Identity

NAMES = ("ada", "bern", "cern", "dorn")
VALUES = {
    "site_vae": {"latent": 2, "hidden": (8,), "rounds": 2, "batch_size": 10, "records": 30},
    "dpd_fvae": {"latent": 2, "hidden": (8,), "rounds": 2, "rate": 0.9},
    "dp_fedavg_gan": {"latent": 2, "hidden": (8,), "rounds": 2, "rate": 0.9, "pretraining": 5},
    "marginals": {"rounds": 2, "most_records": 1000},
}
LINKED_VALUES = {"histories": {"rounds": 2, "pair_rounds": 1, "most_cells": 4000}}


class Federation:
    """Sites with so many clients each, their identities, and a channel that can lose some of them."""

    def __init__(self, name, clients, schema, folder, seed=1, shares=(1, 1, 1, 1), unit=None, **values):
        names = NAMES[: len(shares)]
        self.identities = {site: Identity.fresh() for site in names}
        self.known = {site: identity.public for site, identity in self.identities.items()}
        unit = unit or ("record" if name in ("site_vae", "marginals") else "client")
        policy = SitePolicy(Budget(1e6, 1e-5, unit), tuple(RECIPES), ("secagg",), minimum_cohort=3)
        self.sites, self.data, first = {}, part_of(clients, 0, sum(shares)), 0
        for site, share in zip(names, shares, strict=True):
            people = tuple(f"{site}-{number}" for number in range(share))
            holding, first = Holding(part_of(clients, first, share), people, schema), first + share
            seals = {"secagg": masking(site, self.identities[site], self.known, minimum=3, clients=share)}
            self.sites[site] = Site(holding, policy, folder / site, compose, seed=seed, seals=seals, chunk=1)
        self.terms = Terms(
            name, {**(VALUES | LINKED_VALUES)[name], "noise_multiplier": 1.0, "threshold": 3, **values},
            schema.with_client(None).to_dict(), epsilon=1e5, delta=1e-5, unit=unit, trust="distributed",
            transport="secagg", minimum_cohort=3, clients=sum(shares), largest=max(shares),
        )  # fmt: skip
        self.seen, self.dead = [], {}
        channel = QueueChannel({site: self.handle(site) for site in names})
        ticks = itertools.count()  # a clock of its own: nobody waits for a site that is dead
        patience = Patience(timeout_s=100.0, resend_s=1e6)
        remote = Remote(channel, "run", minimum=2, patience=patience, now=lambda: float(next(ticks)))
        self.link = MaskedLink(remote, self.known)
        self.schema = schema

    def handle(self, site):
        def answer(payload):
            message = read(payload)
            if getattr(message, "name", message.kind) == self.dead.get(site):
                return b""
            reply = self.sites[site].handle(payload)
            self.seen.append((site, read(reply)))
            return reply

        return answer

    def begun(self):
        """The algorithm as the server runs it, and its first state, with every site in the run."""
        algorithm = self.link.routed(compose(self.terms, self.schema))
        self.link.remote.invite(self.terms)
        state = algorithm.init(Rng(1).at("init"))
        assert self.link.remote.begin(self.terms, algorithm, state) == ()
        return algorithm, state

    def run(self, rounds=2, pay=lambda *_: None):
        algorithm, state = self.begun()
        rng = Rng(1)
        state = learn_balance(algorithm, self.link, state, rng, pay)
        state = run(algorithm, self.link, state, rng, pay, lambda *_: None, rounds)
        self.link.close(state)
        return state

    def simulated(self):
        """The same two rounds in the simulator."""
        algorithm, rng = compose(self.terms, self.schema), Rng(1)
        link = InProcess(self.data, rng, chunk=1)
        state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None)
        return run(algorithm, link, state, rng, lambda *_: None, lambda *_: None, 2)
