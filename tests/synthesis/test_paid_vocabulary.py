"""Words that the clients pay for: what many write is shown, what one writes is not, and every run counts the cost."""

import numpy as np
import pytest

from fedsynth.data.text import text_clients_from
from fedsynth.errors import BudgetExhausted
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.paid_vocabulary import pay_for_vocabulary
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer

USERS = 2000
NAMES = np.array([f"u{number}" for number in range(USERS)])


@pytest.fixture(scope="module")
def posts():
    """All write 'the', half of them 'cat', and one a hundred times a word of his own."""
    draw = np.random.default_rng(0)
    texts = ["the cat" if draw.random() < 0.5 else "the dog the" for _ in range(USERS)]
    texts[7] = "xyzzy " * 100
    return texts


def paid(posts, ledger, **changes):
    keys = {"epsilon": 1.0, "delta": 1e-6, "most": 10, "length": 4, "rng": Rng(), **changes}
    return pay_for_vocabulary(posts, NAMES, ledger=ledger, **keys)


def test_words_of_many_are_shown_the_most_held_first_and_a_lone_one_is_not(posts):
    schema = paid(posts, Ledger(None))
    assert schema.vocabulary[0] == "the" and set(schema.vocabulary) == {"the", "cat", "dog"}
    assert schema.provenance == {"vocabulary": "paid"} and schema.inferred() == ()


def test_no_more_words_than_asked_for(posts):
    assert paid(posts, Ledger(None), most=1).vocabulary == ("the",)


def test_the_ledger_holds_the_budget_of_the_words(posts):
    ledger = Ledger(None)
    paid(posts, ledger)
    assert 0.98 < ledger.epsilon(1e-6) <= 1.0
    assert {line.unit for line in ledger.lines()} == {"client"}


def test_words_that_do_not_stand_out_are_an_error_that_says_so(posts):
    with pytest.raises(BudgetExhausted, match="no word stands out of the noise, and the budget is spent"):
        pay_for_vocabulary(
            posts[:3], NAMES[:3], epsilon=0.1, delta=1e-6, most=5, length=None, ledger=Ledger(None), rng=Rng()
        )


def test_a_run_counts_what_its_words_cost(posts, tmp_path):
    path = tmp_path / "schema.json"
    schema = paid(posts, Ledger(beside(path)))
    schema.save(path)
    asked = Request(recipe="dp_fedavg_lm", schema=str(path), epsilon=4.0, delta=1e-5, rounds=1)
    few = text_clients_from(posts[:50], schema, owners=NAMES[:50])
    made = Synthesizer.of(asked, schema).fit(few)
    assert 3.9 < made.privacy.epsilon <= 4.0
    assert any("words that several clients write" in str(line) for line in made.privacy.releases)
    assert any("learned from the clients" in line for line in made.privacy.caveats)
