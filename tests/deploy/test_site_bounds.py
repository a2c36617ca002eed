"""Whatever a server says, a site pays for no more than it agreed to, and tells no more than it must."""

from dataclasses import replace

import pytest
import torch
from test_site import POLICY, VALUES, make, started, terms, told, work_of  # noqa: F401
from three_sites import terms_for

from fedsynth.deploy.link.messages import Done, Refuse, Result, Settle, Stage, Work, read, write
from fedsynth.deploy.participation import compose
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.query import Query
from fedsynth.privacy.budget import Budget


@pytest.mark.parametrize(
    "message",
    [
        Settle("run", 1, 3000, 0, ()),
        Settle("run", 1, 3000, 3000, (), over=True),
        Settle("run", 1, 4, 4, ()),
        Settle("run", 1, 1, 2, ()),
        Stage("run", 1, 3000, "keys", b""),
    ],
    ids=["far", "over", "one more", "settled ahead", "stage"],
)
def test_a_message_about_rounds_that_were_not_agreed_to_is_refused_and_costs_nothing(make, terms, message):  # noqa: F811
    site = make(replace(POLICY, budget=Budget(6.0, 1e-5)))
    assert isinstance(started(site, replace(terms, epsilon=5.9))[0], Done)
    answer = told(site, message)
    assert isinstance(answer, Refuse) and answer.code == "message" and "agreed to 3 rounds" in answer.reason
    assert site.ledger.lines() == []


@pytest.mark.parametrize(
    "changes",
    [{"version": 3}, {"version": 1, "since": 2}, {"job": "balance", "version": 1}, {"sites": 9}],
    ids=["one more", "settled ahead", "a question in training", "more sites than began"],
)
def test_work_beyond_the_agreement_is_refused_and_costs_nothing(make, terms, changes):  # noqa: F811
    site = make()
    _, state = started(site, terms)
    work = work_of(state, **changes)
    answer = told(site, replace(work, tensors={"ids": work.tensors["ids"]}) if "job" in changes else work)
    assert isinstance(answer, Refuse) and answer.code == "message"
    assert site.ledger.lines() == []


def test_rounds_that_happened_elsewhere_are_paid_within_the_budget(make, terms):  # noqa: F811
    """Another run spent what was left: the missed rounds are refused like any other, and not written."""
    site = make(replace(POLICY, budget=Budget(6.0, 1e-5)), seed=None)
    started(site, replace(terms, epsilon=5.9))
    event = compose(terms, site.holding.schema).charges()[0].event
    while site.policy.budget.left(site.ledger) > 0.9:
        site.ledger.append(event, what="round of another run", run="other")
    lines = len(site.ledger.lines())
    answer = told(site, Settle("run", 1, 3, 3, ()))
    assert isinstance(answer, Refuse) and answer.code == "budget"
    assert len(site.ledger.lines()) == lines


def question(ids=(3, 5), part=0, session=1, used=(), version=0, since=0):
    tensors = {"ids": torch.tensor(ids)}
    return Work("run", session, "balance", version, part, 3, since, used, tensors)


def test_a_question_is_answered_once_with_fresh_noise(make, schema):  # noqa: F811
    """A server that says an answer was used, or asks in another place, gets no second answer for one payment."""
    local = terms_for("dpd_fvae", schema, VALUES, trust="local", minimum_cohort=2)
    site = make(seed=None)
    _, state = started(site, local)
    first = told(site, question())
    paid = len(site.ledger.lines())
    assert isinstance(first, Result) and paid == 2
    for again in (
        question(used=(first.name,)),
        question(part=1),
        question(part=1, used=(first.name,)),
        question(version=1, since=1),
    ):
        answer = told(site, again)
        assert isinstance(answer, Refuse) or torch.equal(
            answer.tensors["messages"], first.tensors["messages"]
        )
    assert isinstance(told(site, work_of(state, version=1)), Result)
    assert isinstance(told(site, question(since=0)), Refuse), "training has begun"
    assert sum("balance" in line.what for line in site.ledger.lines()) == paid


def test_the_plan_cannot_change_once_something_was_paid_for(make, terms):  # noqa: F811
    site = make()
    started(site, terms)
    assert isinstance(
        told(site, Settle("run", 1, 2, 0, ())), Done
    )  # two rounds were sampled, nobody was asked
    answer, _ = started(site, replace(terms, values={**VALUES, "rounds": 4}), session=2)
    assert isinstance(answer, Refuse) and "not the one that it began with" in answer.reason


def test_a_run_that_ends_before_its_plan_is_charged_to_its_end(make, terms):  # noqa: F811
    """Why the server stops is not known here: if it is for what was released, only the plan is a bound."""
    site = make(seed=None)
    _, state = started(site, terms)
    assert isinstance(told(site, work_of(state)), Result)
    told(site, Settle("run", 1, 0, 0, (), over=True))
    assert [line.count for line in site.ledger.lines()] == [1, 2]
    assert site.ledger.lines()[-1].what.endswith("2 of 3 rounds planned and not run")
    assert told(site, Settle("run", 1, 0, 0, (), over=True)).paid == 0 and len(site.ledger.lines()) == 2


@pytest.mark.parametrize(("rounds", "over"), [(0, 0), (3, 3)], ids=["never began", "finished"])
def test_nothing_is_charged_beyond_a_plan_that_ran_or_never_began(make, terms, rounds, over):  # noqa: F811
    site = make(seed=None)
    started(site, terms)
    told(site, Settle("run", 1, rounds, rounds, ()))
    told(site, Settle("run", 1, over, over, (), over=True))
    assert sum(line.count for line in site.ledger.lines()) == rounds


SECRET = "Zwingli, Huldrych; HIV positive"


@pytest.mark.parametrize("job", [Algorithm, Query], ids=["round", "question"])
def test_the_text_of_an_error_stays_at_the_site(make, terms, monkeypatch, job):  # noqa: F811
    """Only the kind of the error is told; what it says, which may quote a row, is in the site's own log."""

    def quoting(*_):
        raise KeyError(SECRET)

    monkeypatch.setattr(job, "client_round", quoting)
    site = make()
    _, state = started(site, terms)
    payload = site.handle(write(work_of(state) if job is Algorithm else question()))
    assert SECRET.encode() not in payload and "KeyError" in read(payload).reason
    assert SECRET in site.audit.lines()[-1]["cause"]
