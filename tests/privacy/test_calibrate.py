"""Searches for noise, rounds, cohorts and clients: what they find fits the budget, hardly misses it, and comes soon."""

import math

import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, NoOpDpEvent, PoissonSampledDpEvent, ZCDpEvent

from fedsynth.errors import BadInput
from fedsynth.privacy.accountant import COARSE, answer
from fedsynth.privacy.calibrate import (
    Odometer,
    _finish,
    _most,
    calibrate,
    largest,
    max_cohort,
    max_rounds,
    min_clients,
    round_up,
    smallest,
)
from fedsynth.privacy.events import EpsilonDeltaDpEvent, compose, repeat


def epsilon(event, delta=1e-5, **terms):
    return answer(event, delta, **terms).epsilon


class Counting:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *arguments):
        self.calls += 1
        return self.function(*arguments)


@pytest.mark.parametrize("target", [0.003, 0.05, 0.4, 1.0, 3.0, 8.0, 60.0, 2000.0])
def test_calibrated_noise_spends_nearly_all_of_the_budget_in_five_digits_and_few_trials(target):
    make = Counting(GaussianDpEvent)
    noise = calibrate(make, target, 1e-5)
    assert target * (1 - 1.5e-4) <= epsilon(GaussianDpEvent(noise)) <= target
    assert noise == float(f"{noise:.5g}")
    assert make.calls <= 8 + 3 + abs(math.log2(noise)) + 7


def test_calibration_uses_the_terms_that_it_is_given():
    plain = calibrate(GaussianDpEvent, 2.0, 1e-5)
    assert calibrate(GaussianDpEvent, 2.0, 1e-5, adjacency="replace-one") == pytest.approx(
        2 * plain, rel=2e-4
    )
    assert calibrate(GaussianDpEvent, 2.0, 1e-9) > 1.2 * plain
    renyi = calibrate(GaussianDpEvent, 2.0, 1e-5, accountant="rdp")
    assert epsilon(GaussianDpEvent(renyi), accountant="rdp") == pytest.approx(2.0, rel=2e-4)
    assert renyi > 1.02 * plain


@pytest.mark.parametrize("low", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("stair", [0.37, 3.00005, 41.0])
def test_calibration_is_within_budget_also_where_the_cost_jumps(stair, low):
    def release(noise):
        return EpsilonDeltaDpEvent(low if noise >= stair else 10.0)

    assert stair <= calibrate(release, 1.0, 0.0) <= 1.02 * stair


def test_the_last_steps_keep_the_smallest_noise_that_does_and_go_on_until_one_does():
    far = _finish(lambda noise: 0.5 if noise >= 100.0 else 3.0, 1.0, 1.0)
    assert 100.0 <= far <= 100.02
    assert _finish(lambda noise: 0.5 if noise >= 3.0 else 10.0, 3.2, 1.0) == 3.2


@pytest.mark.parametrize("power", [0.05, 0.2, 1.0, 3.0, 4.0])
def test_calibration_is_within_budget_however_steep_the_cost(power):
    noise = calibrate(lambda noise: EpsilonDeltaDpEvent(7.0 * noise**-power), 5.0, 1e-5)
    assert 5.0 * 0.999 <= 7.0 * noise**-power <= 5.0


def test_what_costs_nothing_needs_hardly_any_noise():
    assert 0 < calibrate(lambda noise: NoOpDpEvent(), 1.0, 1e-5) < 1e-3


def test_noise_that_cannot_help_is_refused_after_few_trials():
    make = Counting(lambda noise: EpsilonDeltaDpEvent(3.0))
    with pytest.raises(BadInput, match="up to 1e\\+07 reaches epsilon 2 at delta 1e-05"):
        calibrate(make, 2.0, 1e-5)
    assert make.calls < 30
    just = calibrate(lambda noise: EpsilonDeltaDpEvent(1e7 / noise), 1.2, 1e-5)  # between 2^22 and 2^23
    assert 1e7 / just == pytest.approx(1.2, rel=2e-4)


@pytest.mark.parametrize("target", [0.0, -1.0, math.nan])
def test_a_budget_of_nothing_is_refused(target):
    for search in (
        lambda: calibrate(GaussianDpEvent, target, 1e-5),
        lambda: max_rounds(GaussianDpEvent(1.0), target, 1e-5),
        lambda: max_cohort(lambda cohort: GaussianDpEvent(1.0), 5, target, 1e-5),
        lambda: min_clients(lambda clients: GaussianDpEvent(1.0), 5, target, 1e-5),
    ):
        with pytest.raises(BadInput, match="a budget is above 0"):
            search()


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (1.000001, 5, 1.0001),
        (0.5, 5, 0.5),
        (9.99991, 5, 10.0),
        (123456.0, 5, 123460.0),
        (123450.0, 5, 123450.0),
        (0.00123451, 5, 0.0012346),
        (2345.1, 3, 2350.0),
        (10.0, 3, 10.0),
        (1.0, 1, 1.0),
    ],
)
def test_rounding_goes_up_to_the_next_number_of_so_many_digits(value, digits, expected):
    assert round_up(value, digits) == expected


SAMPLED = PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0))


@pytest.mark.parametrize(
    ("fixed", "event", "terms"),
    [
        ((), GaussianDpEvent(3.0), {}),
        ((), GaussianDpEvent(3.0), {"adjacency": "replace-one"}),
        ((GaussianDpEvent(4.0),), GaussianDpEvent(3.0), {"accountant": "rdp"}),
        ((ZCDpEvent(0.1),), SAMPLED, {}),
        ((), SAMPLED, {"accountant": "rdp"}),
        ((), compose([GaussianDpEvent(3.0), ZCDpEvent(0.1)]), {}),
        ((EpsilonDeltaDpEvent(0.3),), NoOpDpEvent(), {}),
    ],
)
def test_an_odometer_says_what_the_accountant_says(fixed, event, terms):
    odometer = Odometer(fixed, event, 1e-5, **terms, precision=COARSE)
    for rounds in (0, 1, 5):
        whole = compose([*fixed, repeat(event, rounds)])
        assert odometer.after(rounds) == epsilon(whole, precision=COARSE, **terms)


@pytest.mark.parametrize(
    ("fixed", "adjacency"),
    [((), "add-remove"), ((LaplaceDpEvent(2.0),), "add-remove"), ((GaussianDpEvent(4.0),), "replace-one")],
)
def test_an_odometer_of_sampled_rounds_agrees_with_the_accountant_in_any_order(fixed, adjacency):
    event = repeat(SAMPLED, 2)
    odometer = Odometer(fixed, event, 1e-5, adjacency, precision=COARSE)
    for rounds in (40, 1, 0, 7):
        truth = epsilon(compose([*fixed, repeat(event, rounds)]), adjacency=adjacency, precision=COARSE)
        assert odometer.after(rounds) == pytest.approx(truth, rel=1e-3)


def test_an_odometer_of_a_minute_delta_goes_to_renyi():
    odometer = Odometer((), SAMPLED, 1e-13)
    assert odometer.after(2) == epsilon(repeat(SAMPLED, 2), 1e-13)


def test_an_odometer_never_falls_and_looks_once():
    odometer = Odometer((), GaussianDpEvent(3.0), 1e-5)
    odometer._known.update({3: 50.0, 9: 70.0})
    assert [odometer.after(rounds) for rounds in (3, 5, 9, 12, 2)] == [
        50.0,
        50.0,
        70.0,
        70.0,
        epsilon(repeat(GaussianDpEvent(3.0), 2)),
    ]
    assert set(odometer._known) == {2, 3, 5, 9, 12}


@pytest.mark.parametrize("terms", [{}, {"adjacency": "replace-one"}, {"accountant": "rdp"}])
@pytest.mark.parametrize("fixed", [(), (GaussianDpEvent(7.0),)])
@pytest.mark.parametrize("noise", [8.0, 50.0])
def test_one_round_more_than_the_most_would_be_too_much(terms, fixed, noise):
    most = max_rounds(GaussianDpEvent(noise), 2.0, 1e-5, fixed=fixed, **terms)
    cost = [
        epsilon(compose([*fixed, repeat(GaussianDpEvent(noise), most + more)]), **terms) for more in (0, 1)
    ]
    assert cost[0] <= 2.0 < cost[1]


def test_of_many_rounds_the_most_is_short_by_one_in_ten_thousand_at_most():
    most = max_rounds(GaussianDpEvent(900.0), 2.0, 1e-5)
    cost = [epsilon(repeat(GaussianDpEvent(900.0), rounds)) for rounds in (most, math.ceil(most * 1.0002))]
    assert most > 100_000 and cost[0] <= 2.0 < cost[1]


def test_rounds_that_cost_nothing_have_no_most():
    with pytest.raises(BadInput, match="repeated for ever"):
        max_rounds(NoOpDpEvent(), 1.0, 1e-5)
    assert max_rounds(GaussianDpEvent(1e9), 8.0, 1e-5) == 10_000_000


@pytest.mark.parametrize("terms", [{}, {"adjacency": "replace-one"}, {"accountant": "rdp"}])
def test_the_largest_cohort_fits_and_one_more_client_does_not(terms):
    def release(cohort):
        return GaussianDpEvent(900.0 / cohort)

    make = Counting(release)
    cohort = max_cohort(make, 5000, 2.0, 1e-5, **terms)
    assert 100 < cohort < 5000 and make.calls <= 14
    assert epsilon(release(cohort), **terms) <= 2.0 < epsilon(release(cohort + 1), **terms)
    assert max_cohort(release, 100, 2.0, 1e-5, **terms) == 100
    assert max_cohort(lambda cohort: GaussianDpEvent(0.1), 100, 2.0, 1e-5, **terms) == 0


@pytest.mark.parametrize("terms", [{}, {"adjacency": "replace-one"}, {"accountant": "rdp"}])
@pytest.mark.parametrize("cohort", [7, 1000])
def test_enough_clients_are_found_to_three_digits(terms, cohort):
    def release(clients):
        assert isinstance(clients, int)
        return GaussianDpEvent(clients / cohort / 9)

    make = Counting(release)
    clients = min_clients(make, cohort, 2.0, 1e-5, **terms)
    assert epsilon(release(clients), **terms) <= 2.0 < epsilon(release(int(clients * 0.98) - 1), **terms)
    assert clients == math.ceil(float(f"{clients:.3g}")) and make.calls <= 18


def test_there_are_never_fewer_clients_than_the_cohort_and_sometimes_never_enough():
    assert min_clients(lambda clients: GaussianDpEvent(50.0), 1234, 2.0, 1e-5) >= 1234
    assert min_clients(lambda clients: GaussianDpEvent(50.0), 10, 2.0, 1e-5) == 10
    calls = Counting(lambda clients: GaussianDpEvent(0.1))
    assert min_clients(calls, 10, 2.0, 1e-5) is None and calls.calls == 1
    far = min_clients(lambda clients: GaussianDpEvent(clients / 1e12), 10, 2.0, 1e-5)
    assert epsilon(GaussianDpEvent(far / 1e12)) <= 2.0 < epsilon(GaussianDpEvent(far * 0.98 / 1e12))


def test_a_number_of_clients_that_does_not_do_is_passed_over():
    cost = {1240: EpsilonDeltaDpEvent(2.0)}  # the first of three digits above 1231
    clients = min_clients(lambda n: cost.get(n, EpsilonDeltaDpEvent(1.0 if n > 1230 else 2.0)), 10, 1.0, 0.0)
    assert clients == 1250


@pytest.mark.parametrize("power", [0.5, 0.7, 1.0])
@pytest.mark.parametrize("true", [0, 1, 2, 9, 700, 9000])
@pytest.mark.parametrize("guess", [1, 650, 10**6])
def test_the_largest_count_within_budget_is_found_in_few_trials(power, true, guess):
    cost = Counting(lambda count: 3.0 * (count / (true + 0.5)) ** power)
    assert _most(cost, 3.0, guess) == true
    assert cost.calls <= 24


@pytest.mark.parametrize("true", [0, 1, 5, 99, 100])
def test_the_largest_count_is_found_for_any_stair_up_to_the_limit(true):
    for low in (0.0, 0.5):
        for high in (9.0, math.inf):
            cost = Counting(lambda count, low=low, high=high: low if count <= true else high)
            assert _most(cost, 1.0, 40, 100) == true and cost.calls <= 12


@pytest.mark.parametrize(("low", "high"), [(0, 9), (3, 3), (-4, 12)])
def test_searches_by_halving_find_the_first_and_the_last_and_look_nowhere_else(low, high):
    for true in range(low, high + 2):
        trials = []
        above = smallest(
            lambda number, true=true, trials=trials: trials.append(number) or number >= true, low, high
        )
        below = largest(
            lambda number, true=true, trials=trials: trials.append(number) or number < true, low, high
        )
        assert above == (true if true <= high else None) and below == (true - 1 if true > low else None)
        assert low <= min(trials) and max(trials) <= high
        assert len(trials) <= 2 * (2 + math.log2(high - low + 2))
