"""The one-run bound by f-DP holds, is what a linear program says, and is as tight as the documentation states."""

from functools import cache

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from gaussian_ceiling import gaussian_ceiling
from scipy.optimize import linprog
from scipy.stats import norm

from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.assess.audit.canary import CanaryObservations
from fedsynth.assess.audit.noise_family import NoiseFamily
from fedsynth.assess.audit.one_run import GuessCounts, excluded, one_run, planned
from fedsynth.privacy import account

DELTA, LEVEL = 1e-5, 0.05


@cache
def family(epsilon):
    noise = account.calibrate(GaussianDpEvent, epsilon, DELTA)
    return NoiseFamily(GaussianDpEvent(noise), 1, "add-remove")


def simulated(noise, canaries, seed, shared=0.0):
    """Canaries in Gaussian noise, of which the share `shared` is one number for all of them."""
    draw = np.random.default_rng(seed)
    inside = draw.random(canaries) < 0.5
    own, common = draw.standard_normal(canaries), draw.standard_normal()
    return CanaryObservations(
        inside, inside - 0.5 + noise * (np.sqrt(1 - shared) * own + np.sqrt(shared) * common)
    )


def largest_chance(ceiling, correct, guesses, canaries):
    """The largest chance of at least `correct` right guesses, as a linear program over the chances of each number."""
    numbers = np.arange(guesses + 1)
    slopes, heights = ceiling._rising
    rows, limits = [], []
    for least in range(1, guesses + 1):
        right = np.where(numbers >= least, numbers / canaries, 0.0)
        wrong = np.where(numbers >= least - 1, (guesses - numbers) / canaries, 0.0)
        rows.append(
            right / slopes[:, None] - wrong
        )  # every line of the curve bounds the wrong guesses from below
        limits.append(heights / slopes)
    found = linprog(
        -(numbers >= correct).astype(float),
        A_ub=np.concatenate(rows),
        b_ub=np.concatenate(limits),
        A_eq=np.ones((1, guesses + 1)),
        b_eq=[1.0],
    )
    return -found.fun


@pytest.mark.parametrize(
    ("ceiling", "correct", "guesses", "canaries"),
    [
        (gaussian_ceiling(1.0), 17, 20, 40),
        (gaussian_ceiling(2.0), 14, 20, 20),
        (gaussian_ceiling(0.7), 20, 20, 100),
        (Ceiling.of(1.0, 1e-3), 18, 20, 30),
        (Ceiling.of(0.5, 0.0), 15, 16, 16),
    ],
)
def test_the_recursion_gives_the_chance_that_a_linear_program_gives(ceiling, correct, guesses, canaries):
    chance = largest_chance(ceiling, correct, guesses, canaries)
    assert 1e-6 < chance < 0.9

    def out(level):
        return excluded(ceiling.false_positive_rate, correct, guesses, canaries, level)

    assert out(chance * 1.02) and not out(chance * 0.98)


def test_a_mechanism_that_shows_all_canaries_at_once_with_chance_delta_is_within_its_claim():
    """The noise of canaries is anything but independent here, and the bound must not mind."""
    claim = Ceiling.of(0.0, 0.02)
    assert not excluded(claim.false_positive_rate, 300, 300, 300, level=0.0199)
    assert excluded(claim.false_positive_rate, 300, 300, 300, level=0.03)


@pytest.mark.parametrize(("epsilon", "shared"), [(8.0, 0.0), (1.0, 0.0), (2.0, 0.5)])
def test_the_true_claim_is_excluded_in_at_most_five_of_a_hundred_audits(epsilon, shared):
    claim, canaries = family(epsilon), 1000
    noise = claim.event.noise_multiplier / np.sqrt(1 - shared)  # more noise in all: the claim stays true
    plan, curve = planned(canaries, claim, LEVEL), claim.curve(1.0).false_positive_rate
    wrong = 0
    for seed in range(400):
        correct = plan.correct(simulated(noise, canaries, seed, shared))
        wrong += plan.excludes(curve, correct, canaries, LEVEL)
    assert wrong <= 0.05 * 400


def test_the_curve_of_a_ceiling_is_that_of_the_gaussian():
    lines = gaussian_ceiling(1.0).false_positive_rate
    for rate in (0.001, 0.02, 0.3, 0.9):
        exact = norm.cdf(norm.ppf(rate) - 1.0)
        assert lines(rate) <= exact <= 1.03 * lines(rate) + 1e-6


@pytest.mark.parametrize(
    ("epsilon", "canaries", "least"),
    [(8.0, 1000, 0.4), (8.0, 5000, 0.5), (1.0, 1000, 0.15), (1.0, 5000, 0.4)],
)
def test_one_run_proves_the_stated_part_of_the_true_epsilon(epsilon, canaries, least):
    claim = family(epsilon)
    bounds = [
        one_run(simulated(claim.event.noise_multiplier, canaries, seed), claim, DELTA, 0.95)
        for seed in range(15)
    ]
    shown = np.array([bound.epsilon_lower for bound in bounds])
    one_pair = np.array([bound.detail["epsilon_delta_form"] for bound in bounds])
    assert least * epsilon < np.median(shown) < 0.75 * epsilon and shown.max() < epsilon
    assert np.median(one_pair) < np.median(shown)


@pytest.mark.parametrize("epsilon", [8.0, 1.0])
def test_halved_noise_is_seen_in_most_audits(epsilon):
    claim = family(epsilon)
    shown = [
        one_run(simulated(claim.event.noise_multiplier / 2, 5000, seed), claim, DELTA, 0.95).epsilon_lower
        for seed in range(15)
    ]
    assert np.mean(np.array(shown) > epsilon) >= 0.9


def test_guesses_are_planned_from_public_numbers_and_one_sided_where_the_lowest_scores_tell_little():
    both = planned(5000, family(8.0), LEVEL)
    assert both.highest == both.lowest and both == planned(5000, family(8.0), LEVEL)
    seldom = NoiseFamily(PoissonSampledDpEvent(0.3, GaussianDpEvent(0.4)), 1, "add-remove")
    assert planned(5000, seldom, LEVEL).lowest == 0


def test_guesses_of_one_kind_may_use_the_curve_twice():
    """All guesses are "in": a canary that is in is found by chance TPR, and half of the canaries are in."""
    curve, canaries, guesses = gaussian_ceiling(1.0).false_positive_rate, 40, 10
    one, both = GuessCounts(guesses, 0), GuessCounts(guesses // 2, guesses // 2)
    levels = np.geomspace(1e-4, 0.9, 60)
    first = [
        next(level for level in levels if plan.excludes(curve, 10, canaries, level)) for plan in (one, both)
    ]
    assert first[0] < first[1]
    doubled = largest_chance(gaussian_ceiling(1.0), 10, guesses, canaries // 2)  # as if only half took part
    assert 0.9 * doubled < first[0] < 1.2 * doubled
