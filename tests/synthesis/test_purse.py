"""A policy that all runs on the same data share."""

from dataclasses import replace

import pytest
from dp_accounting import GaussianDpEvent

from fedsynth.cli.run import schema_of
from fedsynth.data.clients import clients_from
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, BudgetExhausted, NotPrivate
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.purse import check_payer
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


@pytest.mark.parametrize(("column", "unit", "said"), [("owner", "client", None), (None, "record", None),
    ("visit", "client", "the clients of column 'visit'"), (None, "client", "simulated clients")])  # fmt: skip
def test_a_promise_to_others_than_those_who_paid_for_the_schema_is_refused(schema, column, unit, said):
    paid = replace(schema, provenance={"age": "paid"})
    check_payer(schema, column, unit)  # nobody paid for this one
    if said is None:
        check_payer(paid, column, unit)
    else:
        with pytest.raises(NotPrivate, match=f"'owner' paid for the schema.*{said}"):
            check_payer(paid, column, unit)


def test_a_run_checks_who_paid_for_its_schema(schema, frame, policy, tmp_path):
    path = tmp_path / "schema.json"
    Ledger(beside(path)).append(GaussianDpEvent(2.0), what="bounds", run="schema")
    paid = replace(schema, provenance={"age": "paid"}, client="visit")
    with pytest.raises(NotPrivate, match="'visit' paid for the schema"):
        run(paid, frame, policy, tmp_path / "one", path=path)
    paid.save(path)
    with pytest.raises(NotPrivate, match="'visit' paid for the schema"):
        schema_of(Request(epsilon=8, delta=1e-3, schema=str(path), client_column="owner"))
