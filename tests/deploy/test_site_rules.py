"""The rules of a site at their edges: who is let in, who is obeyed, what is noted, and what it says of a failure."""

import os
from dataclasses import replace

import pytest
import torch
from test_site import POLICY as USUAL
from test_site import VALUES, make, started, terms, told, work_of  # noqa: F401
from test_site_run import banded
from three_sites import terms_for

from fedsynth.data.schema import Schema
from fedsynth.deploy.link.codec import fingerprint
from fedsynth.deploy.link.messages import (
    Accept,
    Begin,
    Done,
    Invite,
    Refuse,
    Report,
    Result,
    Settle,
    Stage,
    Staged,
    Status,
    read,
    write,
)
from fedsynth.deploy.participation import compose
from fedsynth.deploy.site.run import check_start
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy.budget import Budget
from fedsynth.rng import Rng

# ruff: noqa: F811
POLICY = replace(USUAL, budget=Budget(1e6, 1e-5, accountant="rdp"))


def noted(site):
    """What the site wrote into its own log, without the chain."""
    chained = ("time", "index", "previous", "hash")
    return [
        {name: value for name, value in line.items() if name not in chained} for line in site.audit.lines()
    ]


def begin_of(terms, **changes):
    state = compose(terms, Schema.from_dict(dict(terms.schema))).init(Rng(1).at("init"))
    plain = Begin("run", 1, terms, 3, 3, {"encoder": state.parts["encoder"]})
    return replace(plain, **changes)


def answer_to(message):
    """The name that an answer to this message bears."""
    return fingerprint(write(message))


def test_what_a_site_did_is_in_its_log(make, terms):
    site = make()
    told(site, Invite("run", terms))
    _, state = started(site, terms)
    told(site, work_of(state))
    told(site, work_of(state, version=7))
    told(site, Settle("run", 1, 3, 3, (), over=True))
    lines = noted(site)
    reason = lines[3].pop("reason")
    assert "agreed to 3 rounds" in reason
    assert lines == [
        {"what": "accepted an invitation", "run": "run", "recipe": "dpd_fvae"},
        {"what": "began", "run": "run", "session": 1, "recipe": "dpd_fvae"},
        {"what": "answered", "run": "run", "job": "round", "version": 0, "session": 1},
        {"what": "refused", "run": "run", "code": "message"},
        {"what": "finished", "run": "run", "version": 3},
    ]


def test_an_acceptance_says_whom_the_site_obeys_and_whether_it_is_a_rehearsal(make, terms, tmp_path):
    site = make(seed=None, folder=tmp_path / "deep" / "site")
    assert told(site, Invite("run", terms)) == Accept("run", answer_to(Invite("run", terms)), 3, 0, False)
    started(site, terms, session=4)
    again = make(seed=7, folder=tmp_path / "deep" / "site")
    assert told(again, Invite("run", terms)) == Accept("run", answer_to(Invite("run", terms)), 3, 4, True)


def test_a_plan_that_comes_twice_is_begun_once(make, terms):
    site, begin = make(), begin_of(terms)
    first = told(site, begin)
    assert first == Done("run", answer_to(begin), 0) == told(site, begin)
    assert [line["what"] for line in noted(site)] == ["began"]
    state = compose(terms, site.holding.schema).init(Rng(1).at("init"))
    told(site, work_of(state))
    assert told(site, begin).paid == 1 and told(site, replace(begin, session=2)).paid == 1


@pytest.mark.parametrize(
    ("changes", "code", "reason"),
    [
        ({"sites": 1}, "policy", "minimum_cohort=1: this site takes part only with 2 sites or more"),
        ({"first": 8}, "message", "first=8: 3 clients from there are more than the 10 of the run"),
        ({"tensors": {}}, "message", "do not have the layout"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(make, terms, changes, code, reason):
    site = make()
    answer = told(site, begin_of(terms, **changes))
    assert isinstance(answer, Refuse) and answer.code == code and reason in answer.reason and not answer.final
    assert told(site, Status("run")) == Report("run", answer_to(Status("run")), 0)


def test_a_plan_at_the_edge_is_taken(make, terms):
    assert isinstance(told(make(), begin_of(terms, sites=2, first=7)), Done)


def test_a_site_with_more_clients_than_the_noise_counts_on_does_not_begin(make, schema):
    policy = replace(POLICY, recipes=("site_vae",), budget=Budget(1e6, 1e-5, "record"))
    values = {"latent": 2, "hidden": (4,), "rounds": 3, "noise_multiplier": 2.0, "batch_size": 4}
    terms = terms_for("site_vae", schema, values, minimum_cohort=2, trust="distributed")
    answer = told(make(policy), Begin("run", 1, replace(terms, largest=2), 3, 3, {}))
    assert isinstance(answer, Refuse) and "largest=2: this site has 3 clients" in answer.reason
    other = told(make(policy), Begin("run", 1, replace(terms, largest=3), 3, 3, {}))
    assert "largest" not in getattr(other, "reason", "")


def test_a_plan_is_the_same_only_with_the_same_terms_and_places(make, terms, tmp_path):
    for change in ({"first": 2}, {"terms": replace(terms, epsilon=2e5)}):
        site = make(folder=tmp_path / next(iter(change)))
        state = compose(terms, site.holding.schema).init(Rng(1).at("init"))
        told(site, begin_of(terms))
        told(site, work_of(state))
        answer = told(site, replace(begin_of(terms, session=2), **change))
        assert (
            isinstance(answer, Refuse) and answer.final and "not the one that it began with" in answer.reason
        )


def test_a_run_that_is_over_is_not_begun_or_worked_for_again(make, terms):
    site = make()
    _, state = started(site, terms)
    assert told(site, Settle("run", 1, 2, 2, (), over=True)).paid == 2
    for message in (begin_of(terms, session=2), work_of(state, version=2), Stage("run", 1, 2, "keys", b"")):
        answer = told(site, message)
        assert isinstance(answer, Refuse) and answer.code == "stale" and answer.final
        assert answer.reason == "run run is over here"
    assert told(site, Settle("run", 9, 2, 2, (), over=True)) == Done(
        "run", answer_to(Settle("run", 9, 2, 2, (), over=True)), 0
    )


@pytest.mark.parametrize(("session", "code"), [(1, "session"), (3, "begin")])
def test_only_the_session_that_began_is_obeyed(make, terms, session, code):
    site = make()
    _, state = started(site, terms, session=2)
    for message in (work_of(state, session=session), Settle("run", session, 1, 1, ())):
        answer = told(site, message)
        assert (answer.code, answer.reason) == (code, f"session {session}: this site obeys session 2")
    assert isinstance(told(site, work_of(state, session=2)), Result)


def test_work_with_too_few_sites_is_refused_and_with_just_enough_is_done(make, terms):
    site = make()
    _, state = started(site, terms)
    answer = told(site, work_of(state, sites=1))
    assert answer.code == "policy" and "minimum_cohort=1" in answer.reason
    answer = told(site, work_of(state, sites=4))
    assert answer.code == "message" and "sites=4: this run began with 3" in answer.reason
    assert isinstance(told(site, work_of(state, sites=2)), Result)


def test_a_report_says_which_versions_are_settled(make, terms):
    site = make()
    started(site, terms)
    told(site, Settle("run", 1, 2, 2, ()))
    assert told(site, Status("run")).version == 2
    assert told(make(), Status("run")).version == 2  # read from the disk
    assert told(make(), Status("other")).version == 0


def test_a_run_without_privacy_needs_a_policy_that_allows_it(make, terms):
    free = replace(terms, private=False)
    assert isinstance(told(make(replace(POLICY, without_privacy=True)), Invite("run", free)), Accept)
    assert told(make(), Invite("run", free)).reason == "a run without privacy is not allowed here"


def test_a_transport_needs_to_be_allowed_and_installed(make, terms):
    masked = replace(terms, transport="secagg")
    allowed = replace(POLICY, transports=("clear", "secagg"))
    answer = told(make(), Invite("run", masked))
    assert answer.reason == "transport='secagg': not allowed here; allowed: clear"
    answer = told(make(allowed), Invite("run", masked))
    assert "not installed here" in answer.reason and "fedsynth keys create" in answer.reason
    installed = make(allowed, seals={"secagg": lambda *_: None})
    assert isinstance(told(installed, Invite("run", masked)), Accept)
    nothing = replace(POLICY, recipes=(), transports=())
    assert told(make(nothing), Invite("run", terms)).reason.endswith("allowed: none")


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (OSError(28, os.strerror(28)), "disk", "cannot write its state (No space left on device)"),
        (OSError(), "disk", "cannot write its state (OSError)"),
        (
            RuntimeError("row 7"),
            "error",
            "the site failed (RuntimeError); what happened is in its own audit log",
        ),
    ],
)
def test_after_a_failure_a_run_is_read_from_the_disk_again(make, terms, monkeypatch, error, code, reason):
    site = make()
    _, state = started(site, terms)

    def failing(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Algorithm, "client_round", failing)
        answer = told(site, work_of(state))
    assert (
        answer.code == code and reason in answer.reason and "row 7" not in answer.reason and not answer.final
    )
    assert noted(site)[-1]["cause"] == f"{type(error).__name__}: {error}" and site._runs == {}
    assert isinstance(told(site, work_of(state)), Result)


def test_a_long_reason_is_cut(make, terms):
    answer = told(make(), Invite("run", replace(terms, recipe="x" * 5000)))
    assert isinstance(answer, Refuse) and len(answer.reason) == 2000


def test_a_message_that_cannot_be_read_is_answered_and_noted(make):
    site = make()
    answer = read(site.handle(b"nonsense"))
    assert isinstance(answer, Refuse) and (answer.run, answer.code) == ("", "message")
    assert noted(site)[-1]["code"] == "message"


def test_the_cap_of_a_run_is_what_was_agreed_where_it_promises_something(make, terms):
    stated = replace(terms, epsilon=5.0, delta=1e-6)
    cap = make(seed=None)._payer(begin_of(stated), make()._assigned(begin_of(stated)))._cap
    assert cap == Budget(5.0, 1e-6, "client", "add-remove")
    assert make()._payer(begin_of(stated), make()._assigned(begin_of(stated)))._cap is None  # a rehearsal
    free = begin_of(replace(stated, private=False))
    assert make(seed=None)._payer(free, make()._assigned(free))._cap is None


def test_where_noise_is_real_each_client_is_computed_by_itself(make):
    assert make(seed=None)._labor.chunk == 1 and make()._labor.chunk is None
    assert make(seed=None, chunk=5)._labor.chunk == 5 and make(seed=None, device="cuda")._labor.chunk is None


def test_a_rest_of_the_plan_that_is_over_the_budget_ends_the_run_and_is_noted(make, terms):
    site = make(replace(POLICY, budget=Budget(6.0, 1e-5, accountant="rdp")), seed=None)
    _, state = started(site, replace(terms, epsilon=5.9))
    assert isinstance(told(site, work_of(state)), Result)
    event = compose(terms, site.holding.schema).charges()[0].event
    while site.policy.budget.left(site.ledger) > 0.3:
        site.ledger.append(event, what="another run", run="other")
    answer = told(site, Settle("run", 1, 0, 0, (), over=True))
    assert isinstance(answer, Done) and answer.paid == 1
    kinds = [line["what"] for line in noted(site)]
    assert kinds[-2:] == ["the rest of the plan is not charged", "finished"]
    assert "over the budget of 6" in noted(site)[-2]["reason"] and noted(site)[-2]["run"] == "run"


def test_stages_go_to_the_sealer_of_the_run(make, terms, tmp_path):
    made = []

    class Echo:
        def stage(self, version, name, payload):
            return f"{version} {name} ".encode() + payload

    def seal(run, algorithm, folder):
        made.append((run, algorithm.name, folder))
        return Echo()

    site = make(replace(POLICY, transports=("clear",)), seals={"clear": seal})
    started(site, terms)
    message = Stage("run", 1, 2, "keys", b"mine")
    assert told(site, message) == Staged("run", answer_to(message), "keys", b"2 keys mine")
    assert made == [("run", "dpd_fvae", site.folder / "runs" / "run" / "seal")]


def test_a_start_has_the_layout_of_the_model(terms, schema):
    algorithm = compose(terms, schema)
    encoder = algorithm.init(Rng(1)).parts["encoder"]
    check_start(algorithm, {"encoder": encoder})
    for wrong in (
        {},
        {"encoder": encoder[:-1]},
        {"encoder": encoder.double()},
        {"encoder": encoder, "x": encoder},
    ):
        with pytest.raises(ValueError, match="do not have the layout of dpd_fvae"):
            check_start(algorithm, wrong)


def test_two_sites_without_a_seed_draw_differently(make, terms, tmp_path):
    sums = []
    for name in "ab":
        site = make(seed=None, folder=tmp_path / name)
        _, state = started(site, replace(terms, trust="local", values={**VALUES, "noise_multiplier": 5.0}))
        sums.append(told(site, work_of(state)).tensors["messages"])
    assert not torch.equal(*sums)


def test_another_plan_in_the_same_session_is_refused(make, terms):
    site = make()
    told(site, begin_of(terms))
    answer = told(site, begin_of(replace(terms, epsilon=2e5)))
    assert (answer.code, answer.reason) == ("session", "session 1: this site obeys session 1")


def test_a_plan_is_kept_once_somebody_worked_or_something_was_paid_for(make, terms, tmp_path):
    free = replace(terms, private=False)
    worked = make(replace(POLICY, without_privacy=True), folder=tmp_path / "worked")
    _, state = started(worked, free)
    told(worked, work_of(state))
    assert worked.ledger.lines() == [] and len(worked._standing("run").waiting) == 1
    paid = make(folder=tmp_path / "paid")
    started(paid, terms)
    told(paid, Settle("run", 1, 2, 0, ()))
    assert paid.ledger.lines() and not paid._standing("run").waiting and not paid._standing("run").since
    for site, agreed in ((worked, free), (paid, terms)):
        answer = told(site, begin_of(replace(agreed, epsilon=2e5), session=2))
        assert answer.final and "not the one that it began with" in answer.reason


def test_lines_bear_the_name_of_the_run_and_nothing_of_it_stays_in_memory(make, terms):
    site = make()
    _, state = started(site, terms)
    told(site, work_of(state))
    assert {line.run for line in site.ledger.lines()} == {"run"} and set(site._runs) == {"run"}
    told(site, Settle("run", 1, 3, 3, (), over=True))
    assert site._runs == {}


def test_a_cap_is_counted_under_the_adjacency_of_the_schedule(make, terms):
    site = make(make_algorithm=banded, seed=None)
    begin = begin_of(terms)
    assigned = site._assigned(begin)
    assert assigned.algorithm.schedule.adjacency != "add-remove"
    assert site._payer(begin, assigned)._cap.adjacency == assigned.algorithm.schedule.adjacency
