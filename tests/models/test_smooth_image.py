"""The autoencoder of low frequencies: its few numbers, its public start, and that it can learn a picture."""

import pytest
import torch

from fedsynth.errors import Incompatible
from fedsynth.models.label_image import LabelImageVAE
from fedsynth.models.model import Layout, initialise, layouts
from fedsynth.models.smooth_image import SmoothImageVAE
from fedsynth.rng import Rng


def parameters(model, factor=1.0):
    shapes = layouts(model)
    return {name: shapes[name].split(factor * value) for name, value in initialise(model, Rng(0)).items()}


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 32)])
def test_images_come_out_as_they_went_in(channels, side):
    model = SmoothImageVAE(channels, side, 10, latent=3, bands=6)
    batch = {"x": torch.rand(2, channels, side, side), "y": torch.tensor([3, 7]), "weight": torch.ones(2)}
    assert torch.isfinite(model.loss("elbo", parameters(model), batch, torch.zeros(2, 3)))
    made = model.sample(parameters(model), torch.tensor([0, 1, 9]), Rng(0))
    assert made.shape == (3, channels, side, side) and made.min() >= 0 and made.max() <= 1


def test_a_decoder_of_one_class_is_a_level_and_a_mode_for_each_latent_number():
    model = SmoothImageVAE(1, 28, 0, latent=2, bands=8)
    assert Layout.of(model.parts["decoder"]).size == 3 * 64


def test_it_starts_at_gray_and_each_latent_number_moves_a_frequency_of_its_own():
    decoder = SmoothImageVAE(1, 28, 0, latent=3, bands=8).parts["decoder"]
    assert not decoder.level.any()
    assert decoder.modes.count_nonzero(1).tolist() == [1, 1, 1]
    assert len(set(decoder.modes.argmax(1).tolist())) == 3 and 0 not in decoder.modes.argmax(1)


def test_low_frequencies_can_be_learned_and_high_ones_cannot():
    model = SmoothImageVAE(1, 16, 0, latent=1, bands=4, beta=0.0)
    shapes = layouts(model)
    leaves = {name: flat.clone().requires_grad_() for name, flat in initialise(model, Rng(0)).items()}
    half = (torch.arange(16) < 8).float().expand(1, 1, 16, 16)
    stripes = (torch.arange(16) % 2).float().expand(1, 1, 16, 16)

    def learned(image):
        optimizer = torch.optim.Adam(list(leaves.values()), lr=0.05)
        batch = {"x": image, "y": torch.zeros(1, dtype=torch.int64), "weight": torch.ones(1)}
        for _ in range(150):
            optimizer.zero_grad()
            named = {name: shapes[name].split(flat) for name, flat in leaves.items()}
            loss = model.loss("elbo", named, batch, torch.zeros(1, 1))
            loss.backward()
            optimizer.step()
        return float(loss.detach()) / 16**2

    assert learned(half) < 0.1
    assert learned(stripes) > 0.6


def test_wild_parameters_leave_the_loss_finite():
    model = SmoothImageVAE(1, 8, 2, latent=3, bands=4)
    batch = {"x": torch.ones(2, 1, 8, 8), "y": torch.zeros(2, dtype=torch.int64), "weight": torch.ones(2)}
    assert torch.isfinite(model.loss("elbo", parameters(model, 500.0), batch, torch.ones(2, 3)))


@pytest.mark.parametrize("kind", [SmoothImageVAE, LabelImageVAE])
def test_drawn_pixels_are_black_or_white_by_the_chance_that_gray_ones_show(kind):
    gray, drawn = kind(1, 8, 2, latent=3), kind(1, 8, 2, latent=3, drawn=True)
    labels, params = torch.zeros(20_000, dtype=torch.int64), parameters(gray, 3.0)
    chance, seen = gray.sample(params, labels, Rng(0)), drawn.sample(params, labels, Rng(0))
    assert set(seen.unique().tolist()) == {0.0, 1.0} and 0.01 < chance.std() < 0.4
    assert torch.allclose(seen.mean(0), chance.mean(0), atol=0.025)  # 7 standard deviations


@pytest.mark.parametrize("bands", [1, 29])
def test_more_frequencies_than_pixels_are_refused(bands):
    with pytest.raises(Incompatible, match=f"bands={bands}: an image of 28 by 28 pixels has 2 to 28"):
        SmoothImageVAE(1, 28, 10, bands=bands)
