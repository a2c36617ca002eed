"""A site's payments: every release once, in the name of whom it concerns, and never beyond what was agreed."""

from dataclasses import replace

import numpy as np
import pytest

from fedsynth.deploy.site.payer import SitePayer
from fedsynth.errors import BudgetExhausted
from fedsynth.privacy.account import EpsilonDeltaDpEvent
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.ledger import Entry, Ledger
from fedsynth.privacy.mechanism import Charge, Release, When
from fedsynth.privacy.none import NoPrivacy

NAMES = ("a", "b", "c")
ALL = np.arange(3)
AMPLE = Budget(1e6, 1e-5, accountant="rdp")


def payer_of(algorithm, ledger=None, budget=AMPLE, cap=None, run="run", agreement=""):
    return SitePayer(run, algorithm, ledger or Ledger(None), budget, cap, NAMES, agreement)


def lines(payer):
    return [
        (line.release, line.round, line.session, line.holder, line.count) for line in payer._ledger.lines()
    ]


@pytest.fixture
def central(build):
    """Rounds that the server pays for everybody, cheaper because clients are drawn."""
    return build("dpd_fvae", rounds=5)


@pytest.fixture
def local(build):
    """Rounds that each client pays for itself."""
    return build("dp_fed_wae", clients=12, rounds=4)


def what(algorithm):
    return algorithm.charges()[0].release.what


def test_a_round_is_paid_with_those_before_it_that_were_sampled_elsewhere(central):
    payer = payer_of(central)
    entries = payer.pay(central, 2, ALL[:2])
    name = what(central)
    assert lines(payer) == [(name, number, 0, "server", 1) for number in (1, 2, 3)] and payer.rounds == 3
    assert [entry.round for entry in entries] == [1, 2, 3] and {entry.run for entry in entries} == {"run"}
    assert payer.pay(central, 2, ALL) == [] and payer.pay(central, 1, ALL) == []
    assert [entry.session for entry in payer.pay(central, 2, ALL, again=4)] == [4]
    assert payer.rounds == 4 and len(lines(payer)) == 4


def test_rounds_in_which_nobody_was_asked_are_paid_once_and_only_where_sampling_made_them_cheap(
    central, local
):
    payer = payer_of(central)
    payer.catch_up(2)
    payer.catch_up(1)
    payer.catch_up(3)
    assert [line[1] for line in lines(payer)] == [1, 2, 3]
    own = payer_of(local)
    own.catch_up(3)
    assert lines(own) == [] and own.rounds == 0


def test_each_client_pays_for_its_own_message_under_its_name(local):
    payer = payer_of(local)
    payer.pay(local, 0, np.array([2]))
    payer.pay(local, 1, np.array([0, 2]))
    name = what(local)
    expected = [(name, 1, 0, "client c", 1), (name, 2, 0, "client a", 1), (name, 2, 0, "client c", 1)]
    assert lines(payer) == expected and payer.rounds == 2


def test_a_question_is_no_round(central, local):
    for algorithm, holders in ((central, ["server"]), (local, ["client a", "client b", "client c"])):
        payer = payer_of(algorithm)
        payer.pay(algorithm.opening, 0, ALL)
        assert [line[1:4] for line in lines(payer)] == [(0, 0, holder) for holder in holders]
        assert payer.rounds == 0 and payer.pay(algorithm.opening, 0, ALL) == []
        payer.catch_up(0)
        assert len(lines(payer)) == len(holders)


def test_what_was_paid_before_a_restart_is_known_again_and_other_runs_are_not_ours(central):
    ledger = Ledger(None)
    payer_of(central, ledger, run="other").pay(central, 4, ALL)
    payer_of(central, ledger).pay(central, 1, ALL)
    again = payer_of(central, ledger)
    assert again.rounds == 2 and again.pay(central, 1, ALL) == []
    assert [entry.round for entry in again.pay(central, 2, ALL)] == [3]


def test_a_client_that_had_its_turns_is_noticed_and_no_other(local):
    payer, most = payer_of(local), local.schedule.participations(local.rounds)
    for version in range(most):
        assert not payer.had_their_turns(version, np.array([0]))
        payer.pay(local, version, np.array([0]))
    assert payer.had_their_turns(most, np.array([0])) and payer.had_their_turns(most, np.array([1, 0]))
    assert not payer.had_their_turns(most, np.array([1, 2]))
    assert not payer.had_their_turns(most - 1, np.array([0]))  # this one is paid for: nothing new
    assert payer.had_their_turns(most - 1, np.array([0]), again=2)


def refused(call, *arguments):
    try:
        call(*arguments)
    except BudgetExhausted:
        return True
    return False


def cost_of(algorithm, times, opening=True):
    """Epsilon of so many rounds and the opening question for one client."""
    ledger = Ledger(None)
    charges = [(charge, times) for charge in algorithm.charges()]
    if opening:
        charges += [(charge, 1) for charge in algorithm.opening.charges()]
    ledger.append_all([Entry.of(charge, "client a", "x", When(), count) for charge, count in charges])
    return ledger.epsilon(1e-3, unit="client")


@pytest.mark.parametrize("by_cap", [True, False])
def test_a_run_is_approved_if_all_that_is_left_of_it_fits(build, by_cap):
    algorithm = build("dpd_fvae", rounds=5, rate=1.0)
    cost = cost_of(algorithm, 5)
    for factor, verdict in ((1.001, False), (0.999, True)):
        budget = Budget(cost * factor, 1e-3)
        terms = {"cap": budget} if by_cap else {"budget": budget}
        ledger = Ledger(None)
        assert refused(payer_of(algorithm, ledger, **terms).approve) == verdict and not ledger.lines()
        started = payer_of(algorithm, ledger)
        started.pay(algorithm.opening, 0, ALL)
        for version in range(2):
            started.pay(algorithm, version, ALL)
        assert refused(payer_of(algorithm, ledger, **terms).approve) == verdict
    for version in range(2, 5):
        started.pay(algorithm, version, ALL)
    payer_of(algorithm, ledger, budget=Budget(1e-3, 0.0)).approve()  # nothing is left of it: nothing is asked


def test_where_clients_pay_themselves_the_most_turns_of_each_are_asked_for(local):
    turns = local.schedule.participations(local.rounds)
    assert 0 < turns < local.rounds
    alone = replace(local, opening=None)
    each = local.charges()[0].event.epsilon
    assert not refused(payer_of(alone, cap=Budget(each * turns, 0.0)).approve)
    assert refused(payer_of(alone, cap=Budget(each * turns * 0.99, 0.0)).approve)
    ledger = Ledger(None)
    payer_of(alone, ledger).pay(alone, 0, np.array([1]))
    assert not refused(payer_of(alone, ledger, cap=Budget(each * turns, 0.0)).approve)
    assert refused(payer_of(alone, ledger, cap=Budget(each * turns * 0.99, 0.0)).approve)
    asks = payer_of(local, cap=Budget(each * turns, 0.0))
    assert refused(asks.approve)  # a site cannot know which of its clients answer and which train


VOTE = EpsilonDeltaDpEvent(0.5)
WHOLE = Charge(Release("vote", "client", "central", VOTE), VOTE)


def test_all_runs_of_an_agreement_are_asked_for_before_the_first_and_share_its_cap(central):
    ledger = Ledger(None)
    for cap, budget, verdict in ((1.5, 9.0, False), (1.4, 9.0, True), (9.0, 1.4, True)):
        terms = {"cap": Budget(cap, 0.0), "budget": Budget(budget, 0.0)}
        payer = payer_of(central, ledger, run="look-1", agreement="look", **terms)
        assert refused(payer.approve, [(WHOLE, 3)]) == verdict
    ledger.append(VOTE, what="vote", run="look-1")
    ledger.append(EpsilonDeltaDpEvent(7.0), what="vote", run="looking")  # another agreement
    ledger.append(EpsilonDeltaDpEvent(7.0), what="vote", run="")
    second = payer_of(
        replace(central, opening=None), ledger, run="look-2", agreement="look", cap=Budget(1e5, 1e-5)
    )
    second.approve([(WHOLE, 10**9)])  # it was asked for before the first of them
    assert [line.run for line in second._own.lines()] == ["look-1"] and second.rounds == 0
    assert not payer_of(central, ledger, run="third")._own.lines()


def test_what_cap_or_budget_do_not_allow_is_written_nowhere(build):
    algorithm = build("dpd_fvae", rounds=5, rate=1.0)
    for terms in ({"cap": Budget(cost_of(algorithm, 2, False), 1e-3)},
                  {"budget": Budget(cost_of(algorithm, 2, False), 1e-3)}):  # fmt: skip
        payer = payer_of(algorithm, **terms)
        for version in range(2):
            payer.pay(algorithm, version, ALL)
        assert refused(payer.pay, algorithm, 2, ALL) and refused(payer.pay_for_the_rest, 2)
        assert len(lines(payer)) == 2 and payer.rounds == 2


def test_an_end_before_the_plan_is_charged_to_its_end_where_training_began(central, local):
    payer = payer_of(central)
    payer.pay_for_the_rest(0)
    assert lines(payer) == []
    payer.pay(central, 1, ALL)
    payer.pay_for_the_rest(1)
    rest = f"{what(central)}, 3 of 5 rounds planned and not run"
    assert lines(payer)[2:] == [(rest, 0, 0, "server", 3)]
    done = payer_of(central)
    done.pay(central, 4, ALL)
    done.pay_for_the_rest(5)
    assert len(lines(done)) == 5
    later = payer_of(central)
    later.pay(central, 0, ALL)
    later.pay_for_the_rest(3)
    assert lines(later)[-1][-1] == 2  # two rounds of five, though one alone was paid for
    own = payer_of(local)
    own.pay(local, 0, np.array([1]))
    own.pay_for_the_rest(1)
    turns = local.schedule.participations(local.rounds)
    assert lines(own)[-1][3:] == ("client", turns - 1)
    settled = payer_of(local)
    settled.pay(local.opening, 0, ALL)
    settled.pay_for_the_rest(0)
    assert len(lines(settled)) == 3


def test_all_releases_of_a_round_are_paid_for_and_sampled_rounds_count_whoever_pays(build):
    central, record = build("dpd_fvae", rounds=6), build("dpd_fvae_record", rounds=6)
    both = replace(central, plan=record.plan)
    first, second = both.charges()
    assert (first.holder, second.holder) == ("server", "client") and first.amplified and not second.amplified
    payer = payer_of(both, budget=Budget(1e6, 1e-5, "record"))
    payer.pay(both, 1, ALL[:1])
    assert [line[1:4] for line in lines(payer)] == [(1, 0, "server"), (2, 0, "server"), (2, 0, "client a")]


def test_a_question_does_not_say_that_rounds_happened(central):
    payer = payer_of(central)
    payer.pay(central.opening, 3, ALL)
    payer.catch_up(3)
    assert [line[1] for line in lines(payer)] == [0, 1, 2, 3]


def test_the_server_is_asked_for_every_round_though_each_client_has_fewer_turns(build):
    rotation = build("dp_fed_wae", clients=12, rounds=4).schedule
    algorithm = replace(build("fvae", clients=12, rate=1.0, rounds=4), opening=None)
    algorithm = replace(
        algorithm, mechanism=NoPrivacy(), plan=build("central_vae", clients=1).plan, schedule=rotation
    )
    (charge,) = algorithm.charges()
    assert charge.holder == "server" and rotation.participations(4) < 4
    needed = Ledger(None)
    needed.append_all([Entry.of(charge, "server", "x", When(), 4)])
    cost = needed.epsilon(1e-5, unit="record")
    for factor, verdict in ((1.001, False), (0.999, True)):
        payer = payer_of(
            algorithm, budget=Budget(1e6, 1e-5, "record"), cap=Budget(cost * factor, 1e-5, "record")
        )
        assert refused(payer.approve) == verdict
    begun = payer_of(algorithm, budget=Budget(1e6, 1e-5, "record"))
    begun.pay(algorithm, 0, ALL)
    begun.pay_for_the_rest(1)
    assert lines(begun)[-1][3:] == ("server", 3 * charge.release.count)


def test_what_is_left_of_a_plan_counts_from_the_last_round_that_was_paid(central, build):
    payer = payer_of(central)
    payer.pay(central, 1, ALL)
    payer.pay_for_the_rest(1)
    assert {line.run for line in payer._ledger.lines()} == {"run"}
    record = build("dpd_fvae_record", rounds=6)
    late = payer_of(record, budget=Budget(1e6, 1e-5, "record"))
    late.pay(record, 3, ALL[:1])
    late.pay_for_the_rest(0)
    assert lines(late)[-1][-1] == 2  # the fifth and sixth round, whatever version the server names


def test_releases_of_one_client_are_counted_apart(local, build):
    both = replace(local, plan=build("dpd_fvae_record", rounds=4).plan)
    assert [charge.holder for charge in both.charges()] == ["client", "client"]
    payer = payer_of(both, budget=Budget(1e6, 1e-5, "record"))
    payer.pay(both, 0, ALL[:1])
    for charge in both.charges():
        assert payer._rounds(charge) == {"client a": 1}


def test_an_agreement_is_set_beside_what_each_client_has_spent_already(central):
    ledger = Ledger(None)
    ledger.append(EpsilonDeltaDpEvent(1.2), what="own", holder="client a", run="before")
    for budget, verdict in ((2.8, False), (2.6, True)):  # 1.2 and three votes of 0.5
        payer = payer_of(central, ledger, run="look-1", agreement="look", budget=Budget(budget, 0.0))
        assert refused(payer.approve, [(WHOLE, 3)]) == verdict


def test_the_cost_of_a_run_is_computed_when_it_begins_and_not_again_in_each_round(central, monkeypatch):
    computed, plain = [], Ledger.answer
    monkeypatch.setattr(Ledger, "answer", lambda *words, **more: computed.append(1) or plain(*words, **more))
    ledger, budget = Ledger(None), Budget(1e6, 1e-5, accountant="rdp")
    payer_of(central, ledger, budget, cap=Budget(1e6, 1e-5, accountant="rdp")).approve()
    assert len(computed) == 2  # under the cap and under the budget
    payer = payer_of(central, ledger, budget, cap=Budget(1e6, 1e-5, accountant="rdp"))  # as a job makes it
    for version in range(5):
        payer.pay(central, version, ALL)
    assert payer.rounds == 5 and len(computed) == 3
