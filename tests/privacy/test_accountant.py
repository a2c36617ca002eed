"""Which accountant answers, with which delta, and on which grid: never below the truth, and close to it."""

import logging
import math

import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    LaplaceDpEvent,
    PoissonSampledDpEvent,
    ZCDpEvent,
    get_epsilon_gaussian,
)
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as library
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType
from dp_accounting.rdp import RdpAccountant, compute_epsilon

from fedsynth.errors import BadInput, NotPrivate
from fedsynth.privacy import accountant
from fedsynth.privacy.accountant import (
    COARSE,
    FINE,
    SpentEpsilon,
    answer,
    answer_steps,
    check,
    composed,
    epsilon_pld,
    epsilon_rdp,
    interval_for,
    one_loss,
    quiet,
    renyi_curve,
)
from fedsynth.privacy.events import EpsilonDeltaDpEvent, compose, repeat
from fedsynth.privacy.gaussian_loss import _Gaussian, _unsampled, gaussian_loss
from fedsynth.privacy.pairs import Loss, ReleaseTerms, steps_of

SAMPLED = PoissonSampledDpEvent(0.2, GaussianDpEvent(2.0))


def steps(event, adjacency="add-remove"):
    return steps_of(event, adjacency)


@pytest.mark.parametrize("name", ["pld", "rdp", "rdp-legacy"])
def test_nothing_costs_nothing_and_an_open_release_everything(name):
    assert answer_steps([], 1e-5, accountant=name) == SpentEpsilon(0.0, name)
    assert answer_steps([(ReleaseTerms(private=False), 1)], 1e-5, accountant=name) == SpentEpsilon(
        math.inf, name
    )


@pytest.mark.parametrize("name", ["pld", "rdp"])
def test_without_delta_pure_releases_are_added_up(name):
    event = compose([repeat(EpsilonDeltaDpEvent(0.5), 3), LaplaceDpEvent(4.0)])
    assert answer(event, 0.0, accountant=name) == SpentEpsilon(1.75, name)
    assert answer(GaussianDpEvent(1.0), 0.0, accountant=name) == SpentEpsilon(math.inf, name)


def test_a_release_that_no_accountant_can_compute_is_added_up():
    assert answer(repeat(EpsilonDeltaDpEvent(800.0), 2), 1e-5) == SpentEpsilon(1600.0, "pld")


def test_an_answer_names_who_gave_it():
    assert answer(SAMPLED, 1e-5).accountant == "pld"
    assert answer(SAMPLED, 1e-5, accountant="rdp").accountant == "rdp"
    assert answer(SAMPLED, 1e-5, accountant="rdp-legacy").accountant == "rdp-legacy"
    assert answer(ZCDpEvent(0.1), 1e-5).accountant == "rdp"


def test_below_the_least_delta_only_one_gaussian_is_left_to_pld():
    assert answer(SAMPLED, 0.99e-10).accountant == "rdp" and answer(SAMPLED, 1e-10).accountant == "pld"
    exact = answer(repeat(GaussianDpEvent(4.0), 4), 1e-30)
    assert exact == SpentEpsilon(pytest.approx(float(get_epsilon_gaussian(2.0, 1e-30)), rel=1e-12), "pld")


def test_unsampled_gaussians_are_one_with_the_inverse_variances_added():
    event = compose([repeat(GaussianDpEvent(6.0), 4), GaussianDpEvent(3.0)])
    together = (4 / 36 + 1 / 9) ** -0.5
    assert answer(event, 1e-5).epsilon == pytest.approx(
        float(get_epsilon_gaussian(together, 1e-5)), rel=1e-12
    )


@pytest.mark.parametrize("other", [SAMPLED, LaplaceDpEvent(3.0), EpsilonDeltaDpEvent(0.2)])
def test_whatever_else_is_there_makes_it_no_single_gaussian(other):
    both = answer(compose([GaussianDpEvent(2.0), other]), 1e-5).epsilon
    assert both > 1.01 * answer(GaussianDpEvent(2.0), 1e-5).epsilon
    assert both <= answer(GaussianDpEvent(2.0), 5e-6).epsilon + answer(other, 5e-6).epsilon


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.999])
def test_a_delta_in_its_range_is_taken(delta):
    check(delta, "pld")


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
def test_a_delta_outside_its_range_is_refused(delta):
    with pytest.raises(BadInput, match="it lies in"):
        check(delta, "pld")


def test_what_rdp_cannot_account_is_refused_with_the_reason():
    with pytest.raises(NotPrivate, match="replace-one is not known; use accountant 'pld'"):
        answer(SAMPLED, 1e-5, adjacency="replace-one", accountant="rdp")
    with pytest.raises(NotPrivate, match="not known"):
        answer(SAMPLED, 1e-12, adjacency="replace-one")


def test_parts_that_no_single_accountant_knows_get_half_of_delta_each():
    event = compose([repeat(SAMPLED, 3), repeat(ZCDpEvent(0.01), 2)])
    found = answer(event, 1e-5, adjacency="replace-one")
    first = epsilon_pld(steps(repeat(SAMPLED, 3), "replace-one"), 5e-6)
    second = epsilon_rdp(steps(repeat(ZCDpEvent(0.01), 2)), 5e-6)
    assert found == SpentEpsilon(pytest.approx(first + second, rel=1e-9), "pld+rdp")


def test_losses_too_large_for_any_grid_have_no_bound_where_nothing_else_answers():
    huge = PoissonSampledDpEvent(0.5, GaussianDpEvent(1e-4))
    assert answer(huge, 1e-5, adjacency="replace-one") == SpentEpsilon(math.inf, "pld")


def test_a_coarse_answer_is_never_below_the_fine_one():
    for name in ("pld", "rdp"):
        fine, coarse = (
            answer(repeat(SAMPLED, 20), 1e-5, accountant=name, precision=precision).epsilon
            for precision in (FINE, COARSE)
        )
        assert fine <= coarse <= 1.05 * fine


def test_rdp_at_full_precision_uses_all_orders_of_the_library():
    whole = RdpAccountant().compose(repeat(SAMPLED, 20)).get_epsilon(1e-5)
    assert answer(repeat(SAMPLED, 20), 1e-5, accountant="rdp").epsilon == pytest.approx(whole, rel=1e-9)


def test_the_curve_adds_up_and_an_order_that_failed_is_infinite():
    orders = (2.0, 8.0)
    mixed = steps(compose([repeat(SAMPLED, 3), LaplaceDpEvent(2.0)]))
    one = (
        RdpAccountant(orders).compose(SAMPLED).rdp * 3
        + RdpAccountant(orders).compose(LaplaceDpEvent(2.0)).rdp
    )
    curve = renyi_curve(mixed, orders)
    assert np.allclose(curve, one, rtol=1e-9, atol=0) and (curve > one).all()  # rounding is on the safe side
    assert len(renyi_curve(mixed)) == len(RdpAccountant().orders)
    assert renyi_curve([], orders).tolist() == [0.0, 0.0]


def test_curves_of_different_relations_and_orders_are_kept_apart():
    two = [(ReleaseTerms(renyi=GaussianDpEvent(1.0)), 1)]
    first = renyi_curve(two, (2.0,))
    assert renyi_curve(two, (3.0,)).tolist() != first.tolist() == renyi_curve(two, (2.0,)).tolist()


def test_curves_that_are_kept_are_bounded_in_number():
    accountant._CURVES.clear()
    for number in range(accountant._MOST_CURVES + 5):
        renyi_curve([(ReleaseTerms(renyi=GaussianDpEvent(1.0 + number)), 1)], (2.0,))
    assert len(accountant._CURVES) == accountant._MOST_CURVES
    assert f"{GaussianDpEvent(1.0)!r}" not in {key[0] for key in accountant._CURVES}  # the oldest went first


def test_deltas_of_the_releases_are_taken_off_before_the_conversion():
    event = repeat(EpsilonDeltaDpEvent(0.1, 1e-6), 3)
    curve = renyi_curve(steps(event))
    assert epsilon_rdp(steps(event), 5e-6) == pytest.approx(
        float(compute_epsilon(RdpAccountant().orders, curve, 2e-6)[0]), rel=1e-12
    )
    assert epsilon_rdp(steps(event), 3e-6) == math.inf and epsilon_rdp(steps(event), 2e-6) == math.inf


def test_the_legacy_conversion_is_that_of_mironov():
    event = repeat(SAMPLED, 30)
    orders = RdpAccountant().orders
    by_hand = np.min(renyi_curve(steps(event)) - math.log(1e-5) / (orders - 1))
    assert epsilon_rdp(steps(event), 1e-5, legacy=True) == pytest.approx(float(by_hand), rel=1e-12)
    assert epsilon_rdp(steps(event), 1e-5) < float(by_hand)
    assert epsilon_rdp([], 0.9, legacy=True) >= 0.0


@pytest.mark.parametrize(
    ("loss", "direct"),
    [
        (
            Loss("gaussian", 2.0, 0.2),
            library.from_gaussian_mechanism(2.0, value_discretization_interval=0.01, sampling_prob=0.2),
        ),
        (
            Loss("laplace", 2.0, 0.2),
            library.from_laplace_mechanism(2.0, value_discretization_interval=0.01, sampling_prob=0.2),
        ),
        (
            Loss("bounded", 0.3, delta=1e-4),
            library.from_privacy_parameters(
                common.DifferentialPrivacyParameters(0.3, 1e-4), value_discretization_interval=0.01
            ),
        ),
    ],
    ids=["gaussian", "laplace", "bounded"],
)
def test_a_loss_is_the_librarys_on_the_grid_that_is_asked_for(loss, direct):
    ours = one_loss(loss, 0.01)
    assert ours.get_epsilon_for_delta(2e-4) == direct.get_epsilon_for_delta(2e-4)
    together = composed([(ReleaseTerms(loss), 3)], 0.01)
    whole = direct.self_compose(3).get_epsilon_for_delta(1e-3)
    assert together.get_epsilon_for_delta(1e-3) == pytest.approx(whole, rel=1e-9)


def test_a_loss_under_replace_one_costs_more():
    added = one_loss(Loss("gaussian", 2.0, 0.2), 0.001).get_epsilon_for_delta(1e-5)
    ((step, _),) = steps(SAMPLED, "replace-one")
    assert one_loss(step.loss, 0.001).get_epsilon_for_delta(1e-5) > 1.1 * added


CASES = [
    repeat(SAMPLED, 30),
    repeat(PoissonSampledDpEvent(0.01, GaussianDpEvent(0.8)), 100),
    compose([SAMPLED, LaplaceDpEvent(2.0), EpsilonDeltaDpEvent(0.3)]),
    repeat(PoissonSampledDpEvent(0.1, LaplaceDpEvent(3.0)), 10),
]


@pytest.mark.parametrize("event", CASES, ids=range(len(CASES)))
def test_a_grid_four_times_as_fine_changes_hardly_anything(event):
    grid = interval_for(steps(event), 1e-5)
    ours = composed(steps(event), grid).get_epsilon_for_delta(1e-5)
    finer = composed(steps(event), grid / 4).get_epsilon_for_delta(1e-5)
    assert finer <= ours * (1 + 1e-9) <= finer * 1.005


@pytest.mark.parametrize("event", CASES, ids=range(len(CASES)))
def test_a_grid_is_the_finest_times_a_power_of_two(event):
    for precision in (FINE, COARSE):
        power = math.log2(interval_for(steps(event), 1e-5, precision) / FINE)
        assert power == round(power)
    assert interval_for(steps(event), 1e-5, COARSE) >= interval_for(steps(event), 1e-5, FINE)


GRIDS = [
    (repeat(SAMPLED, 30), FINE),
    (repeat(PoissonSampledDpEvent(0.001, GaussianDpEvent(0.8)), 2000), FINE),
    (repeat(PoissonSampledDpEvent(0.02, GaussianDpEvent(0.3)), 1000), FINE),
    (EpsilonDeltaDpEvent(8.0), FINE),
    (repeat(EpsilonDeltaDpEvent(8.0), 100), FINE),
    (repeat(PoissonSampledDpEvent(0.1, LaplaceDpEvent(0.05)), 10), FINE),
    (repeat(PoissonSampledDpEvent(0.1, LaplaceDpEvent(3.0)), 10), COARSE),
]


def test_no_grid_has_more_points_than_fit():
    for event, precision in GRIDS:
        grid = interval_for(steps(event), 1e-5, precision)
        assert answer(event, 1e-5, precision=precision).epsilon / grid < 4e5
        for step, _ in steps(event):
            assert accountant._span(step.loss) / grid <= 4.01e4


@pytest.mark.parametrize(
    ("loss", "span", "typical"),
    [
        (Loss("bounded", 3.0), 3.0, math.inf),
        (Loss("gaussian", 2.0), 0.125 + 4.0, 0.5),
        (Loss("laplace", 0.5), 2.0, 2.0),
        (Loss("gaussian", 2.0, 0.1), math.log1p(0.1 * math.expm1(4.125)), 0.05),
        (Loss("gaussian", 0.03, 0.1), 0.5 / 0.03**2 + 8 / 0.03, 0.1 / 0.03),
    ],
)
def test_how_far_a_loss_reaches_and_what_it_usually_is(loss, span, typical):
    assert accountant._span(loss) == pytest.approx(span) and accountant._typical(loss) == pytest.approx(
        typical
    )


def test_a_rough_estimate_has_the_order_of_the_truth():
    for event in CASES:
        true = answer(event, 1e-5).epsilon
        assert 0.7 * true <= accountant._rough(steps(event), 1e-5) <= 10 * true + 10.0
    replaced = steps(repeat(SAMPLED, 30), "replace-one")
    assert (
        accountant._rough(replaced, 1e-5) > answer(repeat(SAMPLED, 30), 1e-5, adjacency="replace-one").epsilon
    )


def test_warnings_of_the_library_are_kept_back_and_the_log_is_left_as_it_was():
    logger = logging.getLogger("absl")
    before = logger.level
    try:
        logger.setLevel(logging.INFO)
        with quiet():
            assert logger.level == logging.ERROR
            np.log(np.zeros(1))
        assert logger.level == logging.INFO
        with pytest.raises(RuntimeError), quiet():
            raise RuntimeError
        assert logger.level == logging.INFO
    finally:
        logger.setLevel(before)


def test_steps_cost_what_their_event_does_by_each_accountant():
    assert answer_steps(steps(SAMPLED), 1e-5) == answer(SAMPLED, 1e-5)
    legacy = answer(repeat(SAMPLED, 30), 1e-5, accountant="rdp-legacy").epsilon
    assert legacy == epsilon_rdp(steps(repeat(SAMPLED, 30)), 1e-5, legacy=True)


def test_an_order_at_which_the_library_fails_counts_as_infinite_and_no_cost_as_none():
    orders = (1.5, 2.0, 8.0, 64.0)
    tiny = PoissonSampledDpEvent(1e-8, GaussianDpEvent(1e4))
    with quiet():
        said = RdpAccountant(orders).compose(tiny).rdp
        curve = renyi_curve([(ReleaseTerms(renyi=tiny), 3)], orders)
    assert 0 < (said < 0).sum() < len(orders)  # the library would read these as a cost of nothing
    assert np.isinf(curve).tolist() == (said < 0).tolist()
    never = PoissonSampledDpEvent(0.0, GaussianDpEvent(1.0))
    assert np.isfinite(renyi_curve([(ReleaseTerms(renyi=never), 1)], orders)).all()


def test_small_losses_get_a_grid_that_is_fine_beside_them():
    many = steps(repeat(PoissonSampledDpEvent(0.001, GaussianDpEvent(4.0)), 100))
    assert interval_for(many, 1e-5) <= 2 * 0.05 * 0.001 / 4.0


def test_the_accountant_is_pld_unless_another_is_named_and_legacy_is_another_than_rdp():
    assert answer_steps(steps(SAMPLED), 1e-5) == answer(SAMPLED, 1e-5, accountant="pld")
    by_name = {name: answer(SAMPLED, 1e-5, accountant=name).epsilon for name in ("rdp", "rdp-legacy")}
    assert by_name["rdp-legacy"] == epsilon_rdp(steps(SAMPLED), 1e-5, True) > by_name["rdp"]


@pytest.mark.parametrize(
    ("scale", "rate", "interval"),
    [
        (1.0, 0.1, 1e-3),
        (0.5, 0.8, 1e-3),
        (3.2, 0.01, 1e-4),
        (1.7, 0.999, 1e-3),
        (0.8, 1e-3, 1e-3),
        (2.0, 0.5, 1e-3),
    ],
)
def test_sampled_noise_has_the_library_s_own_distribution(scale, rate, interval):
    whole = library.from_gaussian_mechanism(scale, value_discretization_interval=interval, sampling_prob=rate)
    quick = gaussian_loss(scale, rate, interval)
    grid = np.linspace(-2.0, 6.0, 50)
    for count in (1, 7):
        expected, shown = (pld.self_compose(count) for pld in (whole, quick))
        np.testing.assert_allclose(
            shown.get_delta_for_epsilon(grid), expected.get_delta_for_epsilon(grid), rtol=1e-9, atol=0
        )


def test_a_loss_that_sampling_does_not_reach_is_no_number():
    loss = _Gaussian(1.0, 0.1, AdjacencyType.REMOVE)
    with quiet():
        never = loss.get_delta_for_epsilon(np.array([-5.0, math.log(0.9), 0.0]))
    assert never.tolist() == [-math.expm1(-5.0), pytest.approx(0.1), loss.get_delta_for_epsilon([0.0])[0]]
    with pytest.raises(ValueError, match="which sampling does not reach"):
        _unsampled(np.array([-1.0]), 0.1)


def test_a_grid_is_no_finer_than_is_wanted_and_no_coarser_than_it_must_be():
    """A rough estimate of epsilon that is far too high does not make the grid coarse; the reach of one loss does."""
    assert interval_for(steps(GaussianDpEvent(50.0)), 1e-5) == FINE
    for rate, noise, times, grid in ((0.001, 0.1, 50, 3.2e-3), (0.0001, 0.2, 5000, 1.6e-3)):
        event = repeat(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), times)
        assert interval_for(steps(event), 1e-5) == pytest.approx(grid)


def test_a_step_without_a_loss_keeps_its_own_renyi_event():
    assert accountant._nearest_renyi(ReleaseTerms(renyi=GaussianDpEvent(3.0))) == GaussianDpEvent(3.0)
    assert accountant._nearest_renyi(ReleaseTerms(loss=Loss("bounded", 1.0))) is None
