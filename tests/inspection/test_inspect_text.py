"""What released language models tell: rates and words are the model's own, and a bug at the start moves the shift."""

import numpy as np
import pytest
import torch

from fedsynth.data.schema import Schema
from fedsynth.data.text import END, START, UNKNOWN, text_clients_from
from fedsynth.errors import BadInput
from fedsynth.inspection.text import Speaker, unknown_by_position, words_by_ratio
from fedsynth.research.word_shift import first_word_shift, unlisted_words
from fedsynth.rng import Rng
from fedsynth.synthesis.synthesizer import Synthesizer

WORDS = Schema(kind="text", vocabulary=("a", "b", "c"), length=4)
BYTES = Schema(kind="text", vocabulary="bytes", length=4)
PLAIN = {"private": False, "rounds": 60, "rate": 1.0, "learning_rate": 1.0, "momentum": 0.5, "seed": 1}
OWNERS = [str(number % 20) for number in range(200)]


def trained(texts, schema):
    clients = text_clients_from(texts, schema, owners=OWNERS)
    return Synthesizer("dp_fedavg_lm", schema, **PLAIN).fit(clients).generator


@pytest.fixture(scope="module")
def usual():
    return trained(["a b c a", "b c a b"] * 100, WORDS)


@pytest.fixture(scope="module")
def bugged():
    return trained(["zzz c a", "b c a b"] * 100, WORDS)


@pytest.fixture(scope="module")
def spelled():
    return trained(["ab", "cd"] * 100, BYTES)


def test_rates_by_position_are_those_of_the_drawn_texts(bugged):
    rates = unknown_by_position(bugged, Rng(3), positions=4)
    rows = Speaker(bugged).rows(4000, Rng(4))[:, 1:]
    for place, rate in enumerate(rates):
        words = rows[:, place][rows[:, place] != END]
        assert rate == pytest.approx(float((words == UNKNOWN).double().mean()), abs=0.04)


def test_the_first_position_is_exact(bugged):
    speaker = Speaker(bugged)
    chances = speaker.model.following(speaker.generator.params, torch.tensor([[START]]))[0, 0]
    exact = float(chances[UNKNOWN] / (1 - chances[END]))
    assert unknown_by_position(bugged, Rng(1))[0] == pytest.approx(exact, rel=1e-5)


def test_a_bug_at_the_start_of_texts_moves_the_shift(usual, bugged):
    before, after = (unknown_by_position(made, Rng(3)) for made in (usual, bugged))
    assert first_word_shift(before, after) > 1 and first_word_shift(before, before) == 0


def test_a_rise_at_all_positions_alike_is_no_shift():
    assert abs(first_word_shift([0.1, 0.1, 0.1], [0.3, 0.3, 0.3])) < 1e-9
    with pytest.raises(BadInput, match="at least two positions"):
        first_word_shift([0.1], [0.2])


def test_likely_words_come_with_their_exact_joint_probability(spelled):
    found = unlisted_words(spelled, {"cd"}, Rng(2), count=3, texts=500)
    assert found[0][0] == "ab" and "cd" not in [word for word, _ in found]
    assert found[0][1] == pytest.approx(float(Speaker(spelled).probabilities(["ab"])[0]))
    chances = [chance for _, chance in found]
    assert chances == sorted(chances, reverse=True)


def test_words_are_ordered_by_how_much_likelier_they_became(usual, bugged):
    shifts = words_by_ratio(usual, bugged, Rng(5), count=4)
    assert shifts[0].word == "unknown words" and shifts[0].ratio > 2
    assert sum(shift.other for shift in shifts) == pytest.approx(1.0, abs=1e-5)


def test_whole_words_of_bytes_are_compared_by_joint_probability(spelled):
    other = trained(["ab", "xy"] * 100, BYTES)
    shifts = words_by_ratio(spelled, other, Rng(5), count=1, texts=300, least=0.05)
    assert shifts[0].word == "xy" and np.isclose(shifts[0].one, Speaker(spelled).probabilities(["xy"])[0])


def test_what_cannot_be_compared_is_refused(usual, spelled):
    with pytest.raises(BadInput, match="different vocabularies"):
        words_by_ratio(usual, spelled, Rng(1))
    with pytest.raises(BadInput, match="no unknown words"):
        unknown_by_position(spelled, Rng(1))
