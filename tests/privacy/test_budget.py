"""A budget stops a release before it leaves, over all runs on one ledger."""

import json
import multiprocessing
import random
import time

import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent

from fedsynth.errors import BadInput, BudgetExhausted
from fedsynth.privacy import account
from fedsynth.privacy.account import EpsilonDeltaDpEvent
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.ledger import Entry, Ledger


def spend(budget, ledger, event, what, **terms):
    return budget.spend_all(ledger, [Entry(event, what, **terms)])[0]


ROUND = PoissonSampledDpEvent(0.2, GaussianDpEvent(1.0))


def test_the_budget_is_refused_before_the_release_and_not_after():
    ledger, budget = Ledger(None), Budget(epsilon=1.0, delta=0.0)
    for _ in range(3):
        spend(budget, ledger, EpsilonDeltaDpEvent(0.3), what="vote")
    with pytest.raises(BudgetExhausted, match=r"epsilon 1\.2 .* over the budget of 1; nothing was released"):
        spend(budget, ledger, EpsilonDeltaDpEvent(0.3), what="vote")
    assert len(ledger.lines()) == 3
    assert budget.left(ledger) == pytest.approx(0.1)


def test_a_budget_for_another_unit_is_named_and_not_called_too_small():
    with pytest.raises(
        BudgetExhausted, match="protects each record, and the budget is for each client"
    ) as refused:
        Budget(epsilon=3.0, delta=1e-5).check(Ledger(None), GaussianDpEvent(5.0), unit="record")
    assert "noise" not in str(refused.value)


def test_exactly_the_budget_is_allowed():
    Budget(epsilon=0.3, delta=0.0).check(Ledger(None), EpsilonDeltaDpEvent(0.1), 3)


def test_several_runs_share_one_budget(tmp_path):
    budget, most = Budget(epsilon=4.0, delta=1e-5), account.max_rounds(ROUND, 4.0, 1e-5)
    first = Ledger(tmp_path / "ledger.jsonl")
    spend(budget, first, ROUND, what="rounds", count=most - 1, run="a")
    second = Ledger(tmp_path / "ledger.jsonl")
    spend(budget, second, ROUND, what="round", run="b")
    with pytest.raises(BudgetExhausted):
        spend(budget, second, ROUND, what="round", run="b")


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
            spend(budget, ledger, EpsilonDeltaDpEvent(0.1), what="vote")
    except BudgetExhausted:
        pass


def test_rounds_of_an_approved_run_are_let_through_without_a_new_search():
    ledger, budget = Ledger(None), Budget(epsilon=8.0, delta=1e-5)
    budget.check(ledger, ROUND, 30)
    started = time.process_time()
    for number in range(30):
        spend(budget, ledger, ROUND, what=f"round {number + 1}")
    assert time.process_time() - started < 30
    with pytest.raises(BudgetExhausted):
        spend(budget, ledger, ROUND, what="round 31")


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
    with pytest.raises(BadInput, match=r"several\.json has no budget .*did you mean 'adult'"):
        Budget.load(several, "adlut")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epsilon = 1", r"delta: missing"),
        ("delta = 1e-5", "epsilon: missing"),
        ("epsilon = true\ndelta = 1e-5", "epsilon=True: expected a number"),
        ("epsilon = 1\ndelta = '1e-5'", "delta='1e-5': expected a number"),
        ("epsilon = 1\ndelta = 1", r"\[0, 1\)"),
        ("epsilon = 1\ndelta = 1e-5\nadjacency = 'replace-two'", "did you mean 'replace-one'"),
        ("epsilon = 1\ndelta = 1e-5\naccountant = 'plt'", "did you mean 'pld'"),
        ("epsilon = 1\ndelta = 1e-5\nepsilom = 2", "did you mean 'epsilon'"),
        ("epsilon = 'one'\ndelta = 1e-5", "epsilon='one': expected a number"),
        ("epsilon = -1\ndelta = 1e-5", "above 0"),
        ("epsilon = 1\ndelta = 2", r"\[0, 1\)"),
        ("epsilon = 1\ndelta = 1e-5\nunit = 'person'", "known: client, record"),
        ("epsilon 1", "not valid TOML"),
    ],
)
def test_a_bad_file_is_explained(tmp_path, text, message):
    path = tmp_path / "budget.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        Budget.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
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
            spend(
                budget,
                ledger,
                GaussianDpEvent(4.0 + number),
                what=f"round {number}",
                holder=name,
                trust="local",
            )
    monkeypatch.undo()
    with pytest.raises(BudgetExhausted):
        spend(budget, ledger, GaussianDpEvent(0.5), what="round 3", holder="a", trust="local")


def test_less_noise_than_was_approved_is_looked_at_again():
    ledger, budget = Ledger(None), Budget(epsilon=8.0, delta=1e-5)
    budget.check(ledger, GaussianDpEvent(1.0), 2)
    with pytest.raises(BudgetExhausted):
        spend(budget, ledger, GaussianDpEvent(0.4), what="round 1")


def test_what_was_allowed_before_never_lets_more_through_than_a_fresh_look():
    """The shortcut for rounds of an approved run, against a budget that has no memory, over random releases."""
    terms = {"epsilon": 3.0, "delta": 1e-5, "accountant": "rdp"}
    for seed in range(6):
        chance, ledger, budget = random.Random(seed), Ledger(None), Budget(**terms)
        for _ in range(12):
            entries = [_random_entry(chance) for _ in range(chance.choice((1, 1, 2)))]
            verdicts = [_allowed(policy, ledger, entries) for policy in (budget, Budget(**terms))]
            assert verdicts[0] == verdicts[1], (seed, entries)
            if verdicts[0] and chance.random() < 0.7:  # some that were looked at are never made
                budget.spend_all(ledger, entries)


def _random_entry(chance):
    noise = chance.choice((4.0, 6.0, 9.0))
    event = chance.choice((GaussianDpEvent(noise), LaplaceDpEvent(noise)))
    holder = chance.choice(("server", "client", "a", "b"))
    trust = chance.choice(("central", "local"))
    return Entry(event, "release", holder, trust=trust, count=chance.choice((1, 2)))


def _allowed(budget, ledger, entries):
    try:
        budget.check_all(ledger, entries)
    except BudgetExhausted:
        return False
    return True


def test_everything_is_charged_under_the_policys_own_terms():
    noise = GaussianDpEvent(account.calibrate(GaussianDpEvent, 3.0, 1e-5))
    usual, strict = Budget(3.1, 1e-5), Budget(3.1, 1e-5, adjacency="replace-one")
    usual.check(Ledger(None), noise)
    with pytest.raises(BudgetExhausted):
        strict.check(Ledger(None), noise)
    ledger = Ledger(None)
    spend(usual, ledger, noise, what="sum")
    assert usual.left(ledger) == pytest.approx(0.1, rel=0.01) and strict.left(ledger) == 0.0
    by_rdp = Budget(9.0, 1e-5, accountant="rdp").left(ledger)
    assert by_rdp == pytest.approx(9 - account.epsilon(noise, 1e-5, accountant="rdp"))
    assert by_rdp < Budget(9.0, 1e-5).left(ledger)


def test_a_policy_for_records_takes_a_release_as_one_for_records():
    for_records, noise = Budget(3.0, 1e-5, "record"), GaussianDpEvent(2.0)
    for_records.check(Ledger(None), noise)  # a client's would cost a record twice as much
    with pytest.raises(BudgetExhausted, match=r"^release: .*record, add-remove"):
        for_records.check(Ledger(None), noise, 3)
    with pytest.raises(BudgetExhausted):
        for_records.check(Ledger(None), noise, unit="client")


def test_a_line_says_what_was_spent():
    line = spend(Budget(3.0, 1e-5), Ledger(None), GaussianDpEvent(2.0), what="sum")
    said = (line.what, line.holder, line.unit, line.trust, line.count, line.run)
    assert said == ("sum", "server", "client", "central", 1, "")
    terms = ("vote", "a", "record", "local", 2, "run 7")
    named = dict(zip(("what", "holder", "unit", "trust", "count", "run"), terms, strict=True))
    line = spend(Budget(9.0, 1e-5, "record"), Ledger(None), GaussianDpEvent(2.0), **named)
    assert (line.what, line.holder, line.unit, line.trust, line.count, line.run) == terms


def test_a_general_budget_beside_named_ones_is_for_all_others(tmp_path):
    path = tmp_path / "budget.toml"
    path.write_text("[budget]\nepsilon = 3\ndelta = 1e-6\n[budget.adult]\nepsilon = 1\ndelta = 1e-7\n")
    assert Budget.load(path) == Budget.load(str(path), "heart") == Budget(3, 1e-6)
    assert Budget.load(path, "adult") == Budget(1, 1e-7)


VOTE = EpsilonDeltaDpEvent(0.4)


def test_releases_that_leave_together_are_each_counted():
    ledger, budget = Ledger(None), Budget(epsilon=1.0, delta=0.0)
    budget.check(ledger, VOTE)
    with pytest.raises(BudgetExhausted, match=r"epsilon 1\.2 "):
        budget.check_all(ledger, [Entry(VOTE, "vote")] * 3)


def test_another_ledger_is_read_from_its_beginning():
    budget, cheap, dear = Budget(epsilon=1.0, delta=0.0), Ledger(None), Ledger(None)
    cheap.append(EpsilonDeltaDpEvent(0.1), what="vote")
    dear.append(EpsilonDeltaDpEvent(0.9), what="vote")
    budget.check(cheap, VOTE)
    with pytest.raises(BudgetExhausted, match=r"epsilon 1\.3 "):
        budget.check(dear, VOTE)


def test_a_budget_allows_a_billionth_more_for_rounding():
    budget = Budget(epsilon=1.0, delta=0.0)
    budget.check(Ledger(None), EpsilonDeltaDpEvent(1.0 + 1e-9))
    with pytest.raises(BudgetExhausted):
        budget.check(Ledger(None), EpsilonDeltaDpEvent(1.0 + 2e-9))


def test_noise_of_the_server_does_not_allow_the_same_noise_of_ones_own():
    ledger, budget, noise = Ledger(None), Budget(epsilon=3.0, delta=1e-5), GaussianDpEvent(2.0)
    budget.check(ledger, noise, holder="a")
    with pytest.raises(BudgetExhausted):
        budget.check(ledger, noise, holder="a", trust="local")


def test_an_approved_run_after_others_is_let_through_for_those_whom_it_concerns(monkeypatch):
    ledger, budget = Ledger(None), Budget(epsilon=1.0, delta=0.0)
    spend(budget, ledger, EpsilonDeltaDpEvent(0.1), what="earlier run", holder="a")
    budget.check(ledger, VOTE, 2, holder="a")
    ledger.append(EpsilonDeltaDpEvent(0.7), what="another's", holder="b")
    monkeypatch.setattr(Ledger, "answer", None)  # no accountant is asked again
    for _ in range(2):
        spend(budget, ledger, VOTE, what="vote", holder="a")


def test_a_policy_for_records_has_left_what_records_have_not_spent():
    ledger, budget = Ledger(None), Budget(epsilon=1.0, delta=0.0, unit="record")
    ledger.append(EpsilonDeltaDpEvent(0.3), what="step", unit="record")
    ledger.append(EpsilonDeltaDpEvent(0.3), what="nobody's", unit="client", count=0)
    ledger.append(LaplaceDpEvent(8.0), what="vote", unit="client")
    assert budget.left(ledger) == pytest.approx(1.0 - 0.3 - 2 / 8)
