"""The two sides of the game, and what each may see."""

import pytest
import torch
from torch.func import grad, vmap

from fedsynth.data.encode import Block
from fedsynth.models.gan import AdversarialGame, ImageGAN, TableGAN, drawn_labels
from fedsynth.models.model import initialise, layouts
from fedsynth.rng import Rng

TABLE = TableGAN(
    5, (Block("a", 0, 2, False, False), Block("b", 2, 2, False, True)), classes=3, latent=4, hidden=(6,)
)
IMAGE = ImageGAN(1, 8, classes=3, latent=4, width=4)
PUBLISHED = ImageGAN(1, 28, classes=0, latent=100, published=True, loss_name="logistic")


def split(model, flat):
    return {name: layouts(model)[name].split(value) for name, value in flat.items()}


def batch_of(model, rows=4):
    shape = (rows, 5) if model is TABLE else (rows, 1, 8, 8)
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    return {"x": x, "y": torch.arange(rows) % 3, "weight": torch.ones(rows)}


def test_the_published_networks_have_the_published_numbers_of_parameters():
    assert {name: layout.size for name, layout in layouts(PUBLISHED).items()} == {
        "discriminator": 109_440,
        "generator": 312_256,
    }


@pytest.mark.parametrize("model", [TABLE, IMAGE])
def test_the_generators_loss_reads_no_row_and_no_label(model):
    params = split(model, initialise(model, Rng(1)))
    noise = torch.randn(4, *model.objectives["generate"].noise)
    one = batch_of(model)
    other = {"x": one["x"] + 1, "y": (one["y"] + 1) % 3, "weight": torch.tensor([1.0, 0, 0, 0])}
    assert torch.equal(
        model.loss("generate", params, one, noise), model.loss("generate", params, other, noise)
    )


@pytest.mark.parametrize("model", [TABLE, IMAGE])
def test_a_stack_of_critics_has_each_ones_gradient(model):
    flat = [initialise(model, Rng(seed)) for seed in (1, 2)]
    noise = torch.randn(4, *model.objectives["discriminate"].noise)
    batch = batch_of(model)

    def loss(critic, painter):
        params = split(model, {"discriminator": critic, "generator": painter})
        return model.loss("discriminate", params, batch, noise)

    critics = torch.stack([one["discriminator"] for one in flat])
    stacked = vmap(grad(loss), in_dims=(0, None))(critics, flat[0]["generator"])
    for number in (0, 1):
        alone = grad(loss)(critics[number], flat[0]["generator"])
        assert torch.allclose(stacked[number], alone, rtol=1e-3, atol=1e-5)


def test_the_penalty_is_zero_for_a_critic_of_slope_one():
    def score(x, label):
        return x[:, 0]

    real, fake = torch.randn(5, 3), torch.randn(5, 3)
    losses = AdversarialGame("wasserstein", 10.0).discriminate(
        score, real, fake, torch.zeros(5, 0), torch.rand(5)
    )
    assert torch.allclose(losses, fake[:, 0] - real[:, 0], atol=1e-5)


def test_the_penalty_punishes_a_steep_critic():
    def score(x, label):
        return 3 * x[:, 0]

    same = torch.randn(5, 3)
    losses = AdversarialGame("wasserstein", 10.0).discriminate(
        score, same, same, torch.zeros(5, 0), torch.rand(5)
    )
    assert torch.allclose(losses, torch.full((5,), 40.0), atol=1e-3)


def test_drawn_labels_are_even():
    labels = drawn_labels(torch.randn(30_000, generator=torch.Generator().manual_seed(0)), 3)
    assert labels.sum(1).eq(1).all() and (labels.mean(0) - 1 / 3).abs().max() < 0.01


def test_the_critic_sees_choices_made_for_good_and_the_generator_learns_from_them():
    seen = []

    class Watching(torch.nn.Linear):
        def forward(self, x, label):
            seen.append(x.detach())
            return super().forward(x)[:, 0]

    model = TableGAN(5, TABLE.blocks, classes=3, latent=4, hidden=(6,), loss_name="logistic")
    model.parts["discriminator"] = Watching(4, 1)
    flat = initialise(model, Rng(1))
    painter = flat["generator"].requires_grad_()
    params = split(model, flat)
    noise = torch.randn(8, *model.objectives["generate"].noise, generator=torch.Generator().manual_seed(0))
    model.loss("generate", params, {}, noise).backward()
    assert set(seen[0].flatten().tolist()) == {0.0, 1.0}
    assert seen[0][:, :2].sum(1).eq(1).all() and seen[0][:, 2:].sum(1).eq(1).all()
    assert painter.grad.abs().max() > 0


def test_sampled_rows_are_encoded_rows():
    params = split(TABLE, initialise(TABLE, Rng(1)))
    rows = TABLE.sample(params, torch.tensor([0, 1, 2]), Rng(1))
    assert rows[:, 0:2].sum(1).eq(1).all() and rows[:, 2:4].sum(1).eq(1).all()
    assert IMAGE.sample(split(IMAGE, initialise(IMAGE, Rng(1))), torch.tensor([0, 1]), Rng(1)).shape == (
        2,
        1,
        8,
        8,
    )
