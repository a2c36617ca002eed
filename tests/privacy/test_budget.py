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


def test_a_message_of_ones_own_is_charged_between_any_two_messages():
    """It shows that its sender is there: under add-remove there is nothing to hide, and S would be half the truth."""
    local = {"what": "noisy client update", "trust": "local"}
    noise = GaussianDpEvent(account.calibrate(GaussianDpEvent, 5.5, 1e-5, adjacency="replace-one"))
    ledger = Ledger(None)
    with pytest.raises(BudgetExhausted, match=r"epsilon 5\.499"):
        Budget(epsilon=3.0, delta=1e-5).check(ledger, noise, **local)
    Budget(epsilon=3.0, delta=1e-5).check(
        ledger, noise, what="noisy sum"
    )  # the server's noise hides who is in it
    Budget(epsilon=3.0, delta=1e-5, unit="record").check(ledger, noise, unit="record", **local)
    ledger.append(noise, **local)
    assert ledger.epsilon(1e-5) == ledger.epsilon(1e-5, adjacency="replace-one")
    assert ledger.epsilon(1e-5, adjacency="zero-out") < 3.0


def test_clients_of_equal_noise_and_different_trust_are_told_apart():
    ledger = Ledger(None)
    ledger.append(GaussianDpEvent(4.0), what="sum", holder="0", trust="central")
    one = ledger.epsilon(1e-5)
    ledger.append(GaussianDpEvent(4.0), what="message", holder="1", trust="local")
    assert ledger.epsilon(1e-5) > 1.5 * one


def test_an_approved_run_is_let_through_for_each_client_that_pays_for_itself(monkeypatch):
    ledger, budget = Ledger(None), Budget(epsilon=8.0, delta=1e-5)
    budget.check(ledger, GaussianDpEvent(4.0), 2, holder="client", trust="local")
    monkeypatch.setattr(Ledger, "answer", None)  # no accountant is asked again
    for number in range(2):
        for name in "abc":
            budget.spend(
                ledger, GaussianDpEvent(4.0 + number), what=f"round {number}", holder=name, trust="local"
            )
    monkeypatch.undo()
    with pytest.raises(BudgetExhausted):
        budget.spend(ledger, GaussianDpEvent(0.5), what="round 3", holder="a", trust="local")


def test_less_noise_than_was_approved_is_looked_at_again():
    ledger, budget = Ledger(None), Budget(epsilon=8.0, delta=1e-5)
    budget.check(ledger, GaussianDpEvent(1.0), 2)
    with pytest.raises(BudgetExhausted):
        budget.spend(ledger, GaussianDpEvent(0.4), what="round 1")
