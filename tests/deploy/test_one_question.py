"""The question before training is answered once for its price, whatever the server calls it."""

from dataclasses import replace

import pytest
import torch
from three_sites import make_sites, terms_for

from fedsynth.deploy.link.messages import Begin, Refuse, Result, Settle, Work, read, write
from fedsynth.deploy.participation import compose
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng

VALUES = {"latent": 2, "hidden": (4,), "rounds": 3, "rate": 0.8, "noise_multiplier": 2.0, "batch_size": 4}


@pytest.fixture
def site(schema, ten, tmp_path):
    """A site that has begun a run with a question about the class balance."""
    terms = terms_for("dpd_fvae", schema, VALUES)
    state = compose(terms, schema).init(Rng(1).at("init"))
    made = make_sites(ten["table"], schema, tmp_path, seed=None)["bern"]
    made.handle(write(Begin("run", 1, terms, 3, 3, {"encoder": state.parts["encoder"]})))
    return made


def question(ids=(3, 4, 5), **changes):
    tensors = {"ids": torch.tensor(ids)}
    return replace(Work("run", 1, "balance", 0, 0, 3, 0, (), tensors), **changes)


def told(site, message):
    return read(site.handle(write(message)))


@pytest.mark.parametrize(
    "changes", [{"part": 1}, {"version": 1}, {"version": 2, "since": 2}, {"version": 1, "part": 7}]
)
def test_asking_again_under_another_name_gets_no_second_answer(changes, site, tmp_path):
    first = told(site, question())
    assert isinstance(first, Result)
    told(site, Settle("run", 1, 0, 0, (first.name,)))
    answer = told(site, question(**changes))
    assert isinstance(answer, Refuse)
    assert "answered already" in answer.reason or "expected since <= version <= 0" in answer.reason
    told(site, Settle("run", 1, 1, 1, ()))
    assert not isinstance(told(site, question(**{"version": 1, **changes})), Result)
    assert sum("class" in line.what for line in Ledger(tmp_path / "bern" / "ledger.jsonl").lines()) == 1


def test_the_same_question_gets_the_same_bytes(site):
    asked = write(question())
    assert site.handle(asked) == site.handle(asked)


def test_a_server_that_was_started_again_pays_again(site, schema, tmp_path):
    first = told(site, question())
    told(site, Settle("run", 1, 0, 0, (first.name,)))
    terms = terms_for("dpd_fvae", schema, VALUES)
    state = compose(terms, schema).init(Rng(1).at("init"))
    told(site, Begin("run", 2, terms, 3, 3, {"encoder": state.parts["encoder"]}))
    second = told(site, question(session=2))
    assert isinstance(second, Result) and second.name != first.name
    assert sum("class" in line.what for line in Ledger(tmp_path / "bern" / "ledger.jsonl").lines()) == 2
