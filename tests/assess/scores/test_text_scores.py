import json
import math

import pytest
import torch

from fedsynth.assess.scores.reader import LanguageReader, unigrams
from fedsynth.assess.scores.text_fidelity import TrigramModel, duplicates, ngram_overlap, vocabulary_overlap
from fedsynth.assess.suite import evaluate
from fedsynth.data.schema import Schema
from fedsynth.data.text import text_clients_from
from fedsynth.errors import BadInput
from fedsynth.rng import Rng
from fedsynth.synthesis.synthesizer import Synthesizer

SCHEMA = Schema(kind="text", vocabulary="bytes")
SUBJECTS, VERBS, THINGS = (
    ["the cat", "a dog", "my friend"],
    ["sees", "eats", "likes"],
    ["fish", "bread", "rain"],
)


def texts(key: str, rows: int = 150) -> list[str]:
    random = Rng(4).at(key).numpy()
    return [
        " ".join(
            [
                *(str(random.choice(part)) for part in (SUBJECTS, VERBS, THINGS)),
                "and",
                *(str(random.choice(part)) for part in (THINGS, VERBS)),
                "me",
            ]
        )
        for _ in range(rows)
    ]


def scrambled(of: list[str]) -> list[str]:
    random = Rng(9).numpy()
    return [" ".join(random.permutation(text.split())) for text in of]


@pytest.fixture(scope="module")
def good():
    return evaluate(texts("real"), texts("fresh"), SCHEMA, test=texts("test"))


def test_every_score_has_a_value(good):
    assert [score.name for score in good.scores if score.failed] == []
    details = json.loads(json.dumps(good.details, allow_nan=False))
    assert len(details["texts"]["unknown_by_position"]["synthetic"]) <= 20
    assert details["texts"]["synthetic"][0] == texts("fresh")[0]


def test_scrambled_words_keep_their_shares_and_lose_their_order(good):
    bad = evaluate(texts("real"), scrambled(texts("fresh")), SCHEMA, test=texts("test"))
    assert bad["1-gram overlap"].value == pytest.approx(good["1-gram overlap"].value)
    assert bad["3-gram overlap"].value < 0.5 < good["3-gram overlap"].value
    assert bad["perplexity of synthetic texts"].value > 2 * good["perplexity of synthetic texts"].value
    assert bad["next word: accuracy"].value < good["next word: accuracy"].value


def test_identical_texts_are_all_copies():
    found = evaluate(texts("real"), texts("real"), SCHEMA, test=texts("test"))
    assert found["copied texts"].value == 1.0 and found["vocabulary overlap"].value == 1.0
    assert found["2-gram overlap"].value == pytest.approx(1.0) and found["unknown words"].value == 0.0


def test_disjoint_texts_have_nothing_in_common():
    found = evaluate(texts("real"), ["zebra xylophone quartz " * 3] * 5, SCHEMA, test=texts("test"))
    assert found["1-gram overlap"].value == found["vocabulary overlap"].value == 0.0
    assert found["unknown words"].value == 1.0 and found["copied texts"].value == 0.0


def test_a_text_with_one_word_changed_is_nearly_a_copy():
    known = [
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    ]
    same, near = duplicates(
        known, [known[0].upper(), known[0] + " seventeen", "quite another text of six words"]
    )
    assert same == [0] and [(row, place) for row, place, _ in near] == [(1, 0)]


def test_chances_add_up_to_one():
    model = TrigramModel.fit(["a b a", "b a c"])
    for before in (("a", "b"), ("<start>", "<start>"), ("never", "seen")):
        assert sum(model.chance(before, word) for word in ("a", "b", "c", "<unknown>")) == pytest.approx(1.0)


def test_perplexity_of_what_is_certain_is_near_one_and_of_dice_near_six():
    assert TrigramModel.fit(["a b c"] * 1000).perplexity(["a b c"]) < 1.01
    random = Rng(1).numpy()
    dice = [" ".join(str(side) for side in random.integers(1, 7, 50)) for _ in range(400)]
    assert TrigramModel.fit(dice[:300]).perplexity(dice[300:]) == pytest.approx(6, rel=0.05)


def test_next_word_of_a_cycle_is_always_known():
    assert TrigramModel.fit(["a b c d"] * 3).accuracy(["a b c d"]) == 1.0


def test_overlaps_are_those_of_the_formula():
    assert ngram_overlap(["a a b"], ["a b b"], 1) == pytest.approx(2 / 3)
    assert vocabulary_overlap(["a a b"], ["b c"]) == pytest.approx(1 / 3)
    assert math.isclose(ngram_overlap(["x y"], ["x y"], 2), 1.0)


def test_texts_without_words_fail_with_the_reason():
    found = evaluate(texts("real"), ["", "  "], SCHEMA, test=texts("test"))
    assert all("the synthetic texts have no words" in score.failed for score in found.scores)
    with pytest.raises(BadInput, match="list of texts"):
        evaluate(texts("real"), "one text", SCHEMA)


@pytest.fixture(scope="module")
def reader():
    vocabulary = tuple(dict.fromkeys(" ".join(texts("real")).split()))
    schema = Schema(kind="text", vocabulary=vocabulary, length=9)
    clients = text_clients_from(texts("real"), schema, owners=[str(row % 15) for row in range(150)])
    settings = {"private": False, "rounds": 120, "rate": 1.0, "learning_rate": 1.0, "momentum": 0.5}
    return LanguageReader(Synthesizer("dp_fedavg_lm", schema, seed=1, **settings).fit(clients).generator)


def test_a_model_that_learned_predicts_better_than_shares_of_words(reader):
    found, beside = reader.predict(texts("test")), reader.beside(texts("real"), texts("test"))
    assert found.perplexity < 0.5 * beside.perplexity and found.accuracy > 2 * beside.accuracy


def test_perplexity_is_the_joint_probability_a_symbol(reader):
    text = texts("test")[0]
    symbols = len(text.split()) + 1  # and the end
    assert reader.predict([text]).perplexity == pytest.approx(
        math.exp(reader.surprise([text])[0] / symbols), rel=1e-4
    )


def test_the_run_that_wrote_the_texts_is_scored_itself(reader):
    found = evaluate(texts("real"), texts("fresh"), SCHEMA, test=texts("test"), reader=reader)
    score = found["perplexity of unseen texts under the generator"]
    assert score.value == pytest.approx(reader.predict(texts("test")).perplexity)
    assert score.detail["unigrams"] > score.value and found["next word: accuracy of the generator"].value > 0


def test_unigrams_are_counted_up_to_the_end():
    known = torch.tensor([[1, 3, 0, 0], [1, 3, 4, 0]])
    found = unigrams(known, torch.tensor([[1, 3, 0, 0]]), 5)
    shares = {0: 2.5 / 7.5, 3: 2.5 / 7.5}
    assert found.perplexity == pytest.approx(math.exp(-(math.log(shares[0]) + math.log(shares[3])) / 2))
