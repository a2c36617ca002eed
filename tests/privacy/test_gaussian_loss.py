"""The loss of sampled Gaussian noise, point by point and as a distribution: the library's own, to the last digits."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from dp_accounting.pld import privacy_loss_distribution as library
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from scipy.special import log_ndtr

from fedsynth.privacy.accountant import quiet
from fedsynth.privacy.gaussian_loss import _Gaussian, _log_normal, _unsampled, gaussian_epsilon, gaussian_loss


@pytest.mark.parametrize("adjacency", [AdjacencyType.REMOVE, AdjacencyType.ADD])
@pytest.mark.parametrize(
    ("scale", "rate", "sensitivity"),
    [(1.0, 0.1, 1.0), (0.5, 0.8, 1.0), (3.2, 0.01, 2.0), (1.7, 0.999, 0.5), (1.3, 1.0, 2.0)],
)
def test_every_point_is_the_library_s(scale, rate, sensitivity, adjacency):
    points = np.concatenate([np.linspace(-7.0, 7.0, 57), np.linspace(-0.1, 0.1, 21)])
    terms = {"sensitivity": sensitivity, "sampling_prob": rate, "adjacency_type": adjacency}
    whole, quick = (
        GaussianPrivacyLoss(scale, **terms),
        _Gaussian(scale, rate, adjacency, sensitivity=sensitivity),
    )
    with quiet():
        expected, shown = whole.get_delta_for_epsilon(points), quick.get_delta_for_epsilon(points)
    assert quick.connect_dots_bounds() == whole.connect_dots_bounds()
    np.testing.assert_array_equal(quick.noise_cdf(points), whole.noise_cdf(points))
    np.testing.assert_array_equal(quick.noise_log_cdf(points), whole.noise_log_cdf(points))
    np.testing.assert_allclose(shown, expected, rtol=1e-9, atol=1e-300)
    assert (shown >= 0).all() and (shown <= 1).all()


@pytest.mark.parametrize(("scale", "rate"), [(1.0, 0.1), (0.5, 0.8), (2.0, 0.5), (0.7, 1.0)])
def test_a_distribution_is_the_library_s_on_the_same_grid(scale, rate):
    with quiet():
        whole = library.from_gaussian_mechanism(scale, value_discretization_interval=0.05, sampling_prob=rate)
        quick = gaussian_loss(scale, rate, 0.05)
    grid = np.linspace(-2.0, 6.0, 50)
    for count in (1, 7):
        expected, shown = (pld.self_compose(count).get_delta_for_epsilon(grid) for pld in (whole, quick))
        np.testing.assert_allclose(shown, expected, rtol=1e-9, atol=0)
    for half in ("_pmf_remove", "_pmf_add"):
        assert getattr(quick, half).size == getattr(whole, half).size


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999])
def test_without_sampling_a_loss_is_as_much_larger_as_the_formula_says(rate):
    losses = np.array([-0.05, -1e-3, 0.0, 1e-3, 0.4, 3.0, 40.0])
    losses = losses[losses > math.log1p(-rate)]
    expected = np.log1p(np.expm1(losses) / rate)
    np.testing.assert_allclose(_unsampled(losses, rate), expected, rtol=1e-9, atol=1e-9)
    edge = math.log(1 - rate)
    with quiet():
        assert _unsampled(np.array([edge, edge * (1 - 5e-10)]), rate).tolist() == [-math.inf] * 2
    assert np.isfinite(_unsampled(np.array([edge * (1 - 1e-7)]), rate)).all()
    with pytest.raises(ValueError, match=r"below log\(1 - rate\)"):
        _unsampled(np.array([edge * (1 + 1e-6), 0.0]), rate)


def true_delta(scale, epsilon):
    """The least delta of Gaussian noise at epsilon, to 50 digits."""
    center, half = epsilon * scale, 0.5 / mpmath.mpf(scale)
    return mpmath.ncdf(half - center) - mpmath.exp(epsilon) * mpmath.ncdf(-half - center)


def test_epsilon_of_one_gaussian_is_above_the_truth_by_rounding_alone():
    rng = np.random.default_rng(0)
    scales, deltas = 10 ** rng.uniform(-2, 4, 100), 10 ** rng.uniform(-30, -0.5, 100)
    with mpmath.workdps(50):
        for scale, delta in zip(scales.tolist(), deltas.tolist(), strict=True):
            epsilon, slack = mpmath.mpf(gaussian_epsilon(scale, delta)), 1e-14 * (1 + scale)
            assert true_delta(scale, epsilon) <= delta
            assert epsilon == 0 or true_delta(scale, epsilon * (1 - slack)) > delta


@pytest.mark.parametrize(("scale", "delta"), [(0.05, 1e-5), (1.0, 1e-6), (13.4, 1e-12), (800.0, 1e-3)])
def test_epsilon_of_one_gaussian_is_the_library_s(scale, delta):
    assert gaussian_epsilon(scale, delta) == pytest.approx(
        float(get_epsilon_gaussian(scale, delta)), rel=1e-9
    )


@pytest.mark.parametrize(("scale", "delta"), [(1.0, 0.0), (1e-200, 1e-5), (1e-310, 1e-5), (math.nan, 1e-5)])
def test_what_cannot_be_computed_costs_everything(scale, delta):
    assert gaussian_epsilon(scale, delta) == math.inf


def test_noise_that_hides_all_but_delta_costs_nothing_more():
    assert gaussian_epsilon(1.0, 0.4) == 0.0 < gaussian_epsilon(1.0, 0.38)


def test_the_normal_distribution_s_logarithm_is_scipy_s():
    points = np.concatenate([np.linspace(-300, 12, 3001), [-30.001, -30.0, -29.999]])
    shown = np.array([_log_normal(point) for point in points.tolist()])
    np.testing.assert_allclose(shown, log_ndtr(points), rtol=1e-13, atol=0)
