"""The accountant against reference values, its two conventions, and its own promises."""

import json
import logging
import math
import time
import warnings
from collections import OrderedDict

import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    SampledWithoutReplacementDpEvent,
    SampledWithReplacementDpEvent,
    SelfComposedDpEvent,
    SingleEpochTreeAggregationDpEvent,
    ZCDpEvent,
)
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.errors import BadInput, NotPrivate
from fedsynth.privacy import account
from fedsynth.privacy.account import (
    DiscreteGaussianDpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
    Odometer,
    calibrate,
    compose,
    epsilon,
    max_cohort,
    max_rounds,
    min_clients,
    repeat,
)


def poisson(rate, noise, rounds=1):
    return repeat(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), rounds)


def fixed(clients, cohort, noise, rounds=1):
    return repeat(SampledWithoutReplacementDpEvent(clients, cohort, GaussianDpEvent(noise)), rounds)


@pytest.mark.parametrize(
    ("event", "adjacency", "expected"),
    [
        (poisson(0.2, 1.0, 30), "add-remove", 7.93),
        (poisson(0.2, 1.0, 30), "zero-out", 7.93),
        (poisson(0.2, 1.0, 30), "replace-one", 11.47),
        (fixed(500, 100, 1.0, 30), "replace-one", 60.54),
        (fixed(500, 100, 2.0, 30), "replace-one", 15.00),  # noise of 1 relative to the sensitivity 2S
        (fixed(500, 100, 1.0, 30), "zero-out", 60.54),
    ],
)
def test_the_three_adjacencies_cost_what_the_specification_says(event, adjacency, expected):
    assert epsilon(event, 1e-5, adjacency=adjacency) == pytest.approx(expected, abs=0.006)


def test_an_unsampled_gaussian_under_replace_one_is_the_same_for_both_accountants():
    tight = epsilon(GaussianDpEvent(1.0), 1e-5, adjacency="replace-one")
    renyi = epsilon(GaussianDpEvent(1.0), 1e-5, adjacency="replace-one", accountant="rdp")
    assert tight == pytest.approx(10.0, abs=0.01)
    assert tight < renyi < 1.1 * tight  # RDP is looser, but of the same noise: not 4.73
    assert epsilon(GaussianDpEvent(2.0), 1e-5, adjacency="replace-one") == epsilon(GaussianDpEvent(1.0), 1e-5)


def test_gaussian_rounds_are_one_gaussian_with_less_noise():
    assert epsilon(repeat(GaussianDpEvent(6.0), 36), 1e-5) == pytest.approx(
        epsilon(GaussianDpEvent(1.0), 1e-5)
    )


def test_the_analytic_gaussian_agrees_with_the_discretized_one():
    discretized = (
        PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE).compose(GaussianDpEvent(1.3)).get_epsilon(1e-6)
    )
    assert epsilon(GaussianDpEvent(1.3), 1e-6) == pytest.approx(discretized, abs=1e-3)


@pytest.mark.parametrize(("rounds", "accountant"), [(30, "rdp-legacy"), (38, "rdp"), (48, "pld")])
def test_rounds_until_epsilon_ten(rounds, accountant):
    assert max_rounds(poisson(0.2, 1.0), 10.0, 1e-5, accountant=accountant) == rounds


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (fixed(500, 100, 1.0), "add-remove"),
        (SampledWithReplacementDpEvent(500, 100, GaussianDpEvent(1.0)), "add-remove"),
        (SampledWithReplacementDpEvent(500, 100, GaussianDpEvent(1.0)), "replace-one"),
        (PoissonSampledDpEvent(0.1, LaplaceDpEvent(1.0)), "replace-one"),
        (PoissonSampledDpEvent(0.1, EpsilonDeltaDpEvent(1.0)), "add-remove"),
        (SingleEpochTreeAggregationDpEvent(1.0, 8), "add-remove"),
    ],
)
def test_what_no_accountant_supports_is_refused_with_the_reason(event, adjacency):
    with pytest.raises(NotPrivate, match=r"cannot be accounted|has no accountant"):
        epsilon(event, 1e-5, adjacency=adjacency)


def test_rdp_does_not_pretend_to_know_poisson_under_replace_one():
    with pytest.raises(NotPrivate, match="use accountant 'pld'"):
        epsilon(poisson(0.2, 1.0), 1e-5, adjacency="replace-one", accountant="rdp")


@pytest.mark.parametrize("count", [1, 3, 40])
@pytest.mark.parametrize("accountant", account.ACCOUNTANTS)
def test_pure_releases_never_cost_more_than_their_sum(count, accountant):
    event = repeat(EpsilonDeltaDpEvent(0.5), count)
    assert epsilon(event, 1e-6, accountant=accountant) <= 0.5 * count
    assert epsilon(event, 0.0) == 0.5 * count


def test_a_repeated_randomized_response_is_counted_each_time():
    once = RandomizedResponseDpEvent(0.5, 4)
    library = (
        PLDAccountant(NeighboringRelation.REPLACE_ONE)
        .compose(SelfComposedDpEvent(once, 10))
        .get_epsilon(1e-6)
    )
    assert library < 1.7  # the library forgets the count
    assert epsilon(repeat(once, 10), 1e-6, adjacency="replace-one") > 10


def test_approximate_releases_add_their_delta():
    event = repeat(EpsilonDeltaDpEvent(0.1, 1e-6), 5)
    assert 0.1 < epsilon(event, 1e-5) <= 0.5 + 1e-3
    assert epsilon(event, 1e-6, accountant="rdp") == math.inf


def test_releases_on_the_same_sample_act_as_one_gaussian():
    both = PoissonSampledDpEvent(0.1, ComposedDpEvent([GaussianDpEvent(2), GaussianDpEvent(2)]))
    assert epsilon(both, 1e-5) == pytest.approx(epsilon(poisson(0.1, 2**0.5), 1e-5))
    assert epsilon(both, 1e-5, accountant="rdp") == pytest.approx(
        epsilon(poisson(0.1, 2**0.5), 1e-5, accountant="rdp")
    )


def test_unlike_releases_cost_at_least_each_and_at_most_their_sum():
    parts = [poisson(0.1, 1.0, 50), LaplaceDpEvent(2.0), EpsilonDeltaDpEvent(0.3), GaussianDpEvent(5.0)]
    whole = epsilon(compose(parts), 1e-5)
    alone = [epsilon(part, 1e-5 / len(parts)) for part in parts]
    assert max(epsilon(part, 1e-5) for part in parts) < whole < sum(alone)


def test_releases_that_no_single_accountant_knows_are_split():
    event = compose([poisson(0.2, 1.0, 30), fixed(500, 100, 4.0, 2)])
    answer = account.answer(event, 1e-5, adjacency="replace-one")
    assert answer.accountant == "pld+rdp"
    assert answer.epsilon > epsilon(poisson(0.2, 1.0, 30), 1e-5, adjacency="replace-one")


def test_the_discrete_gaussian_costs_a_little_more_than_the_continuous_one():
    continuous = epsilon(GaussianDpEvent(1.0), 1e-5)
    coarse = epsilon(DiscreteGaussianDpEvent(1.0, steps=10.0), 1e-5)
    fine = epsilon(DiscreteGaussianDpEvent(1.0, steps=2.0**20), 1e-5)
    assert continuous < fine < continuous * (1 + 1e-9) < coarse < continuous * 1.1
    with pytest.raises(BadInput, match="finer grid"):
        epsilon(DiscreteGaussianDpEvent(1.0, steps=2.0), 1e-5)


def test_no_noise_and_open_releases_have_no_bound():
    for event in (
        GaussianDpEvent(0.0),
        NonPrivateDpEvent(),
        poisson(0.1, 0.0),
        EpsilonDeltaDpEvent(math.inf),
    ):
        assert epsilon(event, 1e-5) == math.inf
    assert epsilon(NoOpDpEvent(), 1e-5) == 0
    assert epsilon(poisson(0.0, 1.0, 100), 1e-5) == 0


def test_tiny_noise_gives_a_huge_number_instead_of_running_out_of_memory():
    started = time.process_time()
    assert 1e6 < epsilon(poisson(0.02, 0.01, 1000), 1e-5) < 1e8
    assert time.process_time() - started < 60


def test_tuning_is_charged():
    run = GaussianDpEvent(4.0)
    assert epsilon(RepeatAndSelectDpEvent(run, 10.0, 1.0), 1e-5) > 1.5 * epsilon(run, 1e-5, accountant="rdp")


def test_zcdp_and_trees_are_accounted_by_renyi():
    assert account.answer(ZCDpEvent(0.5), 1e-5).accountant == "rdp"
    tree = SingleEpochTreeAggregationDpEvent(10.0, 16)
    zero_out = epsilon(tree, 1e-5, adjacency="zero-out")
    assert 0 < zero_out < epsilon(tree, 1e-5, adjacency="replace-one")


def test_the_library_is_quiet(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epsilon(poisson(0.2, 1.0, 30), 1e-5, accountant="rdp")  # seven orders do not converge
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("absl").level != logging.ERROR


def test_a_negative_renyi_divergence_is_not_read_as_free(monkeypatch):
    from fedsynth.privacy import accountant

    class Negative(accountant.RdpAccountant):
        @property
        def rdp(self):
            return super().rdp * 0 - 1.0

    for known in ("_CURVES", "_ANSWERS"):
        monkeypatch.setattr(accountant, known, OrderedDict())
    monkeypatch.setattr(accountant, "RdpAccountant", Negative)
    assert epsilon(poisson(0.2, 1.0, 30), 1e-5, accountant="rdp") == math.inf


def test_a_question_is_computed_once_and_another_one_anew(monkeypatch):
    from fedsynth.privacy import accountant

    computed, compute = [], accountant.compute_epsilon

    def counted(*question):
        computed.append(question)
        return compute(*question)

    monkeypatch.setattr(accountant, "_ANSWERS", OrderedDict())
    monkeypatch.setattr(accountant, "compute_epsilon", counted)
    first = epsilon(poisson(0.2, 1.0, 30), 1e-5, accountant="rdp")
    assert epsilon(poisson(0.2, 1.0, 30), 1e-5, accountant="rdp") == first and len(computed) == 1
    for event, delta in ((poisson(0.2, 1.0, 31), 1e-5), (poisson(0.2, 1.0, 30), 1e-6)):
        assert epsilon(event, delta, accountant="rdp") > first
    assert len(computed) == 3


def test_an_epsilon_takes_seconds_and_not_minutes():
    for event, delta in ((poisson(0.021, 0.5, 940), 1e-4), (poisson(0.001, 0.8, 100_000), 1e-7)):
        started = time.process_time()
        epsilon(event, delta)
        assert time.process_time() - started < 60


@pytest.mark.parametrize(
    ("rate", "rounds", "target"), [(0.2, 30, 8.0), (0.004, 1000, 1.0), (1.0, 100, 8.0), (0.01, 10_000, 0.1)]
)
def test_calibrated_noise_is_enough_and_hardly_more(rate, rounds, target):
    started = time.process_time()
    noise = calibrate(lambda z: poisson(rate, z, rounds), target, 1e-5)
    assert time.process_time() - started < 120
    assert target * 0.999 < epsilon(poisson(rate, noise, rounds), 1e-5) <= target


def test_calibration_for_fixed_cohorts_and_replace_one():
    for make in (lambda z: fixed(500, 100, z, 30), lambda z: poisson(0.2, z, 30)):
        noise = calibrate(make, 8.0, 1e-5, adjacency="replace-one")
        assert 7.98 < epsilon(make(noise), 1e-5, adjacency="replace-one") <= 8.0


def test_calibration_says_so_when_no_noise_can_help():
    with pytest.raises(BadInput, match="already exceed the budget"):
        calibrate(lambda z: compose([EpsilonDeltaDpEvent(3.0), GaussianDpEvent(z)]), 2.0, 1e-5)


def test_the_largest_number_of_rounds_is_the_largest():
    fixed_part = [LaplaceDpEvent(1.0)]
    rounds = max_rounds(poisson(0.05, 1.0), 4.0, 1e-5, fixed=fixed_part)
    cost = [epsilon(compose([*fixed_part, poisson(0.05, 1.0, rounds + more)]), 1e-5) for more in (0, 1)]
    assert cost[0] <= 4.0 < cost[1]
    assert max_rounds(GaussianDpEvent(1.0), 1.0, 1e-5) == 0


def test_cohort_and_clients_are_solved_for():
    cohort = max_cohort(lambda n: poisson(n / 2000, 1.0, 50), 2000, 3.0, 1e-5)
    assert (
        epsilon(poisson(cohort / 2000, 1.0, 50), 1e-5)
        <= 3.0
        < epsilon(poisson((cohort + 1) / 2000, 1.0, 50), 1e-5)
    )
    clients = min_clients(lambda n: poisson(cohort / n, 1.0, 50), cohort, 3.0, 1e-5)
    assert clients is not None and 2000 * 0.99 < clients < 2000 * 1.02
    assert max_cohort(lambda n: GaussianDpEvent(0.1), 10, 1.0, 1e-5) == 0
    assert min_clients(lambda n: GaussianDpEvent(0.1), 10, 1.0, 1e-5) is None


def test_the_odometer_shows_what_the_accountant_says_and_never_falls():
    odometer = Odometer((LaplaceDpEvent(2.0),), poisson(0.1, 1.0), 1e-5)
    shown = [odometer.after(rounds) for rounds in range(0, 12)]
    assert shown == sorted(shown)
    assert shown[0] == pytest.approx(0.5, abs=1e-3)
    truth = epsilon(compose([LaplaceDpEvent(2.0), poisson(0.1, 1.0, 11)]), 1e-5)
    assert truth * 0.9999 <= shown[-1] <= truth * 1.001
    started = time.process_time()
    odometer.after(12)
    assert time.process_time() - started < 30


def test_the_odometer_follows_fixed_cohorts_and_open_releases():
    odometer = Odometer((), fixed(500, 100, 1.0), 1e-5, adjacency="replace-one")
    assert odometer.after(30) == pytest.approx(60.54, abs=0.01)
    assert Odometer((NonPrivateDpEvent(),), poisson(0.1, 1.0), 1e-5).after(3) == math.inf


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_a_wrong_delta_is_refused(delta):
    with pytest.raises(BadInput, match="delta="):
        epsilon(GaussianDpEvent(1.0), delta)


def test_wrong_words_get_the_nearest():
    with pytest.raises(BadInput, match="did you mean 'replace-one'"):
        epsilon(GaussianDpEvent(1.0), 1e-5, adjacency="replace_one")
    with pytest.raises(BadInput, match="did you mean 'rdp'"):
        epsilon(GaussianDpEvent(1.0), 1e-5, accountant="rpd")
    with pytest.raises(BadInput, match="noise_multiplier=-1"):
        epsilon(GaussianDpEvent(-1.0), 1e-5)


def test_a_minute_delta_goes_to_renyi_because_pld_is_not_exact_there():
    assert account.answer(poisson(0.1, 1.0, 10), 1e-13).accountant == "rdp"


EVENTS = [
    NoOpDpEvent(),
    NonPrivateDpEvent(),
    GaussianDpEvent(0.1 + 0.2),
    DiscreteGaussianDpEvent(1.1, 65536.0),
    LaplaceDpEvent(1 / 3),
    EpsilonDeltaDpEvent(0.7, 1e-9),
    ExponentialMechanismDpEvent(0.5),
    RandomizedResponseDpEvent(0.25, 7),
    ZCDpEvent(0.1, 0.01),
    SingleEpochTreeAggregationDpEvent(2.0, [3, 4]),
    RepeatAndSelectDpEvent(GaussianDpEvent(1.0), 10.0, math.inf),
    poisson(0.2, 1.0, 30),
    fixed(500, 100, 1.0),
    SampledWithReplacementDpEvent(10, 2, GaussianDpEvent(1.0)),
    ComposedDpEvent([GaussianDpEvent(1.0), SelfComposedDpEvent(LaplaceDpEvent(2.0), 3)]),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_survive_json_exactly(event):
    text = json.dumps(account.event_to_json(event), allow_nan=False)
    assert account.event_from_json(json.loads(text)) == event


@given(st.floats(1e-6, 1e6), st.floats(0, 1), st.integers(0, 10**9))
@settings(max_examples=50, deadline=None)
def test_every_number_survives_json_exactly(noise, rate, count):
    event = SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), count)
    assert account.event_from_json(json.loads(json.dumps(account.event_to_json(event)))) == event


def test_unknown_events_are_refused():
    with pytest.raises(BadInput, match="did you mean 'GaussianDpEvent'"):
        account.event_from_json({"type": "GausianDpEvent", "noise_multiplier": 1.0})
    with pytest.raises(BadInput, match="expected noise_multiplier"):
        account.event_from_json({"type": "GaussianDpEvent", "sigma": 1.0})


def test_a_sum_too_large_for_the_grid_is_added_up_not_refused():
    many = repeat(EpsilonDeltaDpEvent(8.0), 196)
    assert epsilon(many, 1e-9, adjacency="replace-one") <= 196 * 8.0
