"""The optimal Gaussian mechanism, and the heuristic that it replaces."""

import math

import pytest
from dp_accounting import GaussianDpEvent
from scipy.optimize import brentq
from scipy.special import erfc

from fedsynth.errors import BadInput
from fedsynth.privacy.account import epsilon, repeat
from fedsynth.research.gaussian import analytic_noise, legacy_noise


def equation_4_4_8(target, delta):
    """The thesis's equations 4.4.8-9, solved by bisection."""

    def gap(xi):
        return erfc(xi) - math.exp(target) * erfc(math.sqrt(xi**2 + target)) - 2 * delta

    xi = brentq(gap, 0 if gap(0) > 0 else -5, 20)
    return (xi + math.sqrt(xi**2 + target)) / (target * math.sqrt(2))


@pytest.mark.parametrize("target", [0.5, 1.0, 8.0])
def test_it_is_equation_4_4_8(target):
    assert analytic_noise(target, 1e-5) == pytest.approx(equation_4_4_8(target, 1e-5), rel=1e-6)


@pytest.mark.parametrize("rounds", [1, 7, 100])
def test_its_rounds_cost_exactly_the_budget(rounds):
    noise = analytic_noise(3.0, 1e-6, rounds)
    assert epsilon(repeat(GaussianDpEvent(noise), rounds), 1e-6) == pytest.approx(3.0, rel=1e-6)


def test_the_legacy_equations_add_too_little():
    found = legacy_noise(8.0, 1e-5, 100)
    assert found.noise_multiplier == pytest.approx(4.57, abs=0.005)
    assert analytic_noise(8.0, 1e-5, 100) == pytest.approx(6.00, abs=0.005)
    assert found.true_epsilon > 11 and found.claimed_epsilon == 8
    assert found.noise_multiplier == pytest.approx(equation_4_4_8(8.0 / 10, 1e-5), rel=1e-6)


def test_bad_budgets_are_refused():
    with pytest.raises(BadInput, match="rounds 1 or more"):
        analytic_noise(1.0, 1e-5, 0)


@pytest.mark.parametrize(
    "bad", [(0.0, 1e-5, 1), (-1.0, 1e-5, 1), (1.0, 0.0, 1), (1.0, 1.0, 1), (1.0, 1e-5, 0)]
)
def test_every_impossible_budget_is_refused(bad):
    for noise in (analytic_noise, legacy_noise):
        with pytest.raises(BadInput, match="delta between 0 and 1"):
            noise(*bad)


def test_one_round_is_enough():
    assert legacy_noise(1.0, 1e-5, 1).noise_multiplier == pytest.approx(analytic_noise(1.0, 1e-5))


def test_what_the_legacy_noise_costs_is_the_cost_of_all_its_rounds():
    found = legacy_noise(8.0, 1e-5, 25)
    spent = epsilon(repeat(GaussianDpEvent(found.noise_multiplier), 25), 1e-5)
    assert found.true_epsilon == pytest.approx(spent) and spent > epsilon(
        GaussianDpEvent(found.noise_multiplier), 1e-5
    )
