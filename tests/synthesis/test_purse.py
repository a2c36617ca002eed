"""A policy that all runs on the same data share."""

from dataclasses import replace

import pytest
from dp_accounting import GaussianDpEvent

from fedsynth.data.clients import clients_from
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, BudgetExhausted
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer
from samples import SMALL, make_frame


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('[budget]\nepsilon = 9.0\ndelta = 1e-3\nunit = "client"\n')
    return path


def run(schema, frame, policy, out, epsilon=8, path=None):
    known = None if path is None else str(path)
    request = Request(
        epsilon=epsilon, delta=1e-3, rounds=2, schema=known, budget=str(policy), arguments=SMALL
    )
    return Synthesizer.of(request, schema).fit(clients_from(frame, client_column="owner"), folder=out)


@pytest.fixture
def schema():
    from samples import TABLE

    return Schema.from_dict(TABLE)


@pytest.fixture
def frame():
    return make_frame([number // 4 for number in range(400)])


def test_both_ledgers_hold_every_release(schema, frame, policy, tmp_path):
    run(schema, frame, policy, tmp_path / "one")
    ours, theirs = Ledger(tmp_path / "one" / "ledger.jsonl"), Ledger(beside(policy))
    assert [line.what for line in ours.lines()] == [line.what for line in theirs.lines()]
    assert len(ours.lines()) == 3


def test_a_second_run_that_does_not_fit_is_refused_before_anything_is_written(
    schema, frame, policy, tmp_path
):
    run(schema, frame, policy, tmp_path / "one")
    before = len(Ledger(beside(policy)).lines())
    with pytest.raises(BudgetExhausted, match="over the budget of 9"):
        run(schema, frame, policy, tmp_path / "two")
    assert not (tmp_path / "two").exists() and len(Ledger(beside(policy)).lines()) == before


def test_a_second_run_that_fits_goes_on(schema, frame, policy, tmp_path):
    run(schema, frame, policy, tmp_path / "one", epsilon=4)
    run(schema, frame, policy, tmp_path / "two", epsilon=4)
    assert Ledger(beside(policy)).epsilon(1e-3) <= 9


def test_a_policy_that_does_not_exist_is_refused(schema, frame, tmp_path):
    with pytest.raises(BadInput, match=r"none\.toml does not exist"):
        run(schema, frame, tmp_path / "none.toml", tmp_path / "one")


def test_what_the_schema_cost_counts_in_the_policy_once(schema, frame, policy, tmp_path):
    path = tmp_path / "schema.json"
    Ledger(beside(path)).append(GaussianDpEvent(2.0), what="bounds", run="schema")
    paid = replace(schema, provenance={"age": "paid"})
    for name in ("one", "two"):
        run(paid, frame, policy, tmp_path / name, epsilon=4, path=path)
    told = [line.what for line in Ledger(beside(policy)).lines()]
    assert told[0] == "bounds" and told.count("bounds") == 1
    assert told.count("class balance") == 2
