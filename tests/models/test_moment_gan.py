"""A GAN that starts from Gaussians: what it draws before training, what its critic costs, and what each side reads."""

import pytest
import torch
from torch.func import grad, vmap

from fedsynth.models.model import initialise, layouts
from fedsynth.models.moment_gan import MomentGAN, bounded
from fedsynth.models.moment_vae import MomentVAE
from fedsynth.models.spectrum import picture
from fedsynth.rng import Rng

START = MomentVAE(1, 8, classes=3, frequencies=12, latent=4)
MODELS = [
    MomentGAN(START, width=4, patches=patches, painter=4, loss_name=game)
    for patches in (True, False)
    for game in ("wasserstein", "logistic")
]


def started(model, seed=1):
    """Parameters by name, the Gaussians far apart from each other."""
    flat, shapes = initialise(model, Rng(seed)), layouts(model)
    params = {name: shapes[name].split(value) for name, value in flat.items()}
    params["prior"]["mean"] = torch.arange(3.0)[:, None] * torch.eye(3, 12)
    return params


def batch_of(rows=6):
    x = torch.rand(rows, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return {"x": x, "y": torch.arange(rows) % 3, "weight": torch.ones(rows)}


@pytest.mark.parametrize("model", MODELS)
def test_the_generators_loss_reads_no_row_and_no_label(model):
    params, one = started(model), batch_of()
    noise = torch.randn(6, *model.objectives["generate"].noise)
    other = {"x": 1 - one["x"], "y": (one["y"] + 1) % 3, "weight": torch.arange(6.0)}
    assert torch.equal(
        model.loss("generate", params, one, noise), model.loss("generate", params, other, noise)
    )
    assert not torch.equal(
        model.loss("discriminate", params, one, noise), model.loss("discriminate", params, other, noise)
    )


@pytest.mark.parametrize("model", MODELS)
def test_a_stack_of_critics_has_each_ones_gradient(model):
    shapes, flat = layouts(model), [initialise(model, Rng(seed)) for seed in (1, 2)]
    noise, batch = torch.randn(6, *model.objectives["discriminate"].noise), batch_of()

    def loss(critic):
        named = {
            name: shapes[name].split(value) for name, value in {**flat[0], "discriminator": critic}.items()
        }
        return model.loss("discriminate", named, batch, noise)

    critics = torch.stack([one["discriminator"] for one in flat])
    stacked = vmap(grad(loss))(critics)
    for number in (0, 1):
        assert torch.allclose(stacked[number], grad(loss)(critics[number]), rtol=1e-3, atol=1e-5)


def test_before_training_pictures_are_those_of_the_gaussians():
    model = MODELS[0]
    params = started(model)
    params["generator"]["last.weight"] = torch.zeros_like(params["generator"]["last.weight"])
    params["generator"]["last.bias"] = torch.zeros_like(params["generator"]["last.bias"])
    made = model.sample(params, torch.tensor([0, 1, 2]).repeat(2000), Rng(1)).reshape(2000, 3, 1, 8, 8)
    latent = torch.randn(20_000, 4, generator=torch.Generator().manual_seed(1))
    for label in range(3):
        numbers = params["prior"]["mean"][label] + latent @ params["prior"]["factor"][label].T
        expected = picture(numbers, 1, 8).clamp(0, 1).mean(0)
        assert torch.allclose(made[:, label].mean(0), expected, atol=0.03)


def test_a_critic_of_patches_stays_small_whatever_the_image():
    small, large = (
        layouts(MomentGAN(MomentVAE(1, side, 10), width=8))["discriminator"].size for side in (28, 64)
    )
    assert small == large == 8 * 17 + 16 * (8 * 16 + 1) + 16 * 9 + 1


def test_a_critic_of_patches_knows_no_label_and_a_whole_one_does():
    for model, told in ((MODELS[0], False), (MODELS[2], True)):
        params, batch = started(model), batch_of()
        critic = model.parts["discriminator"]
        critic.load_state_dict(params["discriminator"])
        scores = [critic(batch["x"], torch.eye(3)[(batch["y"] + turn) % 3]) for turn in (0, 1)]
        assert torch.equal(*scores) != told


def test_what_is_cut_off_still_passes_its_gradient():
    outside = torch.tensor([-0.5, 0.5, 1.5], requires_grad=True)
    cut = bounded(outside)
    cut.sum().backward()
    assert cut.tolist() == [0.0, 0.5, 1.0] and outside.grad.tolist() == [1.0, 1.0, 1.0]


def test_without_classes_there_is_one_gaussian():
    model = MomentGAN(MomentVAE(1, 8, classes=0, frequencies=12, latent=4), width=4, painter=4)
    flat, shapes = initialise(model, Rng(1)), layouts(model)
    params = {name: shapes[name].split(value) for name, value in flat.items()}
    assert params["prior"]["mean"].shape == (1, 12)
    assert model.sample(params, torch.zeros(5, dtype=torch.int64), Rng(1)).shape == (5, 1, 8, 8)
