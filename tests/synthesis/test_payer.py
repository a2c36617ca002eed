"""A policy that all runs on the same data share."""

from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent

from fedsynth.data.clients import clients_from
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, BudgetExhausted, NotPrivate
from fedsynth.privacy import account
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import Charge, Release, When
from fedsynth.recipes.budget import Target
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.inputs import schema_of
from fedsynth.synthesis.payer import Payer
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer
from samples import ROWS, make_frame


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('[budget]\nepsilon = 9.0\ndelta = 1e-3\nunit = "client"\n')
    return path


def run(schema, frame, policy, out, epsilon=8, path=None, **more):
    known = None if path is None else str(path)
    settings = {"recipe": "dpd_fvae", "epsilon": epsilon, "delta": 1e-3, "rounds": 2, **more}
    request = Request(schema=known, budget=policy and str(policy), arguments=ROWS, **settings)
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
    assert [line.what for line in ours.releases()] == [line.what for line in theirs.lines()]
    assert len(ours.releases()) == 3


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
    with pytest.raises(BadInput, match=r"none\.toml: no such file"):
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


def test_a_run_checks_who_paid_for_its_schema(schema, frame, policy, tmp_path):
    path = tmp_path / "schema.json"
    Ledger(beside(path)).append(GaussianDpEvent(2.0), what="bounds", run="schema")
    paid = replace(schema, provenance={"age": "paid"}, client="visit")
    with pytest.raises(NotPrivate, match="'visit' paid for the schema"):
        run(paid, frame, policy, tmp_path / "one", path=path)
    paid.save(path)
    with pytest.raises(NotPrivate, match="'visit' paid for the schema"):
        schema_of(Request(epsilon=8, delta=1e-3, schema=str(path), client_column="owner"))


def test_a_policy_refuses_the_run_whose_own_statement_says_more(schema, frame, tmp_path):
    """A local run costs a policy what its statement says, also where the policy's neighbors are add-remove."""
    stated = run(schema, frame, None, tmp_path / "free", epsilon=5.5, trust="local").privacy
    assert stated.adjacency == "replace-one" and 5.4 < stated.epsilon <= 5.5
    path = tmp_path / "strict.toml"
    path.write_text("[budget]\nepsilon = 3.0\ndelta = 1e-3\n")
    with pytest.raises(BudgetExhausted, match=rf"epsilon {stated.epsilon:.4g}.*over the budget of 3"):
        run(schema, frame, path, tmp_path / "one", epsilon=5.5, trust="local")
    assert not (tmp_path / "one").exists() and not Ledger(beside(path)).lines()


def test_a_run_releases_nothing_once_its_own_epsilon_is_reached_whoever_continues_it(tmp_path):
    """Two processes, each sure of the budget it began with: what counts is the ledger on disk."""
    event, target = GaussianDpEvent(2.0), Target(4.0, 1e-5)
    nobody = np.empty(0, dtype=np.int64)
    charge = Charge(Release("noisy sum", "client", "central", event), event)
    payers = [
        Payer(Ledger(tmp_path / "ledger.jsonl"), "run").capped(target, "client", "add-remove")
        for _ in range(2)
    ]
    for payer in payers:
        payer.cap.check(
            payer.ledger, event, account.max_rounds(event, 4.0, 1e-5)
        )  # each was let in for all of it
    with pytest.raises(BudgetExhausted, match="over the budget of 4"):
        for number in range(100):
            payers[number % 2].pay(When(number), [charge], nobody)
    lines = Ledger(tmp_path / "ledger.jsonl").lines()
    assert len(lines) == account.max_rounds(event, 4.0, 1e-5)


def test_a_policy_is_told_before_the_first_round_what_a_client_with_most_turns_pays(schema, frame, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("[budget]\nepsilon = 5.5\ndelta = 1e-3\n")
    stated = run(schema, frame, path, tmp_path / "one", epsilon=5.5, trust="local").privacy
    spent = Ledger(beside(path)).epsilon(1e-3)
    assert spent == pytest.approx(stated.epsilon) and spent <= 5.5
