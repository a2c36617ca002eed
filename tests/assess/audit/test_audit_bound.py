import math

import numpy as np
import pytest
from scipy.stats import norm

from fedsynth.assess.attacks.audit_bound import bound_from_one_run, upper_rate
from fedsynth.errors import BadInput
from fedsynth.research.error_bounds import bound_from_errors, bound_from_scores


def test_upper_rate_covers_the_true_rate_as_often_as_stated():
    generator = np.random.default_rng(1)
    for rate in (0.001, 0.05, 0.5, 0.99):
        missed = np.mean(upper_rate(generator.binomial(1000, rate, 20_000), 1000, 0.95) < rate)
        assert missed <= 0.055


def test_perfect_guesses_are_limited_by_the_number_of_trials():
    assert bound_from_errors(0, 0, 1000, 1000, delta=0.0) == pytest.approx(math.log(1000 / 3.7), abs=0.03)
    assert bound_from_errors(1000, 1000, 1000, 1000, delta=0.0) == 0.0


def randomized_response(epsilon, runs, generator):
    keep = generator.random((2, runs)) < 1 / (1 + math.exp(-epsilon))
    return keep[0].astype(float), 1.0 - keep[1]


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_bounds_of_randomized_response_are_close_below_the_truth(epsilon):
    bound = bound_from_scores(*randomized_response(epsilon, 200_000, np.random.default_rng(2)), delta=0.0)
    assert 0.9 * epsilon - 0.05 < bound < epsilon


def test_bounds_exceed_the_truth_no_more_often_than_stated():
    generator = np.random.default_rng(3)
    bounds = [bound_from_scores(*randomized_response(1.0, 400, generator), delta=0.0) for _ in range(400)]
    assert np.mean(np.array(bounds) > 1.0) <= 0.05


def test_delta_is_taken_off():
    """A mechanism that shows the client with probability delta and nothing else has epsilon 0 at that delta."""
    generator = np.random.default_rng(4)
    shown = (generator.random(100_000) < 0.01).astype(float)
    assert bound_from_scores(shown, np.zeros(100_000), delta=0.012) == 0.0
    assert bound_from_scores(shown, np.zeros(100_000), delta=0.0) > 3.0


def test_gaussian_scores_prove_most_of_the_true_epsilon():
    generator = np.random.default_rng(5)
    x = generator.standard_normal((2, 400_000))
    bound = bound_from_scores(x[0] + 1.0, x[1], delta=1e-2)
    true = next(
        e for e in np.linspace(0, 5, 501) if norm.cdf(0.5 - e) - math.exp(e) * norm.cdf(-0.5 - e) < 1e-2
    )
    assert 0.75 * true < bound < true


def test_too_few_runs_are_refused():
    with pytest.raises(BadInput, match="at least 4"):
        bound_from_scores(np.zeros(3), np.zeros(9), delta=0.0)


def one_run_by_hand(correct, guesses, canaries, delta, level):
    """The search of Steinke et al. on a fine grid, with sums of factorials in place of a library's binomial."""

    def probability(k, q):
        return math.comb(guesses, k) * q**k * (1 - q) ** (guesses - k)

    last = 0.0
    for epsilon in np.linspace(0, 6, 601):
        q = 1 / (1 + math.exp(-epsilon))
        chance = sum(probability(k, q) for k in range(correct, guesses + 1))
        below = [sum(probability(correct - j, q) for j in range(1, i + 1)) / i for i in range(1, correct + 1)]
        if chance + 2 * canaries * delta * max(below, default=0.0) > level:
            return last
        last = epsilon
    return last


@pytest.mark.parametrize(("correct", "delta"), [(60, 0.0), (60, 1e-4), (55, 1e-3), (31, 0.0)])
def test_one_run_matches_the_sums_written_out(correct, delta):
    ours = bound_from_one_run(correct, 60, 100, delta)
    assert ours == pytest.approx(one_run_by_hand(correct, 60, 100, delta, 0.05), abs=0.011)


def test_one_run_of_randomized_response_rarely_exceeds_the_truth():
    generator = np.random.default_rng(6)
    correct = generator.binomial(500, 1 / (1 + math.exp(-1.0)), 200)
    bounds = np.array([bound_from_one_run(int(c), 500, 500, 0.0) for c in correct])
    assert np.mean(bounds > 1.0) <= 0.1 and bounds.mean() > 0.7


def test_impossible_counts_are_refused():
    with pytest.raises(BadInput, match="correct=5"):
        bound_from_one_run(5, 4, 10, 0.0)
