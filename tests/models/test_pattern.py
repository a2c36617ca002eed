"""Patterns: a picture and its negative are one pattern, and what is told of a picture draws it again."""

import pytest
import torch

from fedsynth.models.model import Layout
from fedsynth.models.pattern import PatternStart, moved, polarity
from fedsynth.models.spectrum import frequencies, picture


def bars(light: float, ground: float) -> torch.Tensor:
    """An upright bar and a disc, [2, 16, 16]."""
    place = torch.arange(16) - 7.5
    bar = (place.abs() < 2).expand(16, 16) & (place.abs() < 6)[:, None]
    disc = place[:, None].square() + place.square() < 9
    return torch.where(torch.stack([bar, disc]), light, ground)


def colored(light: torch.Tensor, ground=(0.0, 0.0, 0.0)) -> torch.Tensor:
    return light[:, None] + torch.tensor(ground)[None, :, None, None]


def test_a_thing_is_light_on_dark_or_dark_on_light():
    assert polarity(bars(0.9, 0.2)).tolist() == [1.0, 1.0]
    assert polarity(bars(0.2, 0.9)).tolist() == [-1.0, -1.0]


def test_the_negative_of_any_picture_has_the_other_polarity():
    drawn = torch.rand(200, 16, 16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(polarity(1 - drawn), -polarity(drawn))


def test_light_and_shade_over_a_picture_do_not_change_what_is_the_thing():
    shade = torch.linspace(0, 2, 16)[:, None]
    assert polarity(bars(0.3, 0.2) + shade).tolist() == [1.0, 1.0]
    assert polarity(bars(0.2, 0.3) + shade).tolist() == [-1.0, -1.0]


def test_a_picture_and_its_negative_are_told_by_one_pattern():
    start = PatternStart(3, 16, 2, frequencies=40)
    picture_, negative = start.features(colored(bars(0.9, 0.2))), start.features(colored(bars(0.1, 0.8)))
    torch.testing.assert_close(picture_[:, :-3], negative[:, :-3])
    assert (picture_[:, -3] < negative[:, -3]).all()  # the ground is what differs


@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_told_of_a_picture_draws_it_again(channels):
    draw = torch.Generator().manual_seed(2)
    start = PatternStart(channels, 16, 6, frequencies=30)
    numbers = torch.cat([torch.zeros(6, 1), 0.3 * torch.randn(6, 29, generator=draw)], 1)
    ground = 0.3 + 0.4 * torch.rand(6, channels, generator=draw)
    images = picture(numbers, 1, 16) + ground[:, :, None, None]
    told = start.features(images) / start.scale()
    params = {
        "prior": {"mean": told, "spread": torch.zeros(start.numbers), "grain": torch.zeros(start.finer)}
    }
    signs = polarity(images.mean(1))
    latent = torch.zeros(6, start.latent)
    latent[:, start.numbers] = signs
    torch.testing.assert_close(start.drawn(params, latent, torch.eye(6)), images, atol=1e-4, rtol=0)
    inverted = start.drawn(params, -latent, torch.eye(6))
    torch.testing.assert_close(
        inverted - ground[:, :, None, None], ground[:, :, None, None] - images, atol=1e-4, rtol=0
    )


def test_a_flat_picture_has_finite_numbers():
    start = PatternStart(3, 16, 2, frequencies=30)
    assert start.features(torch.full((2, 3, 16, 16), 0.5)).isfinite().all()


def test_what_is_filled_in_once_has_a_mean_for_each_class_and_one_spread_and_grain():
    start = PatternStart(3, 16, 4, frequencies=30)
    assert start.numbers == 33 and start.informative == 38 and start.latent == 38 + start.finer == 38 + 226
    assert Layout.of(start.parts["prior"]).size == 4 * 33 + 33 + 226


def test_grain_goes_on_where_the_spread_of_what_was_asked_for_ends():
    """Numbers that fall as the square of the frequency are continued by the same law."""
    start = PatternStart(1, 16, 2, frequencies=60)
    waves = frequencies(16, 256)
    spread = torch.cat([5 / waves[1:60] ** 2, torch.ones(2)])
    torch.testing.assert_close(start.grain(spread), 5 / waves[60:] ** 2)


def test_a_nudge_moves_and_sizes_a_smooth_picture():
    place = torch.arange(32) - 15.5
    spot = lambda down, across, size: torch.exp(  # noqa: E731
        -((place[:, None] - down).square() + (place - across).square()) / (2 * (6 * size) ** 2)
    )[None, None]
    still = spot(0, 0, 1)
    torch.testing.assert_close(
        moved(still, torch.tensor([[-1.0, 0, 0, 0]])), spot(0, 1, 1), atol=0.02, rtol=0
    )
    torch.testing.assert_close(
        moved(still, torch.tensor([[0, -1.0, 0, 0]])), spot(1, 0, 1), atol=0.02, rtol=0
    )
    smaller = moved(still, torch.tensor([[0, 0, 1.0, 1.0]]))
    assert smaller.sum() < still.sum() and smaller[0, 0, 16, 16] == pytest.approx(1, abs=0.02)


def test_drawn_pictures_have_the_contrast_that_was_drawn_for_them():
    start = PatternStart(1, 16, 1, frequencies=30)
    draw = torch.Generator().manual_seed(4)
    mean = torch.cat([torch.randn(1, 29, generator=draw), torch.full((1, 1), 0.5), torch.zeros(1, 1)], 1)
    spread = torch.cat([torch.ones(29), torch.zeros(2)])
    params = {"prior": {"mean": mean, "spread": spread, "grain": torch.ones(start.finer)}}
    made = start.drawn(params, torch.randn(50, start.latent, generator=draw), torch.ones(50, 1))
    torch.testing.assert_close(made.flatten(1).std(1), torch.full((50,), 0.1).mul(torch.tensor(0.5).exp()))
