import math

import pytest
import torch
from torch.func import vmap

from fedsynth.data.table import Table
from fedsynth.models.model import initialise, layouts
from fedsynth.models.vae import ImageVAE, kl_to_standard_normal, one_hot
from fedsynth.rng import Rng


@pytest.fixture(params=["table", "image"])
def made(request, build, ten):
    """A model, its named parameters and a batch of nine rows."""
    model = build("fvae", request.param).model
    named = named_parameters(model)
    data = ten[request.param].gather([8])
    batch = {"x": data.x[0], "y": data.y[0], "weight": torch.ones(9)}
    return model, named, batch


def named_parameters(model, seed=1):
    flat = initialise(model, Rng(seed))
    return {part: layout.split(flat[part]) for part, layout in layouts(model).items()}


def noise(rows=9):
    return torch.randn(rows, 2, generator=torch.Generator().manual_seed(0))


def test_the_kl_term_equals_torchs():
    mean, log_variance = torch.randn(5, 3), torch.randn(5, 3)
    ours = kl_to_standard_normal(mean, log_variance)
    normal = torch.distributions.Normal(mean, torch.exp(0.5 * log_variance))
    reference = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0)).sum(-1)
    torch.testing.assert_close(ours, reference)


def test_one_hot_equals_torchs_and_is_empty_without_classes():
    y = torch.tensor([2, 0, 1])
    assert torch.equal(one_hot(y, 3), torch.nn.functional.one_hot(y, 3).float())
    assert one_hot(y, 0).shape == (3, 0)


def test_the_loss_is_the_mean_over_rows(made):
    model, named, batch = made
    single = [
        model.loss("elbo", named, {k: v[i : i + 1] for k, v in batch.items()}, noise()[i : i + 1])
        for i in range(9)
    ]
    torch.testing.assert_close(model.loss("elbo", named, batch, noise()), torch.stack(single).mean())


def test_padding_does_not_change_the_loss(made):
    model, named, batch = made
    padded = {key: torch.cat([value, torch.zeros_like(value[:2])]) for key, value in batch.items()}
    longer = torch.cat([noise(), torch.ones(2, 2)])
    torch.testing.assert_close(
        model.loss("elbo", named, padded, longer), model.loss("elbo", named, batch, noise())
    )


def test_the_loss_is_pure_under_vmap(made):
    model, named, batch = made
    stacked = {key: torch.stack([value, value]) for key, value in batch.items()}
    losses = vmap(lambda b, n: model.loss("elbo", named, b, n))(stacked, torch.stack([noise(), noise()]))
    alone = model.loss("elbo", named, batch, noise())
    torch.testing.assert_close(losses, torch.stack([alone, alone]))


def test_the_reconstruction_is_the_cross_entropy_of_each_column(build, ten, schema):
    model = build("fvae", beta=0.0).model
    named = named_parameters(model)
    data = ten["table"].gather([8])
    x, y = data.x[0], data.y[0]
    batch = {"x": x, "y": y, "weight": torch.ones(9)}
    label = one_hot(y, 2)
    mean, log_variance = torch.func.functional_call(
        model.parts["encoder"], named["encoder"], torch.cat([x, label], -1)
    ).chunk(2, -1)
    latent = mean + noise() * torch.exp(0.5 * log_variance.clamp(-10, 10))
    raw = torch.func.functional_call(model.parts["decoder"], named["decoder"], torch.cat([latent, label], -1))
    logits = 15 * torch.tanh(raw / 15)
    expected, start = 0.0, 0
    for block in Table(schema).blocks:
        target = x[:, block.start : block.start + block.size].argmax(1)
        expected += torch.nn.functional.cross_entropy(logits[:, start : start + block.size], target)
        start += block.size
    torch.testing.assert_close(model.loss("elbo", named, batch, noise()), expected)


def test_a_loss_at_its_bound_is_worse_than_guessing(build, schema):
    blocks = Table(schema).blocks
    assert build("fvae").model.objectives["elbo"].bound == pytest.approx(
        2 * sum(math.log(b.size) for b in blocks)
    )


def test_samples_are_rows_that_decode(build, schema):
    model = build("fvae").model
    labels = torch.tensor([0, 1] * 50)
    rows = model.sample(named_parameters(model), labels, Rng(2))
    again = model.sample(named_parameters(model), labels, Rng(2))
    assert torch.equal(rows, again) and not torch.equal(
        rows, model.sample(named_parameters(model), labels, Rng(3))
    )
    encoding = Table(schema)
    for block in encoding.blocks:
        assert (rows[:, block.start : block.start + block.size].sum(1) == 1).all()
    frame = encoding.decode(rows, labels)
    assert frame["age"].between(0, 99).all() and frame["bmi"].dropna().between(10, 60).all()
    assert frame["bmi"].isna().any() and set(frame["ill"]) == {"no", "yes"}


def test_a_sampled_position_lies_in_its_bin(build, schema):
    model = build("fvae").model
    rows = model.sample(named_parameters(model), torch.zeros(500, dtype=torch.int64), Rng(2))
    block = next(b for b in Table(schema).blocks if b.column == "bmi")
    chosen = rows[:, block.start : block.start + block.size].argmax(1)
    place = rows[:, block.place]
    there = chosen < block.bins
    assert ((place * block.bins).floor().clamp(max=block.bins - 1) == chosen)[there].all()
    assert (place[~there] == 0.5).all()


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 32), (3, 8)])
def test_images_come_out_in_the_shape_they_went_in(channels, side):
    model = ImageVAE(channels, side, classes=3, latent=2, width=2)
    images = model.sample(named_parameters(model), torch.tensor([0, 1, 2]), Rng(1))
    assert images.shape == (3, channels, side, side) and images.min() >= 0 and images.max() <= 1
    batch = {"x": images, "y": torch.tensor([0, 1, 2]), "weight": torch.ones(3)}
    assert torch.isfinite(model.loss("elbo", named_parameters(model), batch, torch.zeros(3, 2)))


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 32), (1, 8)])
def test_the_deeper_network_keeps_the_shape_too(channels, side):
    model = ImageVAE(channels, side, classes=3, latent=2, width=0, deep=(2, 4, 6))
    images = model.sample(named_parameters(model), torch.tensor([0, 1, 2]), Rng(1))
    assert images.shape == (3, channels, side, side) and images.min() >= 0 and images.max() <= 1


def test_a_record_of_the_deeper_network_knows_nothing_of_the_others():
    model = ImageVAE(1, 8, classes=2, latent=2, width=0, deep=(4, 8))
    named = named_parameters(model)
    x, y = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 1])
    together = model.loss("elbo", named, {"x": x, "y": y, "weight": torch.tensor([1.0, 0.0, 0.0])}, noise(3))
    alone = model.loss("elbo", named, {"x": x[:1], "y": y[:1], "weight": torch.ones(1)}, noise(3)[:1])
    torch.testing.assert_close(together, alone)


def test_the_label_reaches_the_decoder(build):
    model = build("fvae").model
    named = named_parameters(model)
    named["decoder"] = {name: 4 * value for name, value in named["decoder"].items()}
    zero = model.sample(named, torch.zeros(1000, dtype=torch.int64), Rng(1))
    one = model.sample(named, torch.ones(1000, dtype=torch.int64), Rng(1))
    assert (zero.mean(0) - one.mean(0)).abs().max() > 0.1


def test_no_part_has_buffers(made):
    assert not [name for part in made[0].parts.values() for name, _ in part.named_buffers()]
