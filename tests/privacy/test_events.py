"""Events as data: repeated, composed, flattened, and written so that they come back equal."""

import math

import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    SingleEpochTreeAggregationDpEvent,
)

from fedsynth.errors import BadInput
from fedsynth.privacy.events import (
    DiscreteGaussianDpEvent,
    ReplaceOneDpEvent,
    compose,
    event_from_json,
    event_to_json,
    flatten,
    noise_apart,
    repeat,
    replaced,
)

ONE = GaussianDpEvent(1.0)


@pytest.mark.parametrize("steps", [8.0, 10.0, 1000.0])
def test_three_steps_of_a_discrete_gaussian_are_taken_off_its_variance(steps):
    continuous = DiscreteGaussianDpEvent(2.0, steps).continuous()
    assert (continuous.noise_multiplier * steps / 2.0) ** 2 == pytest.approx(steps**2 - 9)


@pytest.mark.parametrize("steps", [7.999, 0.0, math.nan])
def test_a_grid_too_coarse_is_refused(steps):
    with pytest.raises(BadInput, match="use a finer grid"):
        DiscreteGaussianDpEvent(2.0, steps).continuous()


def test_a_release_happens_a_whole_number_of_times():
    assert repeat(ONE, 0) == NoOpDpEvent() and repeat(ONE, 1) is ONE
    assert repeat(ONE, 3) == SelfComposedDpEvent(ONE, 3)
    assert isinstance(repeat(ONE, 3.0).count, int)
    for count in (-1, 1.5):
        with pytest.raises(BadInput, match="whole number"):
            repeat(ONE, count)


def test_events_that_are_nothing_are_left_out_of_a_composition():
    assert compose([NoOpDpEvent(), NoOpDpEvent()]) == NoOpDpEvent()
    assert compose([NoOpDpEvent(), ONE]) is ONE
    assert compose([ONE, NoOpDpEvent(), ONE]) == ComposedDpEvent([ONE, ONE])


def test_every_release_is_charged_under_replace_one_as_often_as_it_happens():
    event = ComposedDpEvent([SelfComposedDpEvent(ONE, 4), LaplaceDpEvent(2.0), ONE])
    one, other = ReplaceOneDpEvent(ONE), ReplaceOneDpEvent(LaplaceDpEvent(2.0))
    assert replaced(event) == ComposedDpEvent([SelfComposedDpEvent(one, 5), other])
    assert replaced(ONE) == one


def test_releases_of_one_form_are_told_apart_by_their_noise_alone():
    sampled = [
        PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
        for rate, noise in ((0.2, 1.5), (0.2, 3.0), (0.3, 3.0))
    ]
    forms, noises = zip(*map(noise_apart, sampled), strict=True)
    assert forms[0] == forms[1] != forms[2] and noises == (1.5, 3.0, 3.0)
    assert noise_apart(ReplaceOneDpEvent(ONE))[1] == 1.0
    plain = [noise_apart(one)[0] for one in (ONE, LaplaceDpEvent(1.0), ReplaceOneDpEvent(ONE), sampled[0])]
    assert len({*plain}) == 4
    tree = SingleEpochTreeAggregationDpEvent(1.0, 3)
    assert noise_apart(tree) == (repr(tree), 0.0)


def test_nested_counts_multiply_and_equal_releases_add():
    inner = ComposedDpEvent([ONE, SelfComposedDpEvent(LaplaceDpEvent(2.0), 3), NoOpDpEvent()])
    event = ComposedDpEvent([SelfComposedDpEvent(inner, 4), ONE])
    assert flatten(event) == [(ONE, 5), (LaplaceDpEvent(2.0), 12)]


def test_releases_that_happened_no_times_are_not_listed():
    assert flatten(SelfComposedDpEvent(ONE, 0)) == [] and flatten(NoOpDpEvent()) == []


@pytest.mark.parametrize("count", [-1, 1.5])
def test_a_count_that_is_none_is_refused_when_flattened(count):
    with pytest.raises(BadInput, match="whole number"):
        flatten(SelfComposedDpEvent(ONE, count))


def test_numbers_are_written_as_plain_ones():
    tree = event_to_json(SingleEpochTreeAggregationDpEvent(np.float64(2.0), [np.int64(3), 4]))
    assert tree == {
        "type": "SingleEpochTreeAggregationDpEvent",
        "noise_multiplier": 2.0,
        "step_counts": [3, 4],
    }
    assert type(tree["noise_multiplier"]) is float and type(tree["step_counts"][0]) is int


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_what_json_cannot_say_is_written_as_a_word(value):
    written = event_to_json(GaussianDpEvent(value))
    assert written["noise_multiplier"] == repr(value)
    assert event_from_json(written) == GaussianDpEvent(value)


def test_no_number_is_read_as_no_number():
    assert math.isnan(event_from_json(event_to_json(GaussianDpEvent(math.nan))).noise_multiplier)


def test_an_event_of_the_same_name_is_not_the_same():
    class GaussianDpEvent(DpEvent):
        pass

    with pytest.raises(BadInput, match="cannot be written"):
        event_to_json(GaussianDpEvent())


def test_an_event_without_a_type_or_with_other_fields_is_refused():
    with pytest.raises(BadInput, match="event type 'None'"):
        event_from_json({"noise_multiplier": 1.0})
    with pytest.raises(BadInput, match="expected no fields"):
        event_from_json({"type": "NoOpDpEvent", "count": 1})
    with pytest.raises(BadInput, match=r"has fields \['count'\]; expected event, count"):
        event_from_json({"type": "SelfComposedDpEvent", "count": 1})


def test_a_single_release_is_one():
    assert flatten(ONE) == [(ONE, 1)]


def test_events_within_events_come_back_equal_and_counts_stay_whole():
    event = ComposedDpEvent([SelfComposedDpEvent(ONE, 3), LaplaceDpEvent(2.0)])
    back = event_from_json(event_to_json(event))
    assert back == event and type(back.events[0].count) is int
