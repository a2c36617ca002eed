"""The lines that a payer writes: for whom, how often, and only once for what was kept."""

from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent

from fedsynth.data.schema import Schema
from fedsynth.errors import BudgetExhausted, NotPrivate
from fedsynth.federation.fedbuff import FedBuff
from fedsynth.federation.schedule import Clock
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.chain import head_path
from fedsynth.privacy.ledger import Entry, Ledger
from fedsynth.privacy.mechanism import Charge, Release, When
from fedsynth.recipes.budget import Target
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.payer import BudgetPolicy, Payer, check_payer, ledger_of
from samples import TABLE

EVENT, WEAKER = GaussianDpEvent(2.0), GaussianDpEvent(3.0)
NOBODY, TWO = np.empty(0, dtype=np.int64), np.array([3, 4])
SUM = Charge(Release("noisy sum", "record", "distributed", EVENT, count=2), EVENT, WEAKER)
OWN = Charge(Release("message", "client", "local", EVENT), EVENT)


def entries(payer):
    return [line.entry for line in payer.ledger.lines()]


def test_a_release_is_one_line_of_the_server_or_one_for_each_client_by_name():
    payer = Payer(Ledger(None), "run 7")
    payer.pay(When(1), [SUM, OWN], TWO)
    payer.pay(When(), [OWN], NOBODY)
    payer.pay(When(2), [], TWO)
    assert entries(payer) == [
        Entry(EVENT, "noisy sum", "server", "record", "distributed", 2, "run 7", WEAKER, round=1),
        Entry(EVENT, "message", "3", "client", "local", 1, "run 7", round=1),
        Entry(EVENT, "message", "4", "client", "local", 1, "run 7", round=1),
        Entry(EVENT, "message", "client", "client", "local", 1, "run 7"),
    ]


def test_what_clients_sent_and_a_server_kept_costs_them_once():
    payer = Payer(Ledger(None), "run")
    Payer(payer.ledger, "other").pay(When(1), [OWN], np.array([4]))
    payer.pay(When(1), [OWN, SUM], np.array([3]))
    payer.pay_once(When(1), [OWN, OWN, SUM], TWO)
    paid = [(line.holder, line.run) for line in payer.ledger.lines() if line.trust == "local"]
    assert paid.count(("3", "run")) == 2 and paid.count(("4", "run")) == 2 and len(paid) == 5
    assert (
        sum(line.trust == "distributed" for line in payer.ledger.lines()) == 2
    )  # new noise is a new release


def test_what_policy_or_cap_do_not_allow_is_written_nowhere(tmp_path):
    (tmp_path / "policy.toml").write_text("[budget]\nepsilon = 2.5\ndelta = 1e-5\n")
    policy = BudgetPolicy.load(tmp_path / "policy.toml")
    charge = Charge(Release("sum", "client", "central", EVENT), EVENT)
    payer = Payer(Ledger(None), "run", policy)
    payer.pay(When(1), [charge], NOBODY)
    with pytest.raises(BudgetExhausted):
        payer.pay(When(2), [charge], NOBODY)
    assert len(payer.ledger.lines()) == len(policy.ledger.lines()) == 1
    capped = Payer(Ledger(None), "run", policy).capped(Target(1.0, 1e-5), "client", "replace-one")
    assert (capped.cap, capped.policy) == (Budget(1.0, 1e-5, "client", "replace-one"), policy)
    with pytest.raises(BudgetExhausted, match="over the budget of 1"):
        capped.pay(When(1), [charge], NOBODY)
    assert not capped.ledger.lines() and len(policy.ledger.lines()) == 1


def planned(algorithm, times):
    ledger = Ledger(None)
    for charge in algorithm.charges():
        spent = charge.release
        ledger.append(charge.event, what="x", unit=spent.unit, trust=spent.trust, count=spent.count * times)
    for charge in [] if algorithm.opening is None else algorithm.opening.charges():
        spent = charge.release
        ledger.append(charge.event, what="y", unit=spent.unit, trust=spent.trust, count=spent.count)
    return ledger


def approved(payer, algorithm, rounds, epsilon, unit, by_policy):
    budget = Budget(epsilon, 1e-3, unit, accountant="rdp")
    asked = (
        replace(payer, policy=BudgetPolicy(budget, payer.ledger)) if by_policy else replace(payer, cap=budget)
    )
    try:
        asked.approve(algorithm, rounds)
    except BudgetExhausted:
        return False
    return True


@pytest.mark.parametrize("by_policy", [True, False])
def test_a_run_is_approved_if_all_that_is_left_of_it_fits(build, by_policy):
    algorithm = build("dpd_fvae", rounds=3)
    unit, payer = algorithm.charges()[0].release.unit, Payer(Ledger(None), "run")
    cost = planned(algorithm, 3).answer(1e-3, unit=unit, accountant="rdp").epsilon
    fits = [approved(payer, algorithm, 3, cost * factor, unit, by_policy) for factor in (1.001, 0.999)]
    assert fits == [True, False]
    payer.pay(When(), algorithm.opening.charges(), NOBODY)
    payer.pay(When(1), algorithm.charges(), NOBODY)
    fits = [approved(payer, algorithm, 2, cost * factor, unit, by_policy) for factor in (1.001, 0.999)]
    assert fits == [True, False]
    payer.approve(algorithm, 10**6)  # without policy and cap


def test_each_client_may_have_as_many_turns_as_are_left_to_it(build):
    algorithm = replace(build("fvae_record"), schedule=FedBuff(10, 6, 3), rounds=8)
    unit, payer = algorithm.charges()[0].release.unit, Payer(Ledger(None), "run")
    cost = planned(algorithm, 8).answer(1e-3, unit=unit, accountant="rdp").epsilon
    for paid in (0, 1, 7, 8):
        while len(payer.ledger.lines()) < paid * len(algorithm.charges()):
            payer.pay(When(len(payer.ledger.lines()) + 1), algorithm.charges(), np.array([0]))
        fits = [approved(payer, algorithm, 8, cost * factor, unit, False) for factor in (1.001, 0.999)]
        assert fits == [True, False], paid


def test_a_paid_schema_needs_its_whole_ledger(tmp_path):
    schema, path = Schema.from_dict(TABLE), tmp_path / "schema.json"
    paid = replace(schema, provenance={"age": "paid", "sex": "inferred"})
    assert ledger_of(schema, path) is None and ledger_of(schema, None) is None
    for place in (None, path):
        with pytest.raises(NotPrivate, match="columns age are marked paid"):
            ledger_of(paid, place)
    Ledger(beside(path)).append(EVENT, what="bounds")
    assert [line.what for line in ledger_of(paid, path).lines()] == ["bounds"]
    head_path(beside(path)).unlink()
    with pytest.raises(NotPrivate, match="keep the two files together"):
        ledger_of(paid, path)


def test_types_that_were_read_for_free_are_refused(tmp_path):
    paid = replace(Schema.from_dict(TABLE), provenance={"age": "paid"})
    Ledger(beside(tmp_path / "schema.json")).append(EVENT, what="bounds and categories")
    with pytest.raises(NotPrivate, match="draft it again"):
        ledger_of(paid, tmp_path / "schema.json")


def test_those_who_answer_and_those_who_train_pay_from_budgets_of_their_own(build):
    algorithm = build("dp_fed_wae", clients=12, rounds=4)
    payer, rng = Payer(Ledger(None), "run"), Rng(1)

    def fits(epsilon):
        asked = replace(payer, cap=Budget(epsilon, 0.0))
        try:
            asked.approve(algorithm, algorithm.rounds)
        except BudgetExhausted:
            return False
        return True

    assert algorithm.opening.apart and [fits(8.0), fits(7.99)] == [True, False]
    payer.pay(When(), algorithm.opening.charges(), algorithm.opening.schedule.start(Clock(0), rng))
    assert [fits(8.0), fits(7.99)] == [True, False]  # not sixteen: nobody does both
    for version in range(2):
        payer.pay(When(version + 1), algorithm.charges(), algorithm.schedule.start(Clock(version), rng))
        assert [fits(8.0), fits(7.99)] == [True, False]
    assert payer.ledger.epsilon(0.0) == 8.0


def test_what_a_schema_cost_is_written_once_by_its_line(tmp_path):
    policy = BudgetPolicy(Budget(9.0, 1e-5), Ledger(None))
    first, second = Ledger(None), Ledger(None)
    for schema, count in ((first, 2), (second, 1)):
        for number in range(count):
            schema.append(EVENT, what=f"bounds {number}", run="schema", unit="record")
    payer = Payer(Ledger(tmp_path / "ledger.jsonl"), "run", policy)
    payer.begin_with(first)
    for schema in (first, second, first):
        policy.count(schema)
    lines = policy.ledger.lines()
    assert [line.release for line in lines] == ["bounds 0", "bounds 1", "bounds 0"]
    marks = [f"schema {line.hash[:16]}" for line in (*first.lines(), *second.lines())]
    assert [line.run for line in lines] == marks and {line.unit for line in lines} == {"record"}
    assert payer.ledger.lines() == first.lines()
    Payer(Ledger(tmp_path / "other.jsonl"), "run").begin_with(first)
    assert len(policy.ledger.lines()) == 3


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


def test_a_client_who_spent_more_than_others_counts_and_only_rounds_are_turns(build):
    algorithm = replace(build("dp_fed_wae", clients=12, rounds=4), opening=None)
    payer = Payer(Ledger(None), "run")
    replace(payer, cap=Budget(8.0, 0.0)).approve(algorithm, algorithm.rounds)
    apart = build("dp_fed_wae", clients=12, rounds=4)
    training = apart.schedule.start(Clock(0), Rng(1))[:1]
    payer.pay(When(), apart.charges(), training)  # the same release, but no round
    for one in (algorithm, apart):
        with pytest.raises(BudgetExhausted):
            replace(payer, cap=Budget(8.0, 0.0)).approve(one, one.rounds)


def test_a_round_of_several_releases_is_approved_with_all_of_them(build):
    central, record = build("dpd_fvae", rounds=3, rate=1.0), build("dpd_fvae_record", rounds=3)
    both = replace(central, plan=record.plan, opening=None)
    assert [charge.holder for charge in both.charges()] == ["server", "client"]
    twice = replace(central, plan=build("central_vae", clients=1).plan, opening=None)
    assert [charge.holder for charge in twice.charges()] == ["server", "server"]
    for algorithm in (both, twice):
        cost = planned(algorithm, 3).answer(1e-3, unit="record", accountant="rdp").epsilon
        payer = Payer(Ledger(None), "run")
        fits = [approved(payer, algorithm, 3, cost * factor, "record", False) for factor in (1.001, 0.999)]
        assert fits == [True, False]
