"""Openings by records: what the sites' answers fill in, what they cost beside DP-SGD, and what stays as published."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent

from fedsynth import Synthesizer, clients_from
from fedsynth.data.clients import Padded
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.algorithm import Home
from fedsynth.federation.loop import learn_balance, run
from fedsynth.federation.state import ServerState
from fedsynth.privacy import account
from fedsynth.privacy.ledger import Ledger
from fedsynth.recipes.budget import Target, each_round, fit_budget
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from samples import KINDS, MOMENTS, make_frame

LITTLE = {
    **MOMENTS, "latent": 4, "hidden": (4,), "width": 2, "painter": 4, "batch_rate": 0.5, "steps": 2, "usual_records": 4,
    "generator_batch": 4, "noise_multiplier": 1.0, "rounds": 3, "order": "together", "records": 38, "batch_size": 19,
    "latent_classes": 2, "pretraining": 5, "generator_steps": 2, "generator_learning_rate": 1e-3, "start_share": 0.5,
}  # fmt: skip
RECIPES = ("pp_fedgan", "dp_gan", "site_gan")
IDS = np.arange(10)


def asked(recipe, changes):
    return recipe.values({name: v for name, v in {**LITTLE, **changes}.items() if name in recipe.arguments()})


def built(name="pp_fedgan", kind="image", transport=None, **changes):
    recipe = recipe_named(name)
    usual = "clear" if name == "pp_fedgan" else None
    clients = 1 if recipe.pooled else 10
    task = recipe.task(Schema.from_dict(KINDS[kind]), clients, transport=transport or usual)
    return recipe.build(task, asked(recipe, changes))


def opened(algorithm, clients, rng, chunk=10):
    link = InProcess(clients if algorithm.schedule.clients > 1 else clients.pooled(), rng, chunk=chunk)
    paid = []
    pay = lambda when, charges, ids: paid.append((when, charges, ids))  # noqa: E731
    state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, pay)
    return link, state, paid


def trained(algorithm, clients, rounds=3, chunk=10, start=None):
    rng = Rng(1)
    link, state, _ = opened(algorithm, clients, rng, chunk)
    return run(algorithm, link, start or state, rng, lambda *_: None, lambda *_: None, rounds)


@pytest.mark.parametrize("name", RECIPES)
def test_pictures_start_from_the_moments_of_all_records(name, ten):
    algorithm = built(name, noise_multiplier=1e-3)
    _, state, paid = opened(algorithm, ten["image"], Rng(1))
    before = algorithm.init(Rng(1).at("init"))
    filled = {part for part in state.parts if not torch.equal(state.parts[part], before.parts[part])}
    assert filled == {"prior", "levels"} == {*algorithm.homes} - {"discriminator", "generator"}
    assert all(algorithm.homes[part] is Home.SERVER for part in filled)
    ((_, (charge,), _),) = paid
    assert charge.release.unit == "record" and charge.release.what == "class moments"


@pytest.mark.parametrize("name", RECIPES)
def test_rows_start_from_a_generator_that_was_trained_on_simulated_ones(name, ten):
    algorithm = built(name, "table")
    _, state, paid = opened(algorithm, ten["table"], Rng(1))
    before = algorithm.init(Rng(1).at("init"))
    assert [part for part in state.parts if not torch.equal(state.parts[part], before.parts[part])] == [
        "generator"
    ]
    ((_, (charge,), _),) = paid
    assert charge.release.unit == "record" and charge.release.what == "shares of pairs of values"


def test_the_pairs_of_all_records_are_their_shares_whoever_holds_them(ten):
    """With hardly any noise the sites' answers say what pooled rows would."""
    query = built("pp_fedgan", "table").opening
    quiet = replace(query, mechanism=replace(query.mechanism, noise_multiplier=1e-9))
    sent, _ = quiet.client_round(None, {}, ten["table"].gather(IDS), IDS, Rng(1))
    rows = ten["table"].pooled().gather(np.arange(1))
    pooled, _ = quiet.client_round(None, {}, rows, np.arange(1), Rng(1))
    torch.testing.assert_close(sent.sum(0), pooled[0], rtol=1e-6, atol=1e-6)
    statistic = query.learn.statistic
    labels = statistic.read(sent.sum(0), 0.0).single[-2:]
    counted = torch.bincount(rows.y[rows.mask], minlength=2)
    torch.testing.assert_close(labels, counted / counted.sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["table", "image"])
def test_one_record_moves_an_answer_by_at_most_its_clip(kind, ten):
    query = built("pp_fedgan", kind).opening
    quiet = replace(query, mechanism=replace(query.mechanism, noise_multiplier=1e-9))
    data = ten[kind].gather(np.array([8]))
    whole, _ = quiet.client_round(None, {}, data, np.array([8]), Rng(1))
    longest = 0.0
    for row in range(int(data.mask.sum())):
        mask = data.mask.clone()
        mask[0, row] = False
        less, _ = quiet.client_round(None, {}, Padded(data.x, data.y, mask), np.array([8]), Rng(1))
        longest = max(longest, float((whole - less).norm()))
    assert 0.5 < longest <= query.mechanism.clip.bound * (1 + 1e-6)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_the_opening_takes_its_share_of_the_budget(name, share):
    algorithm = built(name, start_share=share, noise_multiplier=9.0)
    (charge,) = algorithm.charges()
    rate, steps = charge.event.sampling_probability, charge.release.count * algorithm.rounds
    training = (
        steps * rate**2 / 9.0**2
    )  # what releases are worth adds up as the inverse square of their noise
    answer = 1 / algorithm.opening.mechanism.noise_multiplier**2
    assert answer / (answer + training) == pytest.approx(share)


@pytest.mark.parametrize("name", RECIPES)
def test_answer_and_steps_are_calibrated_together(name):
    recipe = recipe_named(name)
    task = recipe.task(Schema.from_dict(KINDS["image"]), 1 if recipe.pooled else 10)
    algorithm, _ = fit_budget(recipe, task, asked(recipe, {"noise_multiplier": 0.0}), Target(8.0, 1e-4))
    answer = GaussianDpEvent(algorithm.opening.mechanism.noise_multiplier)
    rounds = account.repeat(each_round(algorithm), algorithm.rounds)
    assert account.epsilon(account.compose([answer, rounds]), 1e-4) == pytest.approx(8.0, rel=0.01)
    assert account.epsilon(rounds, 1e-4) < 7.9


def test_every_site_pays_for_its_answer_and_its_steps_in_lines_of_its_own(tmp_path, schema):
    owners = clients_from(make_frame([number // 8 for number in range(24)]), client_column="owner")
    settings = {name: LITTLE[name] for name in LITTLE if name in recipe_named("pp_fedgan").arguments()}
    for name in (
        "noise_multiplier",
        "frequencies",
        "directions",
        "width",
        "painter",
    ):  # calibrated; for images
        del settings[name]
    made = Synthesizer("pp_fedgan", schema, epsilon=8.0, delta=1e-3, transport="he", **settings)
    made.fit(owners, folder=tmp_path / "run")
    lines = Ledger(tmp_path / "run" / "ledger.jsonl").lines()
    for client in range(3):
        own = [line.what for line in lines if line.holder == str(client)]
        assert len(own) == 4 and "shares of pairs of values" in own[0], own
    assert 7.9 < made.privacy.epsilon <= 8.0 and made.privacy.unit == "record"
    assert len(made.sample(5)) == 5


@pytest.mark.parametrize("kind", ["table", "image"])
def test_ten_clients_in_one_chunk_are_ten_clients_one_by_one(kind, ten):
    algorithm = built("pp_fedgan", kind, learning_rate=1e-6, generator_learning_rate=1e-6)
    together, apart = trained(algorithm, ten[kind]), trained(algorithm, ten[kind], chunk=1)
    for part in together.parts:
        torch.testing.assert_close(apart.parts[part], together.parts[part], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["pp_fedgan", "site_gan"])
def test_a_run_cut_after_a_round_ends_as_one_that_was_not(name, ten):
    algorithm = built(name)
    straight = trained(algorithm, ten["image"])
    stored = ServerState.from_tensors(trained(algorithm, ten["image"], rounds=1).to_tensors())
    resumed = trained(algorithm, ten["image"], start=stored)
    assert all(torch.equal(resumed.parts[part], straight.parts[part]) for part in straight.parts)


def test_both_networks_are_trained_and_what_was_filled_in_stays(ten):
    algorithm = built()
    _, start, _ = opened(algorithm, ten["image"], Rng(1))
    state = trained(algorithm, ten["image"])
    moved = {part for part in state.parts if not torch.equal(state.parts[part], start.parts[part])}
    assert moved == {"discriminator", "generator"} == set(algorithm.shared)
    assert state.balance is not None and len(state.balance) == 2


def test_a_server_that_cannot_open_the_average_still_hands_out_what_it_filled_in(ten):
    fast = {"learning_rate": 0.01, "generator_learning_rate": 0.01}
    sealed, plain = (
        trained(built(transport=name, **fast), ten["image"], rounds=2) for name in ("he", "clear")
    )
    start = built().init(Rng(1).at("init"))
    assert all(torch.equal(sealed.parts[part], plain.parts[part]) for part in ("prior", "levels"))
    for part in ("discriminator", "generator"):
        assert (sealed.parts[part] - plain.parts[part]).abs().max() < 1e-3
        assert (sealed.parts[part] - start.parts[part]).abs().max() > 5e-3


@pytest.mark.parametrize("name", RECIPES)
def test_without_an_opening_nothing_is_asked_for_but_the_balance(name):
    algorithm = built(name, start_share=0.0)
    assert set(algorithm.model.parts) == {"discriminator", "generator"}
    assert algorithm.opening.what == "class balance" and algorithm.opening.dim == 2


def test_without_privacy_the_opening_costs_nothing(ten):
    recipe = recipe_named("pp_fedgan")
    task = recipe.task(Schema.from_dict(KINDS["image"]), 10, private=False, transport="clear")
    algorithm = recipe.build(task, asked(recipe, {"noise_multiplier": 0.0}))
    assert algorithm.charges() == [] == algorithm.opening.charges()
    assert trained(algorithm, ten["image"], rounds=1).version == 1


def test_layers_that_an_opening_has_no_use_for_are_refused():
    with pytest.raises(Incompatible, match="layers=published: .* start_share=0"):
        built(layers="published")


@pytest.mark.parametrize(("name", "value"), [("start_share", 1.0), ("critic", "pixels"), ("painter", 1)])
def test_a_bad_argument_is_named(name, value):
    with pytest.raises(BadInput, match=name):
        built(**{name: value})
