import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from gaussian_ceiling import gaussian_ceiling
from scipy.stats import norm

from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.errors import BadInput
from fedsynth.privacy import account

RATES = np.array([0.001, 0.01, 0.1, 0.3, 0.5, 0.9])


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 0.0), (0.0, 0.1), (1.0, 1e-5), (3.0, 0.01), (50.0, 0.0)]
)
def test_advantage_has_the_closed_form(epsilon, delta):
    expected = (math.exp(epsilon) - 1 + 2 * delta) / (math.exp(epsilon) + 1)
    ceiling = Ceiling.of(epsilon, delta)
    assert ceiling.advantage == pytest.approx(expected)
    assert ceiling.accuracy == pytest.approx((1 + expected) / 2)


def test_no_privacy_loss_allows_nothing_but_chance():
    nothing = Ceiling.of(0.0, 0.0)
    assert nothing.auc == pytest.approx(0.5)
    np.testing.assert_allclose(nothing.true_positive_rate(RATES), RATES)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_area_is_that_of_a_fine_sum(epsilon):
    ceiling = Ceiling.of(epsilon, 1e-3)
    rates = np.concatenate([np.geomspace(1e-9, 1, 200_000), [0.0]])
    rates.sort()
    assert ceiling.auc == pytest.approx(np.trapezoid(ceiling.true_positive_rate(rates), rates), abs=1e-6)


@pytest.mark.parametrize("noise", [0.7, 1.0, 3.0])
@pytest.mark.parametrize("make", [gaussian_ceiling, lambda noise: Ceiling.of_event(GaussianDpEvent(noise))])
def test_a_gaussian_profile_gives_the_curve_of_two_normal_distributions(noise, make):
    ceiling = make(noise)
    np.testing.assert_allclose(
        ceiling.true_positive_rate(RATES), norm.cdf(norm.ppf(RATES) + 1 / noise), rtol=0.01
    )
    assert ceiling.auc == pytest.approx(norm.cdf(1 / noise / math.sqrt(2)), abs=2e-3)
    assert ceiling.auc >= norm.cdf(1 / noise / math.sqrt(2)) - 1e-9


def test_rounds_add_up_as_one_release_with_less_noise():
    assert gaussian_ceiling(4.0, rounds=16).auc == pytest.approx(gaussian_ceiling(1.0).auc)


def test_a_profile_is_never_above_one_of_its_pairs():
    event = account.repeat(PoissonSampledDpEvent(0.2, GaussianDpEvent(1.2)), 30)
    profile = Ceiling.of_event(event)
    for delta in (1e-5, 1e-2):
        one = Ceiling.of(account.epsilon(event, delta), delta)
        assert (profile.true_positive_rate(RATES) <= one.true_positive_rate(RATES) + 5e-3).all()
        assert profile.auc < one.auc


def test_swapping_one_for_another_is_two_steps():
    assert Ceiling.of(1.0, 0.0, swapped=True) == Ceiling.of(2.0, 0.0)
    assert Ceiling.of(1.0, 1e-5, swapped=True).pairs[0][1] == pytest.approx(1e-5 * (1 + math.e))


@pytest.mark.parametrize("pair", [(-1.0, 0.0), (1.0, 1.5), (float("nan"), 0.0)])
def test_an_impossible_claim_is_refused(pair):
    with pytest.raises(BadInput, match="expected epsilon"):
        Ceiling.of(*pair)


def test_a_ceiling_is_plain_data_for_a_report():
    told = Ceiling.of(1.0, 1e-5).to_dict()
    assert told["tpr_at_1_percent"] == pytest.approx(0.01 * math.e + 1e-5)
    assert told["false_positive_rate"][0] == 0.0 and told["true_positive_rate"][-1] == 1.0
