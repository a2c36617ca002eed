import math
import time
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, norm

from fedsynth.errors import BadInput
from fedsynth.privacy import noise
from fedsynth.privacy.draw import ONE, PRECISION, CumulativeTable
from fedsynth.privacy.noise import client_noise, discrete_gaussian, grid_noise, grid_sigma
from fedsynth.rng import Rng
from noise_scale import fits


def true_probabilities(sigma, reach):
    """Exact to 60 digits for -reach..reach."""
    with localcontext(PRECISION):
        rate = 1 / (2 * Decimal(sigma) ** 2)
        weights = [(-rate * x * x).exp() for x in range(reach + 1)]
        total = weights[0] + 2 * sum(weights[1:])
        return [Fraction(weight / total) for weight in weights]


def sampler_probabilities(sigma):
    """The probability of each |x| that the sampler's own integers give, zero's rejection included."""
    blocks = noise._blocks(sigma)
    bounds = (0, *blocks.table.cumulative, ONE)
    size = 1 << blocks.bits
    weights = []
    for block, (low, high) in enumerate(zip(bounds, bounds[1:], strict=False)):
        for place in range(size):
            keep = noise._threshold(blocks, block * size, place) if blocks.bits else ONE
            weights.append(Fraction(high - low, ONE) * Fraction(keep, ONE) / (2 * size))
    total = weights[0] + 2 * sum(weights[1:])
    return [weight / total for weight in weights]


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.75, 15.9, 32.0, 50.1])
def test_every_probability_is_the_true_one_within_the_stated_distance(sigma):
    ours = sampler_probabilities(sigma)
    true = true_probabilities(sigma, len(ours) - 1)
    distance = (
        sum(abs(a - b) * (1 if x == 0 else 2) for x, (a, b) in enumerate(zip(ours, true, strict=True))) / 2
    )
    assert distance < Fraction(1, 2**115)


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.3, 17.0, 45.0])
def test_draws_fit_the_true_probabilities(sigma):
    reach = math.ceil(4 * sigma)
    half = [float(p) for p in true_probabilities(sigma, 12 * reach)]
    expected = np.array(half[reach:0:-1] + half[: reach + 1])
    drawn = discrete_gaussian(sigma, 300_000, Rng())
    inside = drawn[np.abs(drawn) <= reach]
    observed = np.bincount(inside + reach, minlength=2 * reach + 1)
    likely = expected * 300_000 >= 10
    rest = 300_000 - observed[likely].sum()
    fit = chisquare(
        np.append(observed[likely], rest), 300_000 * np.append(expected[likely], 1 - expected[likely].sum())
    )
    assert fit.pvalue > 1e-6


@pytest.mark.parametrize("sigma", [1000.0, 2.0**20, 1.7 * 2.0**40])
def test_large_scales_fit_and_a_scale_five_percent_off_is_rejected(sigma):
    drawn = discrete_gaussian(sigma, 200_000, Rng()).astype(np.float64)
    assert fits(drawn, sigma)
    assert not fits(drawn, 0.95 * sigma) and not fits(drawn, 1.05 * sigma)


def test_low_bits_are_uniform_at_large_scales():
    drawn = discrete_gaussian(2.0**30, 100_000, Rng())
    assert chisquare(np.bincount(drawn % 64)).pvalue > 1e-6


def test_the_tail_is_there():
    drawn = np.abs(discrete_gaussian(2.0**20, 1_000_000, Rng())) / 2.0**20
    assert 150 < (drawn > 3.7).sum() < 290  # 216 expected
    assert 4.2 < drawn.max() < 7.5


def test_draws_are_independent_across_positions_and_batches():
    x = discrete_gaussian(100.0, 300_000, Rng()) / 100.0
    for lag in (1, 2, 65_536):
        assert abs(np.mean(x[lag:] * x[:-lag])) < 5 / math.sqrt(len(x) - lag)


def test_deciding_by_floats_or_by_integers_gives_the_same_draws(monkeypatch):
    quick = discrete_gaussian(12345.6, 20_000, Rng(7))
    monkeypatch.setattr(noise, "_MARGIN", 2.0)
    assert np.array_equal(quick, discrete_gaussian(12345.6, 20_000, Rng(7)))


def test_a_word_on_a_boundary_is_decided_by_further_bits():
    table = CumulativeTable.of([1, 2])  # one third: 0x5555... forever
    boundary = np.full(3000, table.cumulative[0] >> 64, dtype=np.uint64)
    chosen = table.choose(boundary, Rng(1))
    assert 800 < (chosen == 0).sum() < 1200
    sides = np.array([boundary[0] - np.uint64(1), boundary[0] + np.uint64(1)])
    assert table.choose(sides, Rng(1)).tolist() == [0, 1]


def test_the_float_exponential_is_far_closer_than_the_margin():
    points = np.linspace(0, 0.9, 2001)
    with localcontext(PRECISION):
        error = max(
            abs(Decimal(float(y)) - (-Decimal(float(x))).exp())
            for x, y in zip(points, noise._exp_minus(points), strict=True)
        )
    assert error < Decimal(2) ** -46


@pytest.mark.parametrize("sigma", [17.0, 33.3, 2.0**20 * 1.01, 2.0**50])
def test_no_exponent_leaves_the_range_of_the_exponential(sigma):
    blocks = noise._blocks(sigma)
    size = 1 << blocks.bits
    start = len(blocks.table.cumulative) * size
    assert (size - 1) * (2 * start + size - 1) * float(blocks.rate) < 0.9


@pytest.mark.parametrize("sigma", [1.0, 300.0, 2.0**21, 2.0**40])
def test_a_vector_of_200_000_takes_under_half_a_second(sigma):
    seconds = []
    for _ in range(3):
        began = time.process_time()
        discrete_gaussian(sigma, 200_000, Rng())
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.5


def test_seeded_draws_repeat_and_those_of_the_operating_system_do_not():
    assert np.array_equal(discrete_gaussian(9.0, 100, Rng(1)), discrete_gaussian(9.0, 100, Rng(1)))
    assert not np.array_equal(discrete_gaussian(9.0, 100, Rng(1)), discrete_gaussian(9.0, 100, Rng(2)))
    assert not np.array_equal(discrete_gaussian(9.0, 100, Rng()), discrete_gaussian(9.0, 100, Rng()))


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), 2.0**51])
def test_a_scale_that_cannot_be_drawn_is_refused(sigma):
    with pytest.raises(BadInput, match="sigma="):
        discrete_gaussian(sigma, 1, Rng())


@pytest.mark.parametrize("rng", [Rng(), Rng(5)])
def test_grid_noise_has_the_stated_scale_and_lies_on_the_grid(rng):
    x = grid_noise(60_000, 2.0, 2.0**-18, rng)
    assert x.dtype == torch.float64 and torch.equal(x * 2**18, (x * 2**18).round())
    assert fits(x, 2.0)
    assert not fits(x, 0.95 * 2.0) and not fits(x, 1.05 * 2.0)


@pytest.mark.parametrize("rng", [Rng(), Rng(5)])
def test_client_noise_has_the_stated_scale_for_each_client(rng):
    x = client_noise([4, 17], 40_000, 0.5, 2.0**-22, rng)
    assert x.shape == (2, 40_000) and x.dtype == torch.float64
    for row in x:
        assert fits(row, 0.5) and not fits(row, 0.475) and not fits(row, 0.525)
    assert abs(float((x[0] * x[1]).mean())) < 0.25 * 5 / 200


def test_chunking_clients_changes_nothing():
    whole = client_noise([1, 2, 3], 11, 1.0, 2.0**-20, Rng(3))
    parts = [client_noise([client], 11, 1.0, 2.0**-20, Rng(3)) for client in (1, 2, 3)]
    assert torch.equal(whole, torch.cat(parts))


def test_no_scale_means_no_noise():
    assert not grid_noise(3, 0.0, 0.5, Rng()).any() and not client_noise([1], 3, 0.0, 0.5, Rng(1)).any()


def continuous_delta(epsilon, multiplier):
    """Balle and Wang 2018, Theorem 8."""
    a, b = 1 / (2 * multiplier), epsilon * multiplier
    return norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b)


def discrete_delta(epsilon, sigma, shift):
    """The hockey-stick divergence of the discrete Gaussians at 0 and at `shift`, summed term by term."""
    first = shift / 2 + epsilon * sigma**2 / shift  # where the likelihood ratio passes exp(epsilon)
    x = np.arange(math.ceil(first), math.ceil(shift + 9 * sigma))
    total = math.sqrt(2 * math.pi) * sigma  # the sum over all integers, within exp(-2 pi^2 sigma^2)
    here, there = (np.exp(-((x - at) ** 2) / (2 * sigma**2)).sum() / total for at in (float(shift), 0.0))
    return here - math.exp(epsilon) * there


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_on_the_grid_of_a_clip_discrete_and_continuous_cost_the_same(multiplier, epsilon):
    shift = 2**20
    ours = discrete_delta(epsilon, grid_sigma(multiplier * shift, 1.0), shift)
    assert -5e-12 / multiplier**2 < ours - continuous_delta(epsilon, multiplier) < 1e-13


@pytest.mark.parametrize("steps", [4, 6, 10, 25])
def test_noise_on_a_coarse_grid_never_costs_more_than_it_is_accounted_for(steps):
    for epsilon in np.linspace(0, 4, 41):
        for shift in range(1, steps + 1):
            ours = discrete_delta(epsilon, grid_sigma(float(steps), 1.0), shift)
            assert ours <= continuous_delta(epsilon, 1.0) + 1e-13


def test_in_two_dimensions_no_neighbour_costs_more_than_it_is_accounted_for():
    steps, reach = 5, 70
    sigma = grid_sigma(float(steps), 1.0)
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    at = {shift: np.exp(-((x - shift) ** 2) / (2 * sigma**2)) for shift in range(steps + 1)}
    p0 = np.multiply.outer(at[0], at[0]) / (2 * math.pi * sigma**2)
    for a in range(steps + 1):
        for b in range(math.isqrt(steps**2 - a**2) + 1):
            p1 = np.multiply.outer(at[a], at[b]) / (2 * math.pi * sigma**2)
            for epsilon in (0.0, 0.3, 1.0, 2.0, 4.0):
                ours = np.maximum(p1 - math.exp(epsilon) * p0, 0).sum()
                assert ours <= continuous_delta(epsilon, 1.0) + 1e-12


def test_noise_for_a_release_is_the_discrete_gaussian_with_three_steps_more():
    """On a coarse grid the exact noise is told from rounded float noise, whose deviation would be that of the scale."""
    scale = math.hypot(1.0, 3.0) * 0.5
    assert fits(grid_noise(20_000, 0.5, 0.5, Rng()) + uniform(20_000, 0.5), math.hypot(scale, 0.5 / 12**0.5))
    assert fits(
        client_noise([1, 2], 10_000, 0.5, 0.5, Rng()) + uniform((2, 10_000), 0.5),
        math.hypot(scale, 0.5 / 12**0.5),
    )


def uniform(shape, width):
    """Spreads each multiple over its step, so that a continuous distribution can be compared."""
    return np.random.default_rng(1).uniform(-width / 2, width / 2, shape)


def test_seeded_draws_are_independent_across_batches():
    x = discrete_gaussian(100.0, 3 * 65_536, Rng(3)) / 100.0
    assert len(x) == 3 * 65_536
    for lag in (1, 61_000, 65_536, 2 * 65_536):
        assert abs(np.mean(x[lag:] * x[:-lag])) < 5 / math.sqrt(len(x) - lag)
    assert len(np.unique(x[:1000] - x[65_536 : 65_536 + 1000])) > 100


@pytest.mark.parametrize("count", [0, 1, 31, 1000, 65_537])
def test_there_are_as_many_draws_as_asked_for(count):
    assert len(discrete_gaussian(3.0, count, Rng())) == count


def test_the_largest_scale_can_be_drawn():
    assert fits(discrete_gaussian(2.0**50, 20_000, Rng()).astype(np.float64), 2.0**50)


@pytest.mark.parametrize("sigma", [1.0, 40.0])
def test_both_signs_are_equally_likely_and_zero_comes_once(sigma):
    drawn = discrete_gaussian(sigma, 100_000, Rng())
    signs = (drawn > 0).sum() - (drawn < 0).sum()
    assert abs(signs) < 5 * 100_000**0.5
    zero = float(true_probabilities(sigma, math.ceil(12 * sigma))[0])
    assert abs((drawn == 0).sum() - zero * 100_000) < 5 * (zero * 100_000) ** 0.5


@pytest.mark.parametrize(
    ("sigma", "bits"), [(0.4, 0), (15.9, 0), (16.0, 0), (32.0, 1), (63.9, 1), (64.0, 2), (2.0**20, 16)]
)
def test_blocks_are_a_32nd_to_a_16th_of_the_scale(sigma, bits):
    blocks = noise._blocks(sigma)
    assert blocks.bits == bits
    reach = (len(blocks.table.cumulative) + 1) << bits
    assert reach > 13.5 * sigma and reach <= 13.5 * sigma + 2 * 2**bits


def thinned(blocks, start, place, heights, rng=None):
    count = len(heights)
    rows = (np.full(count, value, dtype=np.int64) for value in (start, place))
    return noise._thinned(blocks, *rows, np.array(heights, dtype=np.uint64), rng or Rng(1))


@pytest.mark.parametrize("sigma", [45.0, 300.0])
def test_a_place_is_kept_as_long_as_the_height_is_below_its_density(sigma):
    blocks = noise._blocks(sigma)
    exact = noise._threshold(blocks, 100, 1) >> 64
    assert exact / 2**64 == pytest.approx(math.exp(-201 / (2 * sigma**2)))
    assert thinned(blocks, 100, 1, [0, exact - 2**20, exact + 2**20, 2**64 - 1]).tolist() == [
        True,
        True,
        False,
        False,
    ]
    assert thinned(blocks, 100, 0, [0, 2**63]).all()


def test_a_height_that_floats_cannot_decide_is_decided_by_further_bits_of_its_own():
    blocks = noise._blocks(45.0)
    exact = noise._threshold(blocks, 100, 1)
    share = (exact % 2**64) / 2**64
    kept = thinned(blocks, 100, 1, [exact >> 64] * 400).mean()
    assert abs(kept - share) < 5 * 0.5 / 400**0.5 and 0 < kept < 1


class Played(Rng):
    """Words as they are given, then seeded ones."""

    def bytes(self, count):
        return np.array(self.path[0], dtype="<u8").tobytes()[:count]

    def at(self, *key):
        return Rng(1).at(*key)


def test_a_word_on_the_boundary_of_two_blocks_is_decided_too():
    blocks = noise._blocks(1.5)
    boundary = blocks.table.cumulative[0] >> 64
    drawn = noise._accepted(blocks, 40, Played(path=(tuple([boundary] * 40 + [0] * 80),)))
    assert set(drawn.tolist()) == {0, 1}


def test_the_scale_in_steps_is_never_rounded_below_what_is_accounted():
    for number in range(1, 2000):
        scale, step = 0.37 * number, 2.0**-3
        exact = (Fraction(scale) / Fraction(step)) ** 2 + 9
        assert exact <= Fraction(grid_sigma(scale, step)) ** 2 <= exact * (1 + Fraction(1, 2**48))


def test_no_noise_is_as_precise_as_noise():
    assert (
        grid_noise(3, 0.0, 0.5, Rng()).dtype == client_noise([1], 3, 0.0, 0.5, Rng(1)).dtype == torch.float64
    )


def test_no_batch_of_seeded_draws_repeats_another():
    drawn = discrete_gaussian(1000.0, 150_000, Rng(7))
    assert drawn.tobytes().count(drawn[:50].tobytes()) == 1
