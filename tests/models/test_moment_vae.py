"""A decoder that starts from class moments: its latent codes, its start, its sampling."""

from dataclasses import replace

import torch

from fedsynth.models.model import initialise, layouts
from fedsynth.models.moment_vae import MomentVAE, wobbled
from fedsynth.models.spectrum import picture, spectrum
from fedsynth.rng import Rng

MODEL = MomentVAE(1, 8, 2, frequencies=12, latent=5, width=2)


def params():
    flat = initialise(MODEL, Rng(0))
    return {name: layouts(MODEL)[name].split(value) for name, value in flat.items()}


def batch(rows: int = 6):
    draw = torch.Generator().manual_seed(0)
    return {
        "x": torch.rand(rows, 1, 8, 8, generator=draw),
        "y": torch.arange(rows) % 2,
        "weight": torch.ones(rows),
    }


def test_frequencies_and_back_is_the_identity_on_smooth_pictures():
    numbers = torch.randn(3, 12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(spectrum(picture(numbers, 1, 8), 12), numbers, atol=1e-5, rtol=0)


def test_without_correction_a_picture_is_its_classs_gaussian():
    named = params()
    named["decoder"] = {name: torch.zeros_like(value) for name, value in named["decoder"].items()}
    latent, label = torch.randn(4, 5), torch.eye(2)[[0, 1, 0, 1]]
    made = MODEL.decode(named, latent, label)
    numbers = label @ named["prior"]["mean"] + latent @ named["prior"]["factor"][0].T
    torch.testing.assert_close(made, picture(numbers, 1, 8))


def test_the_latent_code_of_a_record_depends_on_no_other_record():
    named, rows = params(), batch()
    label = torch.eye(2)[rows["y"]]
    together = MODEL.latents(named["prior"], rows["x"], label)
    alone = MODEL.latents(named["prior"], rows["x"][2:3], label[2:3])
    torch.testing.assert_close(together[2:3], alone)


def test_the_loss_counts_the_rows_that_weigh():
    named, rows = params(), batch()
    rows["weight"][1:] = 0
    first = MODEL.loss("error", named, rows, torch.zeros(6, 1))
    only = {name: value[:1] for name, value in rows.items()}
    torch.testing.assert_close(first, MODEL.loss("error", named, only, torch.zeros(1, 1)))


def test_images_lie_between_black_and_white():
    images = MODEL.sample(params(), torch.tensor([0, 1, 1]), Rng(1))
    assert images.shape == (3, 1, 8, 8) and images.min() >= 0 and images.max() <= 1


def test_wobbling_moves_pictures_a_little_and_no_class_more_than_another():
    images = torch.zeros(400, 1, 16, 16)
    images[:, :, 6:10, 6:10] = 1.0
    moved = wobbled(images, 1.0, torch.Generator().manual_seed(1))
    assert moved.min() >= 0 and moved.max() <= 1
    assert 0 < (moved - images).abs().mean() < 0.1
    torch.testing.assert_close(moved.mean((0, 1)), images.mean((0, 1)), atol=0.35, rtol=0)
    still = wobbled(images, 1e-6, torch.Generator().manual_seed(1))
    torch.testing.assert_close(still, images, atol=1e-3, rtol=0)


def test_bending_moves_each_pixel_another_way_and_the_whole_hardly():
    images = torch.zeros(400, 1, 28, 28)
    images[:, :, ::4] = 1.0  # lines across
    bent = wobbled(images, 0.0, torch.Generator().manual_seed(1), bend=1.0)
    assert bent.min() >= 0 and bent.max() <= 1
    assert 0.05 < (bent - images).abs().mean() < 0.5
    assert bent.std(-1).mean() > 0.05  # lines are straight no more
    place = torch.arange(28.0) - 13.5
    spot = torch.exp(-(place[:, None].square() + place.square()) / 50).expand(400, 1, 28, 28)
    heavy = wobbled(spot, 0.0, torch.Generator().manual_seed(1), bend=1.0).mean((0, 1))
    assert abs(float((heavy.sum(0) * place).sum() / heavy.sum())) < 0.2  # pixels, on average


def test_nothing_is_drawn_for_pictures_that_stay_as_they_are():
    images, draw = torch.rand(2, 1, 8, 8), torch.Generator().manual_seed(1)
    assert wobbled(images, 0.0, draw) is images
    assert torch.equal(draw.get_state(), torch.Generator().manual_seed(1).get_state())


def test_samples_wobble_only_if_asked_to():
    named, labels = params(), torch.arange(20) % 2
    plain = MODEL.sample(named, labels, Rng(1))
    assert torch.equal(plain, replace(MODEL, wobble=0.0).sample(named, labels, Rng(1)))
    assert not torch.equal(plain, replace(MODEL, wobble=1.0).sample(named, labels, Rng(1)))
    assert not torch.equal(plain, replace(MODEL, bend=1.0).sample(named, labels, Rng(1)))
