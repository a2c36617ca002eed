"""A recorded GPU step may not copy from the processor, so the losses of image models bring no numbers of their own."""

from dataclasses import replace

import pytest
import torch
from torch.func import grad, vmap

from fedsynth.models.model import initialise, layouts
from fedsynth.models.moment_vae import MomentVAE
from fedsynth.models.smooth_image import SmoothImageVAE
from fedsynth.models.vae import ImageVAE
from fedsynth.rng import Rng

MOMENTS = MomentVAE(1, 8, 2, frequencies=12, latent=3, width=2)
MODELS = {
    "moments": MOMENTS,
    "moments with levels": replace(MOMENTS, levels=5),
    "smooth images": SmoothImageVAE(1, 8, 2, latent=3, bands=4),
    "images": ImageVAE(1, 8, 2, latent=3, width=2),
    "deep images": ImageVAE(1, 8, 2, latent=3, width=0, deep=(2, 4)),
}


def one_step(model):
    """The gradient of two clients' losses, as a step of training takes it."""
    flat = initialise(model, Rng(0))
    named = {name: layouts(model)[name].split(value) for name, value in flat.items()}
    objective = next(iter(model.objectives))
    x, y, weight = torch.rand(2, 4, 1, 8, 8), torch.arange(4).remainder(2).expand(2, -1), torch.ones(2, 4)
    noise = torch.zeros(2, 4, *model.objectives[objective].noise)

    def loss(decoder, x, y, weight, noise):
        batch = {"x": x, "y": y, "weight": weight}
        return model.loss(objective, {**named, "decoder": decoder}, batch, noise)

    return vmap(grad(loss), in_dims=(None, 0, 0, 0, 0)), (named["decoder"], x, y, weight, noise)


@pytest.mark.parametrize("name", MODELS)
def test_a_step_turns_no_number_into_a_tensor(name, monkeypatch):
    """Both ways to do it are copies to a GPU, which CUDA refuses while it records."""
    step, inputs = one_step(MODELS[name])
    step(*inputs)  # constants are made once, before anything is recorded
    assign = torch.Tensor.__setitem__

    def checked(self, place, value):
        assert isinstance(value, torch.Tensor), f"{value} is written into a tensor"
        assign(self, place, value)

    def refused(*values, **options):
        raise AssertionError(f"{values} is made a tensor")

    monkeypatch.setattr(torch.Tensor, "__setitem__", checked)
    monkeypatch.setattr(torch, "tensor", refused)
    step(*inputs)
