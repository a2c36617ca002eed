"""Brightness by rank: shares of levels, the curve that gives drawn pixels the same, and where it is flat."""

import pytest
import torch

from fedsynth.models.levels import brightness, curve, level_edges, level_shares


def test_shares_of_an_image_sum_to_one_and_black_is_a_level():
    images = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    images[:, :, :4] = 0.0
    shares = level_shares(images, 9)
    torch.testing.assert_close(shares.sum(-1), torch.ones(5))
    assert (shares[:, 0] >= 0.5).all() and shares.shape == (5, 9)


def test_an_image_never_gives_more_than_one_to_the_answer():
    images = torch.rand(50, 3, 4, 4, generator=torch.Generator().manual_seed(2)).round()
    assert (level_shares(images, 5).norm(dim=-1) <= 1 + 1e-6).all()


@pytest.mark.parametrize("black", [0.0, 0.3, 0.8])
def test_drawn_pixels_get_the_shares_that_were_asked_for(black):
    draw = torch.Generator().manual_seed(3)
    mean, deviation = torch.rand(2, 50, generator=draw), 0.1 + 0.2 * torch.rand(2, 50, generator=draw)
    weight = torch.tensor([0.7, 0.3])
    asked = torch.tensor([black, *[(1 - black) / 8] * 8])
    bounds = curve(asked, mean, deviation, weight)
    kind = torch.multinomial(weight, 4000, replacement=True, generator=draw)
    drawn = mean[kind] + deviation[kind] * torch.randn(4000, 50, generator=draw)
    made = brightness(drawn, bounds).reshape(1, 1, 1, -1)
    torch.testing.assert_close(level_shares(made, 9)[0], asked, atol=0.01, rtol=0)


def test_brighter_stays_brighter_between_black_and_white():
    bounds = curve(torch.tensor([0.5, 0.2, 0.3]), torch.zeros(1, 4), torch.ones(1, 4), torch.ones(1))
    made = brightness(torch.linspace(-5, 5, 200), bounds)
    assert (torch.diff(made) >= 0).all() and made[0] == 0.0
    assert made[-1] == pytest.approx(1.0, abs=1e-5)


def test_the_curve_of_a_fresh_model_leaves_values_as_they_are():
    values = torch.linspace(0, 1, 11)
    torch.testing.assert_close(brightness(values, level_edges(5)), values, atol=3e-3, rtol=0)


def test_noise_among_the_shares_does_no_harm():
    shares = torch.tensor([0.8, -0.05, 0.1, 0.0, 0.1])
    bounds = curve(shares, torch.zeros(1, 4), torch.ones(1, 4), torch.ones(1))
    assert torch.isfinite(bounds).all() and (torch.diff(bounds) >= 0).all()
