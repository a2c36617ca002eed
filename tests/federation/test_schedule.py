import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent
from scipy.stats import chi2

from fedsynth.errors import BadInput
from fedsynth.federation.client_uses import ClientUses
from fedsynth.federation.schedule import Clock, Everyone, FixedCohort, PoissonCohort, Rotation, Sequential
from fedsynth.privacy.banded import BandedGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.mechanism import Release
from fedsynth.rng import Rng

ROUNDS = 4000


def drawn(schedule, rounds=ROUNDS, rng=None):
    """Who took part, [rounds, clients]."""
    taken = np.zeros((rounds, schedule.clients))
    for version in range(rounds):
        ids = schedule.start(Clock(version), rng or Rng(5))
        assert (np.diff(ids) > 0).all()
        taken[version, ids] = 1
    return taken


def evenness(taken: np.ndarray, rate: float) -> float:
    """Chi-square over clients of how often each took part; `clients` degrees of freedom if independent."""
    return float(((taken.sum(0) - ROUNDS * rate) ** 2 / (ROUNDS * rate * (1 - rate))).sum())


def links(taken: np.ndarray) -> float:
    """Chi-square of all pairwise correlations between clients."""
    pairs = np.corrcoef(taken.T)[np.triu_indices(taken.shape[1], 1)]
    return float((pairs**2).sum() * len(taken))


def test_poisson_takes_each_client_at_its_rate_and_independently():
    taken = drawn(PoissonCohort(12, 0.3))
    assert chi2.ppf(0.0005, 12) < evenness(taken, 0.3) < chi2.ppf(0.9995, 12)
    assert links(taken) < chi2.ppf(0.999, 66)
    sizes = taken.sum(1)
    assert sizes.var() == pytest.approx(12 * 0.3 * 0.7, rel=0.08)  # a fixed size would have none
    assert abs(np.corrcoef(sizes[1:], sizes[:-1])[0, 1]) * ROUNDS**0.5 < 3.3


def test_the_tests_for_independence_reject_a_fixed_cohort():
    taken = drawn(FixedCohort(12, 4))
    assert links(taken) > chi2.ppf(0.999, 66) and taken.sum(1).var() == 0


def test_poisson_from_the_operating_system_has_the_rate_too():
    taken = drawn(PoissonCohort(12, 0.3), rng=Rng())
    assert chi2.ppf(1e-7, 12) < evenness(taken, 0.3) < chi2.ppf(1 - 1e-7, 12)


def test_a_poisson_cohort_may_be_empty_or_all():
    taken = drawn(PoissonCohort(2, 0.5), 200)
    assert {0, 1, 2} == set(taken.sum(1).astype(int))
    assert PoissonCohort(5, 1.0).start(Clock(0), Rng(1)).tolist() == [0, 1, 2, 3, 4]


def test_poisson_goes_on_drawing_until_it_has_passed_the_last_client(monkeypatch):
    monkeypatch.setattr(Rng, "uniforms", lambda rng, count: np.ones(count))  # the shortest gaps there are
    assert (PoissonCohort(1000, 0.1).start(Clock(0), Rng(2)) == np.arange(1000)).all()


@pytest.mark.parametrize("make", [lambda n: PoissonCohort(n, 100 / n), lambda n: FixedCohort(n, 100)])
def test_drawing_a_cohort_costs_the_same_out_of_any_population(make, monkeypatch):
    counts = []
    draw = Rng.uniforms
    monkeypatch.setattr(Rng, "uniforms", lambda rng, count: counts.append(count) or draw(rng, count))
    costs = []
    for population in (1_000, 10_000_000):
        counts.clear()
        make(population).start(Clock(0), Rng(2))
        costs.append(sum(counts))
    assert costs[1] <= 1.3 * costs[0] and costs[1] < 300


def test_a_fixed_cohort_is_uniform_without_replacement():
    taken = drawn(FixedCohort(6, 2))
    assert (taken.sum(1) == 2).all()
    pairs = (taken.T @ taken)[np.triu_indices(6, 1)]
    assert ((pairs - ROUNDS / 15) ** 2 / (ROUNDS / 15)).sum() < chi2.ppf(0.999, 14)


def test_everyone_is_everyone():
    assert Everyone(4).start(Clock(3), Rng(1)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("schedule", "expected"), [(PoissonCohort(40, 0.1), 4.0), (FixedCohort(40, 7), 7.0), (Everyone(40), 40.0)]
)
def test_the_denominator_is_fixed_before_anybody_turns_up(schedule, expected):
    before = schedule.denominator()
    for version in range(5):
        schedule.start(Clock(version), Rng(1))
    assert schedule.denominator() == before == expected == schedule.expected


def test_the_server_waits_for_the_whole_cohort_and_weighs_all_alike():
    schedule = PoissonCohort(40, 0.1)
    assert not schedule.ready(Clock(0, in_flight=1, arrived=3)) and schedule.ready(Clock(0, 0, 4))
    assert schedule.weigh(0) == schedule.weigh(5) == 1.0


NOISE = GaussianDpEvent(1.1)


def released(trust):
    return Release("sum", "client", trust, NOISE)


@pytest.mark.parametrize("trust", ["central", "distributed"])
def test_sampling_amplifies_what_only_the_server_sees(trust):
    release = released(trust)
    assert PoissonCohort(40, 0.1).amplify(release) == PoissonSampledDpEvent(0.1, NOISE)
    assert FixedCohort(40, 7).amplify(release) == SampledWithoutReplacementDpEvent(40, 7, NOISE)
    assert Everyone(40).amplify(release) == NOISE
    assert PoissonCohort(40, 1.0).amplify(release) == FixedCohort(40, 40).amplify(release) == NOISE


def test_local_trust_gets_no_amplification():
    for schedule in (PoissonCohort(40, 0.1), FixedCohort(40, 7), Everyone(40)):
        assert schedule.amplify(released("local")) == NOISE


def test_a_schedule_names_the_neighbours_that_its_sampling_allows():
    assert PoissonCohort(40, 0.1).adjacency == "add-remove" and FixedCohort(40, 7).adjacency == "replace-one"


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan")])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(BadInput, match="rate"):
        PoissonCohort(10, rate)


@pytest.mark.parametrize("size", [0, 11])
def test_an_impossible_cohort_is_refused(size):
    with pytest.raises(BadInput, match="cohort"):
        FixedCohort(10, size)


def test_sampling_buys_nothing_for_noise_that_is_correlated_over_rounds():
    mechanism = BandedGaussian(Clip(1.0), 2.0, separation=3)
    for schedule in (PoissonCohort(100, 0.1), FixedCohort(100, 10)):
        assert schedule.amplify(mechanism.release) == mechanism.release.event


@pytest.mark.parametrize(("clients", "groups", "rounds"), [(10, 5, 11), (7, 3, 9), (4, 4, 3)])
def test_nobody_has_more_turns_than_a_rotation_says(clients, groups, rounds):
    schedule = Rotation(clients, groups)
    turns = np.zeros(clients, dtype=int)
    for version in range(rounds):
        turns[schedule.start(Clock(version), Rng(1))] += 1
    assert turns.max() == schedule.participations(rounds) and turns.max() - turns.min() <= 1


def test_a_rotation_amplifies_nothing():
    release = Release("x", "client", "central", GaussianDpEvent(1.0))
    assert Rotation(10, 5).amplify(release) == GaussianDpEvent(1.0)


def test_a_rotation_needs_a_client_for_each_group():
    with pytest.raises(BadInput, match="groups=6"):
        Rotation(5, 6)


def test_a_clock_counts_who_is_under_way_and_who_arrived():
    clock = Clock(5, in_flight=2, arrived=1).with_started(np.array([4, 7, 9]))
    assert (clock.version, clock.in_flight, clock.arrived, clock.standing) == (5, 5, 1, None)
    clock = clock.with_heard(2, 1, np.array([7]))
    assert (clock.version, clock.in_flight, clock.arrived, clock.standing) == (5, 2, 3, None)
    assert len(clock.absent) == 0 and clock.absent.dtype == np.int64


def test_a_clock_knows_by_name_who_is_under_way_lost_or_spared():
    clock = Clock(0, standing=ClientUses.fresh(10)).with_started(np.array([4, 7, 9]))
    assert clock.standing.busy.tolist() == [4, 7, 9]
    clock = clock.with_heard(0, 2, np.array([7]), np.array([9]))
    assert (
        clock.standing.busy.tolist() == [4] and clock.standing.lost.tolist() == [7] and clock.in_flight == 1
    )


def test_each_version_draws_a_cohort_of_its_own():
    for schedule in (PoissonCohort(40, 0.5), FixedCohort(40, 20)):
        first, second = (schedule.start(Clock(version), Rng(1)).tolist() for version in (0, 1))
        assert first != second and first == schedule.start(Clock(0), Rng(1)).tolist()


def test_nobody_is_asked_while_a_synchronous_server_waits():
    schedule = PoissonCohort(40, 0.5)
    assert len(schedule.refill(Clock(0, in_flight=3), Rng(1))) == 0
    assert (schedule.buffered, schedule.separation, schedule.participations(7)) == (False, 1, 7)


def test_a_fixed_cohort_may_be_one_or_all_and_reaches_the_last_client():
    assert FixedCohort(4, 4).start(Clock(0), Rng(1)).tolist() == [0, 1, 2, 3]
    alone = [int(FixedCohort(3, 1).start(Clock(version), Rng(1))[0]) for version in range(60)]
    assert set(alone) == {0, 1, 2}


def test_the_largest_uniform_number_draws_nobody_beyond_the_last(monkeypatch):
    monkeypatch.setattr(Rng, "uniforms", lambda rng, count: np.full(count, 2.0**-53))
    assert FixedCohort(5, 2).start(Clock(0), Rng(1)).tolist() == [3, 4]
    monkeypatch.setattr(Rng, "uniforms", lambda rng, count: np.ones(count))
    assert FixedCohort(5, 2).start(Clock(0), Rng(1)).tolist() == [0, 4]


def test_everyone_may_be_summed_over_other_units():
    schedule = Everyone(4, units=200.0)
    assert (schedule.denominator(), schedule.expected, schedule.sampling) == (200.0, 4.0, "none")
    assert schedule.adjacency == "add-remove" and Everyone(4).denominator() == 4.0


def test_a_rotation_comes_back_after_all_groups_and_divides_by_the_mean_group():
    schedule = Rotation(10, 4)
    assert (schedule.separation, schedule.expected, schedule.denominator()) == (4, 2.5, 2.5)
    assert (schedule.sampling, schedule.adjacency) == ("none", "replace-one")
    assert [schedule.start(Clock(version), Rng(1)).tolist() for version in (0, 1, 5)] == [
        [0, 4, 8],
        [1, 5, 9],
        [1, 5, 9],
    ]


def test_spared_clients_have_no_turns():
    schedule = Rotation(10, 2, spared=3)  # clients 0, 3, 6 and 9
    asked = np.concatenate([schedule.start(Clock(version), Rng(1)) for version in (0, 1)])
    assert sorted(asked.tolist()) == [1, 2, 4, 5, 7, 8] and schedule.denominator() == schedule.expected == 3.0
    assert Rotation(10, 6, spared=3).denominator() == 1.0
    with pytest.raises(BadInput, match="all 6 clients"):
        Rotation(10, 7, spared=3)


def test_a_rotation_may_have_one_group():
    assert Rotation(3, 1).start(Clock(2), Rng(1)).tolist() == [0, 1, 2]
    with pytest.raises(BadInput, match="groups=0"):
        Rotation(3, 0)


def test_one_after_another_each_client_has_every_turn_but_one_as_often():
    schedule = Sequential(4)
    assert [schedule.start(Clock(version), Rng(1)).tolist() for version in range(5)] == [
        [0],
        [1],
        [2],
        [3],
        [0],
    ]
    assert (schedule.separation, schedule.expected, schedule.denominator()) == (4, 1.0, 1.0)
    assert [schedule.participations(rounds) for rounds in (1, 4, 5, 9)] == [1, 1, 2, 3]
    assert schedule.amplify(released("central")) == NOISE
    assert (schedule.sampling, schedule.adjacency) == ("none", "add-remove")
