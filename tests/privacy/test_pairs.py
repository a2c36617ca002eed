"""Each release in the library's terms: which noise, relative to which sensitivity, under which relation."""

import math

import pytest
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
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

from fedsynth.errors import BadInput, NotPrivate
from fedsynth.privacy.events import (
    DiscreteGaussianDpEvent,
    EpsilonDeltaDpEvent,
    ExponentialMechanismDpEvent,
)
from fedsynth.privacy.pairs import ADJACENCIES, PAIRS, SAMPLINGS, Loss, ReleaseTerms, steps_of

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
ZERO_OUT = NeighboringRelation.REPLACE_SPECIAL
FREE = ReleaseTerms(Loss("bounded", 0.0), RandomizedResponseDpEvent(1.0, 2), REPLACE, pure=0.0)
OPEN = ReleaseTerms(private=False)


def step(event, adjacency="add-remove"):
    ((only, count),) = steps_of(event, adjacency)
    assert count == 1
    return only


@pytest.mark.parametrize(
    ("adjacency", "relative"), [("add-remove", 3.0), ("zero-out", 3.0), ("replace-one", 1.5)]
)
def test_an_unsampled_gaussian_is_relative_to_what_the_sum_moves_by(adjacency, relative):
    assert step(GaussianDpEvent(3.0), adjacency) == ReleaseTerms(
        Loss("gaussian", relative), GaussianDpEvent(relative)
    )
    assert step(PoissonSampledDpEvent(1.0, GaussianDpEvent(3.0)), adjacency) == step(
        GaussianDpEvent(3.0), adjacency
    )


@pytest.mark.parametrize(
    ("adjacency", "relative"), [("add-remove", 4.0), ("zero-out", 4.0), ("replace-one", 2.0)]
)
def test_laplace_noise_is_relative_to_what_the_sum_moves_by(adjacency, relative):
    expected = ReleaseTerms(Loss("laplace", relative), LaplaceDpEvent(relative), pure=1 / relative)
    assert step(LaplaceDpEvent(4.0), adjacency) == expected
    assert step(PoissonSampledDpEvent(1.0, LaplaceDpEvent(4.0)), adjacency) == expected


def test_a_discrete_gaussian_is_priced_as_the_continuous_one_below_it():
    event = DiscreteGaussianDpEvent(1.0, steps=10.0)
    assert step(event) == step(event.continuous()) and event.continuous().noise_multiplier < 1.0


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out"])
def test_a_poisson_sample_is_known_to_both_accountants(adjacency):
    event = PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0))
    found = step(event, adjacency)
    assert found.loss == Loss("gaussian", 2.0, 0.1, relation=ADD_REMOVE) and found.renyi == event
    assert found.relation == ADD_REMOVE


def test_a_poisson_sample_under_replace_one_keeps_the_clip_as_unit_and_has_no_renyi_bound():
    found = step(PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0)), "replace-one")
    assert found.loss == Loss("gaussian", 2.0, 0.1, relation=REPLACE) and found.renyi is None
    assert "not known" in found.reason


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_a_fixed_cohort_is_priced_for_two_clips(adjacency):
    found = step(SampledWithoutReplacementDpEvent(50, 10, GaussianDpEvent(3.0)), adjacency)
    assert found.renyi == SampledWithoutReplacementDpEvent(50, 10, GaussianDpEvent(1.5))
    assert (
        found.loss is None and found.relation == REPLACE and found.reason == PAIRS["fixed", adjacency].reason
    )


def test_a_fixed_cohort_of_everybody_is_no_sample():
    everybody = SampledWithoutReplacementDpEvent(50, 50, GaussianDpEvent(3.0))
    assert step(everybody, "replace-one") == step(GaussianDpEvent(3.0), "replace-one")
    assert step(SampledWithoutReplacementDpEvent(1, 1, GaussianDpEvent(3.0)), "zero-out").private


@pytest.mark.parametrize(("size", "clients"), [(0, 5), (6, 5), (-1, 5)])
def test_a_cohort_that_cannot_be_drawn_is_refused(size, clients):
    with pytest.raises(BadInput, match="a fixed cohort has 1 to"):
        step(SampledWithoutReplacementDpEvent(clients, size, GaussianDpEvent(1.0)), "replace-one")


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out"])
def test_sampled_laplace_noise_has_a_loss_and_no_renyi_bound(adjacency):
    found = step(PoissonSampledDpEvent(0.1, LaplaceDpEvent(2.0)), adjacency)
    assert found.loss == Loss("laplace", 2.0, 0.1) and found.renyi is None and found.pure == math.inf
    assert "not in the library" in found.reason


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_whatever_has_no_noise_is_open_and_endless_noise_is_free(adjacency):
    def sampled(inner: DpEvent) -> list[DpEvent]:
        fixed = [] if adjacency == "add-remove" else [SampledWithoutReplacementDpEvent(9, 3, inner)]
        return [inner, PoissonSampledDpEvent(0.5, inner), PoissonSampledDpEvent(1.0, inner), *fixed]

    assert {step(event, adjacency) for event in sampled(GaussianDpEvent(0.0))} == {OPEN}
    assert {step(event, adjacency) for event in sampled(GaussianDpEvent(math.inf))} == {FREE}
    assert step(LaplaceDpEvent(0.0), adjacency) == OPEN and step(LaplaceDpEvent(math.inf), adjacency) == FREE
    assert step(NonPrivateDpEvent(), adjacency) == OPEN


def test_sampled_laplace_without_noise_is_open_and_with_endless_noise_free():
    assert step(PoissonSampledDpEvent(0.5, LaplaceDpEvent(0.0))) == OPEN
    assert step(PoissonSampledDpEvent(0.5, LaplaceDpEvent(math.inf))) == FREE


def test_a_sample_of_nobody_is_free():
    assert step(PoissonSampledDpEvent(0.0, GaussianDpEvent(1.0))) == FREE


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_rate_that_is_no_chance_is_refused(rate):
    with pytest.raises(BadInput, match="rate lies in"):
        step(PoissonSampledDpEvent(rate, GaussianDpEvent(1.0)))


@pytest.mark.parametrize("noise", [-1.0, math.nan])
def test_noise_that_means_nothing_is_refused(noise):
    for event in (
        GaussianDpEvent(noise),
        LaplaceDpEvent(noise),
        PoissonSampledDpEvent(0.5, LaplaceDpEvent(noise)),
    ):
        with pytest.raises(BadInput, match="noise_multiplier="):
            step(event)
    with pytest.raises(BadInput, match="noise_multiplier="):
        step(SingleEpochTreeAggregationDpEvent(noise, 4), "zero-out")


def test_gaussians_on_one_sample_add_their_inverse_variances():
    inner = ComposedDpEvent([GaussianDpEvent(3.0), SelfComposedDpEvent(GaussianDpEvent(6.0), 4)])
    together = (1 / 9 + 4 / 36) ** -0.5
    assert step(PoissonSampledDpEvent(0.5, inner)).loss.scale == pytest.approx(together)
    assert step(
        SampledWithoutReplacementDpEvent(9, 3, inner), "zero-out"
    ).renyi.event.noise_multiplier == pytest.approx(together / 2)


def test_one_release_without_noise_opens_the_sample():
    inner = ComposedDpEvent([GaussianDpEvent(3.0), GaussianDpEvent(0.0)])
    assert step(PoissonSampledDpEvent(0.5, inner)) == OPEN


def test_nothing_on_a_sample_is_free():
    assert step(PoissonSampledDpEvent(0.5, NoOpDpEvent())) == FREE


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 8.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_release_known_by_its_bounds_is_dominated_by_two_answers(epsilon, delta):
    found = step(EpsilonDeltaDpEvent(epsilon, delta))
    assert found.loss == Loss("bounded", epsilon, delta=delta)
    assert (found.delta, found.relation) == (delta, REPLACE)
    assert found.pure == (math.inf if delta else epsilon)
    told = found.renyi.noise_parameter / 2  # the chance of the other answer
    assert math.log((1 - told) / told) == pytest.approx(epsilon, abs=1e-12) and found.renyi.num_buckets == 2


def test_an_exponential_mechanism_is_pure():
    assert step(ExponentialMechanismDpEvent(0.7)) == step(EpsilonDeltaDpEvent(0.7))


def test_a_large_epsilon_is_added_up_where_its_exponential_overflows():
    most, more = step(EpsilonDeltaDpEvent(699.0)), step(EpsilonDeltaDpEvent(700.0))
    assert most.loss is not None and most.renyi is not None
    assert more.loss is None and more.renyi is None and more.pure == 700.0 and "700" in more.reason


@pytest.mark.parametrize("event", [EpsilonDeltaDpEvent(math.inf), EpsilonDeltaDpEvent(1.0, 1.0)])
def test_a_bound_that_bounds_nothing_is_open(event):
    assert step(event) == OPEN


@pytest.mark.parametrize(("epsilon", "delta"), [(-0.1, 0.0), (math.nan, 0.0), (1.0, -1e-9), (1.0, 1.1)])
def test_bounds_that_mean_nothing_are_refused(epsilon, delta):
    with pytest.raises(BadInput, match="delta lies in"):
        step(EpsilonDeltaDpEvent(epsilon, delta))


def test_randomized_response_has_the_epsilon_of_its_chances():
    found = step(RandomizedResponseDpEvent(0.25, 4))
    assert found.pure == pytest.approx(math.log((0.75 + 0.0625) / 0.0625)) and found.delta == 0.0
    assert step(RandomizedResponseDpEvent(1.0, 4)).pure == pytest.approx(0.0)


def test_randomized_response_with_one_answer_is_free_and_one_that_always_tells_is_open():
    assert step(RandomizedResponseDpEvent(0.5, 1)) == FREE
    assert step(RandomizedResponseDpEvent(0.0, 4)) == OPEN


def test_zero_concentrated_privacy_is_a_renyi_bound():
    event = ZCDpEvent(0.5)
    assert step(event) == ReleaseTerms(renyi=event, reason="zCDP is a Renyi bound")


@pytest.mark.parametrize(("adjacency", "relative"), [("zero-out", 8.0), ("replace-one", 4.0)])
def test_tree_noise_is_relative_to_what_a_client_moves(adjacency, relative):
    found = step(SingleEpochTreeAggregationDpEvent(8.0, [4, 3]), adjacency)
    assert found.renyi == SingleEpochTreeAggregationDpEvent(relative, [4, 3])
    assert (found.loss, found.relation, found.reason) == (None, ZERO_OUT, "tree noise is a Renyi bound")


def test_a_search_is_charged_over_all_releases_of_a_run():
    run = ComposedDpEvent([SelfComposedDpEvent(GaussianDpEvent(4.0), 3), LaplaceDpEvent(5.0)])
    found = step(RepeatAndSelectDpEvent(run, 10.0, 1.0))
    parts = [SelfComposedDpEvent(GaussianDpEvent(4.0), 3), LaplaceDpEvent(5.0)]
    assert found.renyi == RepeatAndSelectDpEvent(ComposedDpEvent(parts), 10.0, 1.0)
    assert (found.loss, found.relation, found.reason) == (
        None,
        ADD_REMOVE,
        "a charged search is a Renyi bound",
    )
    replaced = step(RepeatAndSelectDpEvent(GaussianDpEvent(4.0), 10.0, 0.5), "replace-one")
    assert replaced.renyi.event.events == [GaussianDpEvent(2.0)] and replaced.renyi.shape == 0.5


@pytest.mark.parametrize(
    "inner",
    [
        NonPrivateDpEvent(),
        EpsilonDeltaDpEvent(1.0, 1e-6),
        EpsilonDeltaDpEvent(800.0),
        PoissonSampledDpEvent(0.5, LaplaceDpEvent(1.0)),
        ComposedDpEvent([GaussianDpEvent(1.0), EpsilonDeltaDpEvent(1.0)]),  # bounds under different relations
    ],
)
def test_a_search_without_one_renyi_bound_is_refused(inner):
    with pytest.raises(NotPrivate, match="one Renyi bound"):
        step(RepeatAndSelectDpEvent(inner, 10.0, 1.0))


def test_a_refusal_names_the_reason_and_what_is_supported():
    with pytest.raises(
        NotPrivate,
        match="shows the number of clients.*none with zero-out, poisson with add-remove, .*fixed with zero-out",
    ):
        step(SampledWithoutReplacementDpEvent(50, 10, GaussianDpEvent(3.0)))
    with pytest.raises(NotPrivate, match="with replacement"):
        step(SampledWithReplacementDpEvent(50, 10, GaussianDpEvent(3.0)), "zero-out")


def test_a_release_that_nobody_knows_is_refused_by_name():
    class Unheard(DpEvent):
        pass

    with pytest.raises(NotPrivate, match="Unheard has no accountant"):
        step(Unheard())
    with pytest.raises(NotPrivate, match="a sampled ZCDpEvent has no accountant"):
        step(PoissonSampledDpEvent(0.5, ZCDpEvent(0.1)))


def test_equal_releases_are_counted_together():
    event = ComposedDpEvent(
        [GaussianDpEvent(1.0), LaplaceDpEvent(1.0), SelfComposedDpEvent(GaussianDpEvent(1.0), 4)]
    )
    assert [count for _, count in steps_of(event, "add-remove")] == [5, 1]


def test_every_sampling_has_a_row_for_every_adjacency():
    assert set(PAIRS) == {(s, a) for s in (*SAMPLINGS, "replacement") for a in ADJACENCIES}


def test_little_noise_on_a_sample_is_noise():
    inner = ComposedDpEvent([GaussianDpEvent(0.5), GaussianDpEvent(0.5)])
    assert step(PoissonSampledDpEvent(0.5, inner)).loss.scale == pytest.approx(0.5 / 2**0.5)


def test_tree_noise_says_nothing_about_a_client_that_is_not_there():
    with pytest.raises(NotPrivate, match="a missing client moves every later step"):
        step(SingleEpochTreeAggregationDpEvent(8.0, 4))


def test_sampled_laplace_noise_under_replace_one_is_refused():
    with pytest.raises(NotPrivate, match="sampled Laplace noise under 'replace-one'"):
        step(PoissonSampledDpEvent(0.5, LaplaceDpEvent(2.0)), "replace-one")


def test_a_search_over_releases_between_any_two_inputs_stays_one():
    assert step(RepeatAndSelectDpEvent(EpsilonDeltaDpEvent(1.0), 10.0, 1.0)).relation == REPLACE


def test_a_response_that_is_noisier_than_possible_is_open():
    assert step(RandomizedResponseDpEvent(1.5, 4)) == OPEN


def test_what_one_accountant_lacks_is_told_in_words():
    assert step(EpsilonDeltaDpEvent(800.0)).reason == "epsilon is 700 or more"
    sampled = step(PoissonSampledDpEvent(0.5, LaplaceDpEvent(2.0)))
    assert sampled.reason == "RDP of sampled Laplace noise is not in the library"
