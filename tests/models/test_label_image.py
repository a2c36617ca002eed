"""The thesis's convolutional autoencoder: its shapes, where the label goes, a loss that stays finite."""

import pytest
import torch

from fedsynth.models.label_image import LabelImageVAE
from fedsynth.models.model import Layout, initialise, layouts
from fedsynth.rng import Rng


def parameters(model, factor=1.0):
    shapes = layouts(model)
    flat = initialise(model, Rng(0))
    return {name: shapes[name].split(factor * value) for name, value in flat.items()}


@pytest.mark.parametrize("side", [8, 28, 32])
def test_images_come_out_as_they_went_in(side):
    model = LabelImageVAE(1, side, 10, latent=3, width=4)
    batch = {"x": torch.rand(2, 1, side, side), "y": torch.tensor([3, 7]), "weight": torch.ones(2)}
    assert torch.isfinite(model.loss("elbo", parameters(model), batch, torch.zeros(2, 3)))
    made = model.sample(parameters(model), torch.tensor([0, 1, 9]), Rng(0))
    assert made.shape == (3, 1, side, side) and made.min() >= 0 and made.max() <= 1


def test_the_decoder_starts_from_the_units_that_the_thesis_states():
    model = LabelImageVAE(1, 28, 10)
    assert model.parts["decoder"].stem.out_features == 1568
    assert Layout.of(model.parts["decoder"]).size == 156_225


def test_the_label_changes_what_the_decoder_makes_and_not_what_the_encoder_sees():
    model = LabelImageVAE(1, 8, 2, latent=3, width=4)
    first, second = (model.sample(parameters(model), torch.full((4,), y), Rng(0)) for y in (0, 1))
    assert not torch.equal(first, second)
    assert model.parts["encoder"].head.in_features == 2 * 4


def test_wild_parameters_leave_the_loss_finite():
    model = LabelImageVAE(1, 8, 2, latent=3, width=4)
    batch = {"x": torch.ones(2, 1, 8, 8), "y": torch.zeros(2, dtype=torch.int64), "weight": torch.ones(2)}
    loss = model.loss("elbo", parameters(model, 50.0), batch, torch.ones(2, 3))
    assert torch.isfinite(loss)
