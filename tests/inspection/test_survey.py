import numpy as np
import pytest
from bars import CLIENTS, SCHEMA, bars, brighter_side
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest, norm

from fedsynth.data.clients import RawClients
from fedsynth.inspection.criterion import criterion_named
from fedsynth.inspection.population import Simulated
from fedsynth.inspection.primary import Installed
from fedsynth.inspection.selection import Marks, Selection, ShareBound
from fedsynth.inspection.step import (
    MEETING,
    InspectedRows,
    InspectionQuestion,
    meeting_answers,
    shares_answers,
    slices_answers,
)
from fedsynth.inspection.survey import InspectionSurvey, Spread, weak_classes
from fedsynth.rng import Rng

CORRECT = criterion_named("correct", {})


def clients_of(sizes):
    owner = np.repeat(np.arange(len(sizes)), sizes)
    images = np.zeros((len(owner), 8, 8), dtype=np.uint8)
    labels = np.array(["left", "right"])[np.arange(len(owner)) % 2]
    return RawClients(owner, len(sizes), (), data=(images, labels))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 2**30))
def test_no_clients_answer_is_longer_than_one(sizes, seed):
    raw = clients_of(sizes)
    draw = np.random.default_rng(seed)
    marks = Marks(draw.random(raw.rows) < 0.5, draw.random(len(sizes)) < 0.3)
    both = [(Selection(CORRECT, below=ShareBound(0.5)), marks), (Selection(CORRECT, "example"), marks)]
    for answers in (
        shares_answers(raw, marks),
        slices_answers(raw, SCHEMA, marks),
        meeting_answers(raw, both),
    ):
        assert np.linalg.norm(answers, axis=1).max() <= 1 + 1e-9


def asked_of_nobody(selections, noise, pay):
    """The answer to how many of three clients without rows meet so many selections."""
    question = InspectionQuestion(MEETING, (Selection(CORRECT, "example"),) * selections, 0)
    people = Simulated(InspectedRows(clients_of([0, 0, 0]), SCHEMA, SCHEMA, Installed(brighter_side, SCHEMA)))
    return people.ask(question, question.query(SCHEMA, 3, noise), Rng(1), pay)


def test_an_answer_carries_noise_of_the_stated_scale():
    noisy = asked_of_nobody(12_000, 2.0, lambda *_: None)
    assert kstest(noisy, norm(scale=2.0).cdf).pvalue > 1e-3
    assert kstest(noisy, norm(scale=1.8).cdf).pvalue < 1e-3


def test_it_is_paid_for_before_it_is_known():
    paid = []
    asked_of_nobody(1, 1.0, lambda when, charges, ids: paid.extend(charges))
    assert [(charge.release.what, charge.release.unit) for charge in paid] == [
        ("clients that meet each selection", "client")
    ]


def test_failures_are_counted_in_a_bin_of_their_own():
    raw = bars(0.0)
    failed = np.arange(CLIENTS) < 12
    answer = shares_answers(raw, Marks(np.ones(raw.rows, dtype=bool), failed)).sum(0)
    assert Spread.of(CORRECT, answer, 0.0).failed == 12
    assert answer[:-1].sum() == CLIENTS - 12


def test_percentiles_become_the_bounds_that_the_answers_show():
    counts = [0.0] * 20
    counts[2], counts[17] = 30.0, 10.0
    spread = Spread("", tuple(counts), 0.0, 0.0)
    settled = spread.settle(Selection(CORRECT, below=ShareBound(0.25, True), above=ShareBound(0.1, True)))
    assert 0.10 <= settled.below.value <= 0.15 and not settled.below.percentile
    assert settled.above.value < settled.below.value


def test_weak_classes_are_those_below_the_bound_and_rare_ones_are_left_out():
    right, wrong = [30.0, 5.0, 0.1], [2.0, 30.0, 0.2]
    assert weak_classes(
        criterion_named("weak_slices", {"accuracy_below": 0.5}), np.array(right + wrong), 1.0
    ).classes == (1,)


@pytest.fixture(scope="module")
def conducted():
    selections = {
        "bad": Selection(CORRECT, below=ShareBound(0.25, True)),
        "good": Selection(CORRECT, above=ShareBound(0.75, True)),
    }
    survey = InspectionSurvey.of(selections)
    people = Simulated(InspectedRows(bars(0.5), SCHEMA, SCHEMA, Installed(brighter_side, SCHEMA)))
    lines = []
    settled, spreads = survey.conduct(
        people,
        SCHEMA,
        CLIENTS,
        0.5,
        Rng(3),
        lambda when, charges, ids: lines.extend(c.release.what for c in charges),
    )
    return survey, settled, spreads, lines


def test_every_answer_has_a_line_and_none_is_asked_twice(conducted):
    survey, _, spreads, lines = conducted
    assert lines == ["clients by their share of rows classified right", "clients that meet each selection"]
    assert len(spreads) == 1 and len(survey.events(0.5)) == survey.size == 2


def test_the_number_of_those_who_meet_a_selection_is_known_up_to_noise(conducted):
    _, settled, _, _ = conducted
    for name in ("bad", "good"):
        assert abs(settled[name].share.told - 0.5) < 0.1
        assert settled[name].share.told != 0.5 and settled[name].share.error > 0
