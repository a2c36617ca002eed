"""What the server reads out of a mixture's noisy sums: spread that noise hides, and how far records may reach."""

import pytest
import torch

from fedsynth.models.covariance import shrunk_factors
from fedsynth.models.mixture import Components, MixtureForm
from fedsynth.models.mixture_fit import MixtureAnswer, reaches, read_answer, spread_factor

FORM = MixtureForm(1, 8, 6, 2, 64, 40)


def hidden_answer(blur):
    """Second moments of classes of much the same covariance, under noise, and the covariances themselves."""
    draw = torch.Generator().manual_seed(4)
    size = 1 / (1 + torch.arange(40, dtype=torch.float64))
    ways = torch.randn(6, 40, 3, generator=draw, dtype=torch.float64) * 0.1
    covariance = torch.diag(size) + size.sqrt()[:, None] * (ways @ ways.mT) * size.sqrt()
    noise = torch.randn(6, 40, 40, generator=draw, dtype=torch.float64) * blur
    noise = (noise + noise.mT) / 2  # twice the variance on the diagonal
    blurs = torch.full((6,), blur, dtype=torch.float64)
    counts = torch.full((6, 2), 500.0, dtype=torch.float64)
    shift = torch.zeros(6, 2, 64, dtype=torch.float64)
    return MixtureAnswer(counts, shift, counts, 10.0, covariance + noise, blurs), shift, covariance


def test_spread_is_kept_where_noise_hides_each_of_its_directions():
    answer, shift, covariance = hidden_answer(0.15)
    edge = 0.15 * (2 * 40) ** 0.5
    assert edge > float(torch.linalg.eigvalsh(covariance).max())
    factor = spread_factor(FORM, answer, shift)
    drawn = factor.square().sum((1, 2))
    truth = covariance.diagonal(dim1=1, dim2=2).sum(1)
    assert bool(((drawn - truth).abs() < 0.3 * truth).all())


def test_covariances_of_classes_come_out_nearer_than_they_were_read():
    answer, shift, covariance = hidden_answer(0.05)
    factor = shrunk_factors(answer.second, torch.ones(6), answer.second_blur.square() / 2, 40)
    near = (factor @ factor.mT - covariance).square().sum()
    assert near < 0.5 * (answer.second - covariance).square().sum()


def test_where_there_is_no_noise_covariances_are_read_as_they_are():
    answer, shift, covariance = hidden_answer(1e-9)
    factor = spread_factor(FORM, answer, shift)
    torch.testing.assert_close(factor @ factor.mT, covariance, rtol=0, atol=1e-6)


def test_noise_falls_with_the_reach():
    """A reach half as long halves the noise of places and quarters that of products."""
    weights = (0.2, 0.7, 0.6)
    far, near = (
        read_answer(
            FORM, Components(torch.zeros(6, 2, 64), True, one, one), torch.zeros(FORM.answer), 5.0, weights
        )
        for one in (2.0, 1.0)
    )
    torch.testing.assert_close(near.blur, far.blur / 2)
    torch.testing.assert_close(near.second_blur, far.second_blur / 4)


@pytest.mark.parametrize(("size", "taken"), [(1e-9, 0.2), (1.0, 1.0), (1e9, 2.0)])
def test_reaches_follow_from_the_spread_and_stay_within_public_bounds(size, taken):
    factor = (size / 40**0.5) * torch.eye(40, dtype=torch.float64).expand(6, -1, -1)
    reach, low_reach = reaches(FORM, factor)
    assert FORM.radius == 2
    assert (reach, low_reach) == pytest.approx((0.65 * taken, 0.8 * taken))
