"""dp_fedavg_gan: what leaves a client, how many GANs there are, where they start, and how a run is cut."""

import pytest
import torch
from safetensors.torch import load, save

from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.loop import learn_balance, run
from fedsynth.federation.state import ServerState
from fedsynth.models.model import layouts
from fedsynth.recipes.gan import ARRANGEMENTS
from fedsynth.recipes.gan_opening import pooled
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from samples import KINDS, MOMENTS, SMALL

GAN = recipe_named("dp_fedavg_gan")
LITTLE = {
    **SMALL,
    **MOMENTS,
    "painter": 4,
    "rounds": 4,
    "rate": 0.8,
    "noise_multiplier": 1.0,
    "optimizer": "sgd",
    "generator_steps": 2,
    "generator_batch": 4,
    "generator_learning_rate": 1e-6,  # Adam turns rounding errors of vanishing gradients into whole steps
    "latent_classes": 4,
    "pretraining": 5,
}


def built(kind, trust=None, **changes):
    task = GAN.task(Schema.from_dict(KINDS[kind]), 10, trust=trust)
    asked = {**LITTLE, **changes}
    known = GAN.arguments()
    return GAN.build(task, GAN.values({name: value for name, value in asked.items() if name in known}))


def opened(algorithm, clients, rng, chunk=10):
    link = InProcess(clients, rng, chunk=chunk)
    return link, learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None)


def trained(algorithm, clients, chunk=10, start=None):
    rng = Rng(1)
    link, state = opened(algorithm, clients, rng, chunk)
    return run(algorithm, link, start or state, rng, lambda *_: None, lambda *_: None, algorithm.rounds)


@pytest.mark.parametrize("kind", ["table", "image"])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_only_critics_leave_a_client(kind, arrangement, ten):
    algorithm = built(kind, classes=arrangement)
    assert algorithm.shared and all(part.startswith("discriminator") for part in algorithm.shared)
    sizes = sum(layouts(algorithm.model)[part].size for part in algorithm.shared)
    messages, kept = algorithm.client_round(
        algorithm.init(Rng(1)), {}, ten[kind].gather([3, 4]), torch.tensor([3, 4]).numpy(), Rng(1)
    )
    assert messages.shape == (2, sizes + 1) and not kept  # the update of the critics, and the loss


@pytest.mark.parametrize("kind", ["table", "image"])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_the_server_trains_generators_that_make_data_for_every_label(kind, arrangement, ten):
    algorithm = built(kind, classes=arrangement, generator_learning_rate=1e-2)
    rng = Rng(1)
    _, before = opened(algorithm, ten[kind], rng)
    after = trained(algorithm, ten[kind])
    painters = [part for part in after.parts if part.startswith("generator")]
    assert len(painters) == (2 if arrangement == "separate" else 1)
    assert all((after.parts[part] - before.parts[part]).abs().max() > 1e-3 for part in painters)
    shapes = layouts(algorithm.model)
    params = {part: shapes[part].split(after.parts[part]) for part in algorithm.model.generative}
    made = algorithm.model.sample(params, torch.tensor([0, 1, 1, 0]), Rng(2))
    assert len(made) == 4 and made.isfinite().all()
    assert after.balance is not None and len(after.balance) == 2


def test_what_an_opening_deals_out_to_one_gan_a_class_can_be_written_to_a_file(ten):
    _, state = opened(built("image", classes="separate"), ten["image"], Rng(1))
    stored = load(save(dict(state.parts)))  # refused where two parts are one tensor
    assert all(torch.equal(stored[part], state.parts[part]) for part in state.parts)


@pytest.mark.parametrize("kind", ["table", "image"])
@pytest.mark.parametrize("arrangement", ["none", "separate"])
def test_ten_clients_in_one_chunk_are_ten_clients_one_by_one(kind, arrangement, ten):
    algorithm = built(kind, classes=arrangement)
    together, apart = trained(algorithm, ten[kind], 10), trained(algorithm, ten[kind], 1)
    for part in together.parts:
        torch.testing.assert_close(apart.parts[part], together.parts[part], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["table", "image"])
def test_a_run_cut_after_two_rounds_ends_as_one_that_was_not(kind, ten):
    algorithm = built(kind, generator_learning_rate=1e-3)
    rng = Rng(1)
    link, state = opened(algorithm, ten[kind], rng)
    half = run(algorithm, link, state, rng, lambda *_: None, lambda *_: None, 2)
    stored = ServerState.from_tensors(half.to_tensors())
    resumed, straight = trained(algorithm, ten[kind], start=stored), trained(algorithm, ten[kind])
    assert all(torch.equal(resumed.parts[part], straight.parts[part]) for part in straight.parts)
    assert all(torch.equal(resumed.memory[name], straight.memory[name]) for name in straight.memory)


def test_without_an_opening_it_is_the_published_algorithm_and_asks_for_the_balance_alone():
    algorithm = built("image", start_share=0.0)
    assert set(algorithm.model.parts) == {"discriminator", "generator"}
    assert algorithm.opening.what == "class balance" and algorithm.opening.dim == 2


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_the_opening_takes_its_share_of_the_budget(share):
    algorithm = built("image", start_share=share, rate=1.0, rounds=16, noise_multiplier=8.0)
    rounds = 16 / 8.0**2  # what releases are worth adds up as the inverse square of their noise
    answer = 1 / algorithm.opening.mechanism.noise_multiplier**2
    assert answer / (answer + rounds) == pytest.approx(share)


def test_one_gaussian_has_the_mean_and_covariance_of_the_mixture():
    draw = torch.Generator().manual_seed(1)
    mean, factor = torch.randn(3, 5, generator=draw), torch.randn(3, 5, 5, generator=draw)
    shares = torch.tensor([0.2, 0.3, 0.5])
    found = pooled(mean, factor, shares)
    member = torch.multinomial(shares, 400_000, replacement=True, generator=draw)
    latent = torch.randn(400_000, 5, generator=draw)
    drawn = mean[member] + torch.einsum("rnl,rl->rn", factor[member], latent)
    assert torch.allclose(found["mean"][0], drawn.mean(0), atol=0.03)
    covariance = found["factor"][0] @ found["factor"][0].T
    assert torch.allclose(covariance, torch.cov(drawn.T), atol=0.15)


@pytest.mark.parametrize("kind", ["table", "image"])
def test_noise_can_be_shared_out_over_masked_sums(kind, ten):
    algorithm = built(kind, trust="distributed")
    assert algorithm.mechanism.release.trust == "distributed" and algorithm.transport.name == "secagg"
    assert algorithm.opening.mechanism.release.trust == "distributed"
    state = trained(algorithm, ten[kind])
    assert state.version == 4 and all(flat.isfinite().all() for flat in state.parts.values())


def test_separate_gans_need_classes():
    unlabelled = {**KINDS["image"], "label": None, "columns": []}
    task = GAN.task(Schema.from_dict(unlabelled), 10)
    with pytest.raises(Incompatible, match="two classes or more"):
        GAN.build(task, GAN.values({"classes": "separate"}))


@pytest.mark.parametrize(
    ("name", "value"),
    [("classes", "seperate"), ("game", "hinge"), ("critic", "pixels"), ("start_share", 1.0)],
)
def test_a_bad_argument_is_named(name, value):
    task = GAN.task(Schema.from_dict(KINDS["image"]), 10)
    with pytest.raises(BadInput, match=name):
        GAN.build(task, GAN.values({name: value}))
