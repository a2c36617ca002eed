import numpy as np
import pytest

from fedsynth.assess.report.inspection import inspection_page
from fedsynth.data.clients import RawClients
from fedsynth.data.schema import Schema
from fedsynth.inspection.inspection import inspect
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.selection import Selection
from fedsynth.inspection.verdict import Simulation
from fedsynth.inspection.words import text_differences
from fedsynth.synthesis.request import Request

WORDS = ("see", "the", "red", "cat", "run")


@pytest.mark.recipe
def test_texts_with_unknown_words_are_shown_beside_the_others():
    schema = Schema(kind="text", vocabulary=WORDS, length=5)
    draw = np.random.default_rng(0)
    texts = tuple(" ".join(draw.choice((*WORDS, "zebra"), 4)) for _ in range(90))
    raw = RawClients(np.repeat(np.arange(30), 3), 30, (), data=texts)
    chosen = {
        "unknown": {"by": "example", "criterion": "out_of_vocabulary"},
        "all": {"criterion": "everyone"},
    }
    request = Request(recipe="dp_fedavg_lm", epsilon=20.0, delta=1e-2, rounds=1, seed=1)
    asked = Inspection(
        request,
        schema,
        {n: Selection.parse(k) for n, k in chosen.items()},
        None,
        Simulation(models=0),
        shown=40,
    )
    page = inspection_page(inspect(asked, raw))
    assert "Unknown words by position" in page and "Words that unknown favors" in page
    assert "a word out of the vocabulary" in page


def test_differences_of_texts_are_none_for_the_same_and_large_for_others():
    same = ["see the cat", "UNK run"]
    assert set(text_differences(same, same).values()) == {0.0}
    apart = text_differences(["UNK cat", "UNK run"], ["the cat", "the run fast"])
    assert apart["unknown first words"] == 1.0 and apart["unknown words"] == 0.5 and 0 < apart["length"] < 1
