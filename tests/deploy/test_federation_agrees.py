"""Meaning does not depend on where it runs: the federation computes what the simulator computes."""

import pytest
import torch
from three_sites import conducted, make_sites, queue_of, terms_for

from fedsynth.data.schema import Schema
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.participation import compose
from fedsynth.federation.loop import learn_balance, run
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.ledger import Ledger
from fedsynth.recipes.registry import RECIPES, recipe_named
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.payer import Payer
from samples import KINDS

SMALL = {"latent": 2, "hidden": (8,), "width": 2, "epochs": 1, "batch_size": 4, "rounds": 3, "rate": 0.8}
CASES = [
    (name, unit, trust)
    for name, recipe in RECIPES.items()
    if not recipe.pooled
    for unit, trust in recipe.offers
    if trust != "distributed"  # its sums open over a transport of their own
    if name != "dpd_fvae_local_published"  # promises nothing, so there is no private run of it
]


def values_of(name):
    known = recipe_named(name).arguments()
    wanted = {
        **SMALL,
        "noise_multiplier": 0.05,  # little, so that no class of ten clients drowns in noise
        "epsilon": 4.0,
        "records": 38,
        "group": 5,
        "participations": 3,
        "pretraining": 5,
        "order": "together",  # sites work in rounds
        "steps": 2,
    }
    return {key: value for key, value in wanted.items() if key in known}


@pytest.mark.parametrize("name, unit, trust", CASES)
def test_federation_and_in_process_agree(name, unit, trust, ten, tmp_path):
    kind = RECIPES[name].kinds[0]
    schema = Schema.from_dict(KINDS[kind])
    terms = terms_for(name, schema, values_of(name), unit=unit, trust=trust)
    algorithm = compose(terms, schema)
    ledgers = Ledger(None), Ledger(None)
    rng = Rng(1)
    link = InProcess(ten[kind], rng, chunk=1)  # one by one in both: other chunks change last bits
    pay = Payer(ledgers[0], "run").pay
    state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, pay)
    alone = run(algorithm, link, state, rng, pay, lambda *_: None, algorithm.rounds)

    sites = make_sites(ten[kind], schema, tmp_path, chunk=1, budget=Budget(1e6, 1e-5, unit=unit))
    remote = Remote(queue_of(sites), "run")
    together = conducted(remote, terms, algorithm, pay=Payer(ledgers[1], "run").pay)

    assert together.version == alone.version == algorithm.rounds
    for part in alone.parts:
        torch.testing.assert_close(together.parts[part], alone.parts[part], rtol=0, atol=1e-6)
    told = [[(e.what, e.holder, e.event, e.count) for e in ledger.lines()] for ledger in ledgers]
    assert told[0] == told[1] and told[0]


def test_clients_that_a_site_adds_up_at_once_are_clients_one_by_one(ten, tmp_path):
    schema = Schema.from_dict(KINDS["table"])
    terms = terms_for("marginals", schema, values_of("marginals"))
    algorithm, rng = compose(terms, schema), Rng(1)
    assert algorithm.together
    link = InProcess(ten["table"], rng, chunk=1)
    alone = run(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None, lambda *_: None, 3)
    sites = make_sites(ten["table"], schema, tmp_path)
    together = conducted(Remote(queue_of(sites), "run"), terms, algorithm)
    assert all(torch.equal(together.parts[part], alone.parts[part]) for part in alone.parts)
    assert alone.parts["fitted"].numel() > 10
