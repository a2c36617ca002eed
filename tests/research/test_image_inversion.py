import numpy as np
import pytest
import torch

from fedsynth.data.clients import Clients
from fedsynth.research.image_inversion import NAMES, image_inversion, likeness
from fedsynth.rng import Rng

SIDE = 8


def blots(count=4):
    """A bright square in each corner."""
    images = torch.zeros(count, 1, SIDE, SIDE)
    for number in range(count):
        across, down = 5 * (number % 2), 5 * (number // 2)
        images[number, 0, down : down + 3, across : across + 3] = 1.0
    return Clients(images, torch.zeros(count, dtype=torch.int64), np.array([0, count]))


def test_the_update_of_one_image_shows_it_and_the_noisy_sum_does_not(build):
    algorithm = build("fvae", "image", clients=4, width=8, latent=8, epochs=1, optimizer="adam")
    single, noisy = image_inversion(algorithm, blots(), Rng(1), steps=80)
    assert (single.name, noisy.name) == NAMES and single.detail["visible"]
    assert single.value > single.detail["baseline"] + 0.2
    assert noisy.value < single.detail["baseline"] + 0.1


def test_a_table_is_refused_with_its_reason(build):
    rows = Clients(torch.zeros(5, 4), torch.zeros(5, dtype=torch.int64), np.array([0, 5]))
    scores = image_inversion(build("fvae"), rows, Rng(1))
    assert all("closed form" in score.failed for score in scores)


@pytest.mark.parametrize(("shift", "expected"), [(1.0, 1.0), (-1.0, -1.0)])
def test_likeness_is_a_correlation(shift, expected):
    images = blots().x
    assert likeness(images * shift, images) == pytest.approx(expected, abs=1e-5)
