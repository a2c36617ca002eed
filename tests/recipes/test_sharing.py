"""Noise shared out over the parties: what runs, what it costs, and what is refused when it is built."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.loop import learn_balance, run
from fedsynth.privacy.account import epsilon
from fedsynth.recipes.budget import cost
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.transport.agreement import Aborted

SMALL = {"hidden": (8,), "latent": 2, "noise_multiplier": 1.0}
SITES = {**SMALL, "records": 200, "batch_size": 40}


def built(name, schema, clients=6, transport=None, private=True, unit=None, **values):
    recipe = recipe_named(name)
    task = recipe.task(schema, clients, private=private, unit=unit, trust="distributed", transport=transport)
    brief = {"pretraining": 5} if name.endswith("gan") else {}
    return recipe.build(task, {**(SITES if name.startswith("site_") else SMALL), **brief, **values})


def trained(algorithm, clients, rounds=2, chunk=None):
    rng = Rng(1)
    paid = []
    link = InProcess(clients, rng, chunk=chunk)
    pay = lambda when, charges, ids: paid.append((when, charges))  # noqa: E731
    state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, pay)
    return run(algorithm, link, state, rng, pay, lambda *_: None, rounds), paid


@pytest.mark.parametrize("name", ["dpd_fvae", "fvae", "fed_vae", "site_vae", "site_gan", "dp_fedavg_gan"])
def test_it_trains_over_real_masks_and_every_release_is_distributed(name, schema, ten):
    algorithm = built(name, schema, clients=10)
    state, paid = trained(algorithm, ten["table"])
    assert state.version == 2 and all(torch.isfinite(part).all() for part in state.parts.values())
    assert len(paid) == 3 and {charge.release.trust for _, charges in paid for charge in charges} == {
        "distributed"
    }


@pytest.mark.parametrize("name", ["dpd_fvae", "site_vae"])
def test_chunks_of_parties_change_nothing(name, schema, ten):
    algorithm = built(name, schema, clients=10)
    together, _ = trained(algorithm, ten["table"], 1)
    apart, _ = trained(algorithm, ten["table"], 1, chunk=3)
    for part in together.parts:
        torch.testing.assert_close(together.parts[part], apart.parts[part], rtol=1e-3, atol=1e-4)


def test_a_clients_own_coin_costs_what_the_servers_sampling_would(schema):
    shared = built("dpd_fvae", schema, rounds=3)
    central = recipe_named("dpd_fvae").build(recipe_named("dpd_fvae").task(schema, 6), {**SMALL, "rounds": 3})
    spent = [epsilon(cost(algorithm), 1e-3) for algorithm in (shared, central)]
    assert spent[0] == pytest.approx(spent[1], rel=1e-6)
    assert shared.schedule.adjacency == "zero-out" and shared.schedule.sampling == "poisson"
    assert len(shared.schedule.start(None, Rng(1))) == 6  # the server asks everybody


def test_sites_cost_what_dp_sgd_on_pooled_records_costs(schema):
    shared = built("site_vae", schema, rounds=5)
    pooled_task = recipe_named("central_vae").task(schema, 1)
    pooled = recipe_named("central_vae").build(pooled_task, {**SITES, "rounds": 1})
    assert shared.charges()[0].event == pooled.charges()[0].event
    assert shared.charges()[0].release.unit == "record" and shared.schedule.adjacency == "add-remove"
    assert shared.schedule.denominator() == 200


def test_the_sum_over_sites_is_the_clipped_gradient_of_the_drawn_records(schema, ten):
    """Without noise and with all records drawn, sites together send what one site with all rows would."""
    algorithm = built("site_vae", schema, clients=10, private=False, records=40)
    clients = ten["table"]
    state = algorithm.init(Rng(3))
    data = clients.gather(np.arange(10))
    sent, _ = algorithm.client_round(state, {}, data, np.arange(10), Rng(1))
    ring = algorithm.wire
    total = ring.centered(ring.add(ring.zero(), sent, torch.ones(10))) * algorithm.mechanism.grid
    norms = total.norm()
    assert 0 < float(norms) <= clients.rows * algorithm.mechanism.clip.bound
    loss = float(total[-1]) / algorithm.loss_share / clients.rows
    assert 0 < loss < 1


def test_a_patient_moves_the_sum_by_at_most_the_clip_however_many_records_it_has(schema, ten):
    algorithm = built("site_vae", schema, clients=10, private=False, unit="client", batch_size=10)
    assert algorithm.charges()[0].release.unit == "client" and algorithm.schedule.adjacency == "zero-out"
    assert algorithm.schedule.denominator() == 10 and algorithm.mechanism.coin == 1
    state, ring = algorithm.init(Rng(3)), algorithm.wire
    sent, _ = algorithm.client_round(state, {}, ten["table"].gather(np.arange(10)), np.arange(10), Rng(1))
    steps = ring.centered(sent.to(torch.int64)).norm(dim=1) ** 2
    assert float(steps.max()) <= algorithm.mechanism.limit
    rows = ten["table"].sizes
    assert rows[0] == 0 and float(steps[0]) == 0.0  # nothing from who has nothing
    assert float(steps[8]) > 0.5 * algorithm.mechanism.limit  # nine records, and no more than one clip


def test_the_critic_steps_on_sums_over_sites_and_the_generator_at_the_server(schema, ten):
    algorithm = built("site_gan", schema, clients=10)
    before = algorithm.init(Rng(1).at("init"))
    state, _ = trained(algorithm, ten["table"], 1)
    assert algorithm.shared == ("discriminator",)
    for part in ("discriminator", "generator"):
        assert not torch.equal(state.parts[part], before.parts[part])


def test_a_transport_that_cannot_carry_the_ring_is_refused_with_the_reason(schema):
    with pytest.raises(
        Incompatible,
        match="sends ring, but the transport clear carries real.*use transport secagg or he-open",
    ):
        built("dpd_fvae", schema, transport="clear")


def test_the_masks_carry_nothing_but_shared_out_noise(schema):
    recipe = recipe_named("dpd_fvae")
    with pytest.raises(
        Incompatible, match="sends real, but the transport secagg carries ring; .*trust=distributed"
    ):
        recipe.build(recipe.task(schema, 6, transport="secagg"), SMALL)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"cohort": 3}, "its own coin"),
        ({"threshold": 3}, "different survivors"),
    ],
)
def test_settings_that_do_not_protect_are_refused_when_the_recipe_is_built(schema, values, reason):
    with pytest.raises(Incompatible, match=reason):
        built("dpd_fvae", schema, **values)


def test_thresholds_and_colluders_reach_noise_and_statement(schema):
    algorithm = built("dpd_fvae", schema, clients=10, threshold=8, colluders=2)
    alone = built("dpd_fvae", schema, clients=10, threshold=10)
    assert algorithm.mechanism.parties.honest == 6
    assert alone.mechanism.parties.honest == 9  # a participant knows its own
    assert algorithm.mechanism.share == pytest.approx(alone.mechanism.share * (9 / 6) ** 0.5, rel=0.05)
    assert any("at least 8 of the 10" in caveat for caveat in algorithm.transport.caveats)
    with pytest.raises(BadInput, match="knows all of its noise"):
        built("dpd_fvae", schema, threshold=1)
    with pytest.raises(BadInput, match="colluders"):
        built("dpd_fvae", schema, clients=10, threshold=8, colluders=8)


class Dropping:
    """A link that loses the last arrivals."""

    def __init__(self, link, lost):
        self._link, self._lost, self.commit = link, lost, link.commit

    def start(self, job, ids, state):
        self._job = job
        self._link.start(job, ids[self._lost :], state)

    def next(self):
        arrival = self._link.next()
        lost, self._lost = self._lost, 0
        return replace(arrival, lost=lost)


def with_drops(algorithm, clients, lost, what=len):
    rng, paid = Rng(1), []
    link = Dropping(InProcess(clients, rng), lost)
    pay = lambda when, charges, ids: paid.append(what(charges))  # noqa: E731
    return run(algorithm, link, algorithm.init(rng.at("init")), rng, pay, lambda *_: None, 1), paid


def test_drop_outs_are_survived_down_to_the_threshold(schema, ten):
    algorithm = built("dpd_fvae", schema, clients=10, threshold=7)
    state, _ = with_drops(algorithm, ten["table"], 3)
    assert state.version == 1


def test_the_ledger_counts_the_noise_of_all_who_arrived(schema, ten):
    algorithm = built("dpd_fvae", schema, clients=10, threshold=7)
    prices = {}
    for lost in (0, 3):
        _, paid = with_drops(algorithm, ten["table"], lost, what=lambda charges: charges[0].event.event)
        prices[lost] = paid[0].noise_multiplier
    assert prices[3] == algorithm.charges()[0].event.event.noise_multiplier == 1.0
    assert prices[0] == pytest.approx((9 / 6) ** 0.5)


def test_below_the_threshold_the_round_aborts_and_was_paid_for(schema, ten):
    algorithm = built("dpd_fvae", schema, clients=10, threshold=8)
    with pytest.raises(Aborted, match="nothing was opened"):
        with_drops(algorithm, ten["table"], 3)
