"""PP-FedGAN as published, without an opening: what leaves, what it costs whom; the generator never sees a row."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from fedsynth import Synthesizer, clients_from
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.algorithm import Home
from fedsynth.federation.fedbuff import FedBuff
from fedsynth.federation.loop import run
from fedsynth.federation.schedule import Everyone, Sequential
from fedsynth.models.model import total_size
from fedsynth.privacy import account
from fedsynth.recipes.budget import cost
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from samples import IMAGE, TABLE, make_frame

SMALL = {
    "latent": 4, "hidden": (4,), "width": 2, "batch_rate": 0.5, "steps": 4, "usual_records": 4, "generator_batch": 4,
    "noise_multiplier": 1.0, "rounds": 3, "start_share": 0.0,
}  # fmt: skip
IDS = np.arange(10)


def made(
    kind="table", *, private=True, clients=10, transport="clear", recipe="pp_fedgan", schema=None, **settings
):
    named = recipe_named(recipe)
    asked = {name: value for name, value in {**SMALL, **settings}.items() if name in named.arguments()}
    schema = schema or Schema.from_dict(TABLE if kind == "table" else IMAGE)
    return named.build(named.task(schema, clients, private=private, transport=transport), named.values(asked))


@pytest.fixture(scope="module")
def digits():
    keys = {"version": 1, "kind": "image", "height": 28, "width": 28, "channels": 1}
    return Schema.from_dict(keys), Schema.from_dict({**keys, "label": IMAGE["label"]})


def test_the_networks_have_the_papers_numbers_of_parameters(digits):
    plain, labelled = (made(schema=schema, latent=100).model for schema in digits)
    assert [total_size(plain, [part]) for part in ("discriminator", "generator")] == [109_440, 312_256]
    assert total_size(labelled, ["generator"]) == 312_256 + 2 * 128 * 16  # labels in, and nothing else


def messages_of(algorithm, clients, size):
    state = algorithm.init(Rng(3))
    return torch.cat(
        [
            algorithm.client_round(state, {}, clients.gather(IDS[i : i + size]), IDS[i : i + size], Rng(1))[0]
            for i in range(0, 10, size)
        ]
    )


@pytest.mark.parametrize("kind", ["table", "image"])
@pytest.mark.parametrize("private", [True, False])
def test_ten_clients_in_one_chunk_are_ten_clients_one_by_one(kind, private, ten):
    algorithm = made(kind, private=private, alternations=2)
    together = messages_of(algorithm, ten[kind], 10)
    step = 0.0002
    assert (together.abs().max(dim=1).values > step / 2).all()
    for size in (1, 3):
        apart = (messages_of(algorithm, ten[kind], size) - together).abs()
        # Adam may turn a rounding error of a vanishing gradient into a step, now and then
        assert apart.mean() < 1e-3 * step and apart.max() < 4 * step


def test_a_use_costs_each_client_all_its_steps_and_the_generator_nothing():
    for alternations in (1, 2, 4):
        (charge,) = made(alternations=alternations).charges()
        assert charge.holder == "client" and charge.release.unit == "record" and charge.release.count == 4
        assert charge.event == PoissonSampledDpEvent(0.5, GaussianDpEvent(1.0))
    assert made(private=False).charges() == []


def test_the_generator_is_trained_on_noise_alone(ten):
    algorithm = made(noise_multiplier=0.0)
    state = algorithm.init(Rng(1))
    generate = [phase for phase in algorithm.plan if phase.objective == "generate"]
    assert all(phase.parts == ("generator",) and phase.rule.release is None for phase in generate)
    homes = {"discriminator": Home.SERVER, "generator": Home.SHARED}
    only = replace(algorithm, plan=tuple(generate), homes=homes)
    other = ten["table"].gather(IDS)
    other = replace(other, x=torch.rand_like(other.x), y=1 - other.y)
    one, two = (
        only.client_round(state, {}, data, IDS, Rng(1))[0] for data in (ten["table"].gather(IDS), other)
    )
    assert torch.equal(one, two) and one.abs().max() > 0


def test_both_networks_are_averaged_and_nothing_stays_behind():
    algorithm = made()
    assert set(algorithm.homes.values()) == {Home.SHARED} and algorithm.blank(algorithm.init(Rng(1))) == {}


def test_the_papers_noise_costs_more_than_the_paper_says(digits):
    """20 epochs of batches of 128 out of 6,000 at delta 1e-4: PRIVACY.md, rule 12."""
    for noise, right, published in ((0.5, 21.6, 8.49), (0.7, 8.0, 2.47), (1.0, 3.4, 1.39)):
        settings = {"batch_rate": 128 / 6000, "steps": 94, "usual_records": 6000, "latent": 100}
        algorithm = made(schema=digits[0], noise_multiplier=noise, order="together", rounds=10, **settings)
        spent = account.epsilon(cost(algorithm), 1e-4)
        assert spent == pytest.approx(right, rel=0.02) and spent > 2 * published


def test_the_order_of_arrivals_is_a_setting():
    assert made(order="together").schedule == Everyone(10) and made(order="in turn").schedule == Sequential(
        10
    )
    usual = made(rounds=20).schedule
    assert usual == FedBuff(10, concurrency=10, buffer=5, turns=15, staleness="sqrt")
    assert made(transport="he").schedule.staleness == "constant"
    assert recipe_named("pp_fedgan").task(Schema.from_dict(TABLE), 10).transport == "he"


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"order": "at once"}, BadInput, "order='at once'"),
        ({"staleness": "sqrt", "transport": "he"}, Incompatible, "staleness=constant"),
        ({"transport": "secagg"}, Incompatible, "secagg"),
        ({"layers": "published", "kind": "image"}, BadInput, "PP-FedGAN's layers are for 28x28"),
        ({"buffer": 11}, BadInput, "buffer=11"),
    ],
)
def test_what_does_not_fit_is_refused(wrong, error, message):
    with pytest.raises(error, match=message):
        made(**wrong)


def test_a_sealed_run_learns_what_an_open_one_does(schema):
    owners = clients_from(make_frame([number // 4 for number in range(24)]), client_column="owner")
    settings = {**SMALL, "epsilon": 8.0, "delta": 1e-3, "seed": 3, "staleness": "constant", "buffer": 2}
    del settings["noise_multiplier"], settings["width"]
    sealed, plain = (
        Synthesizer("pp_fedgan", schema, transport=name, **settings).fit(owners) for name in ("he", "clear")
    )
    assert len(sealed.history) == len(plain.history) == 3
    one, other = (run.generator.parts["generator"] for run in (sealed, plain))
    # sealed messages are whole parameters, so a stale client pulls back to where it began: alike, not the same
    assert (one - other).abs().max() < 3 * 12 * 0.0002
    assert any("one key that all clients hold" in text for text in sealed.privacy.caveats)


@pytest.mark.parametrize("private", [True, False])
def test_the_pooled_gan_runs_on_one_client(private, ten):
    algorithm = made(recipe="dp_gan", private=private, clients=1, records=38, generator_batch=8)
    rng = Rng(1)
    link = InProcess(ten["table"].pooled(), rng)
    start = algorithm.init(rng)
    state = run(algorithm, link, start, rng, lambda *_: None, lambda *_: None, 2)
    assert all(not torch.equal(state.parts[part], start.parts[part]) for part in state.parts)
    if private:
        (charge,) = algorithm.charges()
        assert charge.release.trust == "central" and charge.release.count == round(38 / 8)
