"""A budget stops a release before it leaves, over all runs on one ledger."""

import json
import multiprocessing
import time

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from fedsynth.errors import BadInput, BudgetExhausted
from fedsynth.privacy import account
from fedsynth.privacy.account import EpsilonDeltaDpEvent
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.ledger import Entry, Ledger

ROUND = PoissonSampledDpEvent(0.2, GaussianDpEvent(1.0))


def test_the_budget_is_refused_before_the_release_and_not_after():
    ledger, budget = Ledger(None), Budget(epsilon=1.0, delta=0.0)
    for _ in range(3):
        budget.spend(ledger, EpsilonDeltaDpEvent(0.3), what="vote")
    with pytest.raises(BudgetExhausted, match=r"epsilon 1\.2 .* over the budget of 1; nothing was released"):
        budget.spend(ledger, EpsilonDeltaDpEvent(0.3), what="vote")
    assert len(ledger.lines()) == 3
    assert budget.left(ledger) == pytest.approx(0.1)


def test_exactly_the_budget_is_allowed():
    Budget(epsilon=0.3, delta=0.0).check(Ledger(None), EpsilonDeltaDpEvent(0.1), 3)


def test_several_runs_share_one_budget(tmp_path):
    budget, most = Budget(epsilon=4.0, delta=1e-5), account.max_rounds(ROUND, 4.0, 1e-5)
    first = Ledger(tmp_path / "ledger.jsonl")
    budget.spend(first, ROUND, what="rounds", count=most - 1, run="a")
    second = Ledger(tmp_path / "ledger.jsonl")
    budget.spend(second, ROUND, what="round", run="b")
    with pytest.raises(BudgetExhausted):
        budget.spend(second, ROUND, what="round", run="b")


def test_two_processes_cannot_both_take_the_last_of_it(tmp_path):
    path = tmp_path / "ledger.jsonl"
    context = multiprocessing.get_context("fork")
    takers = [context.Process(target=_take, args=(path,)) for _ in range(4)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert len(Ledger(path).lines()) == 10


def _take(path):
    ledger, budget = Ledger(path), Budget(epsilon=1.0, delta=0.0)
    try:
        while True:
            budget.spend(ledger, EpsilonDeltaDpEvent(0.1), what="vote")
    except BudgetExhausted:
        pass


def test_rounds_of_an_approved_run_are_let_through_without_a_new_search():
    ledger, budget = Ledger(None), Budget(epsilon=8.0, delta=1e-5)
    budget.check(ledger, ROUND, 30)
    started = time.process_time()
    for number in range(30):
        budget.spend(ledger, ROUND, what=f"round {number + 1}")
    assert time.process_time() - started < 1
    with pytest.raises(BudgetExhausted):
        budget.spend(ledger, ROUND, what="round 31")


def test_local_clients_are_checked_one_by_one():
    ledger, budget = Ledger(None), Budget(epsilon=1.0, delta=0.0)
    votes = [Entry(EpsilonDeltaDpEvent(0.6), "vote", holder=name, trust="local") for name in "abc"]
    budget.spend_all(ledger, votes)
    with pytest.raises(BudgetExhausted):
        budget.spend_all(ledger, votes[:1])
    assert len(ledger.lines()) == 3


def test_files(tmp_path):
    toml = tmp_path / "site.toml"
    toml.write_text('[budget]\nepsilon = 3.0\ndelta = 1e-6\nunit = "record"\n[policy]\nrecipes = ["fvae"]\n')
    assert Budget.load(toml) == Budget(3.0, 1e-6, "record")
    several = tmp_path / "several.json"
    several.write_text(json.dumps({"budget": {"adult": {"epsilon": 1, "delta": 1e-6}}}))
    assert Budget.load(several, "adult").epsilon == 1
    with pytest.raises(BadInput, match="did you mean 'adult'"):
        Budget.load(several, "adlut")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epsilon = 1", "'delta' is missing"),
        ("epsilon = 1\ndelta = 1e-5\nepsilom = 2", "did you mean 'epsilon'"),
        ("epsilon = 'one'\ndelta = 1e-5", "is not a number"),
        ("epsilon = -1\ndelta = 1e-5", "above 0"),
        ("epsilon = 1\ndelta = 2", r"\[0, 1\)"),
        ("epsilon = 1\ndelta = 1e-5\nunit = 'person'", "known: client, record"),
        ("epsilon 1", "cannot be read"),
    ],
)
def test_a_bad_file_is_explained(tmp_path, text, message):
    path = tmp_path / "budget.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        Budget.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        Budget.load(tmp_path / "none.toml")
