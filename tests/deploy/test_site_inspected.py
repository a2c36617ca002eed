"""A site asked for an inspection, or with another schema: what it allows, and what it says."""

from dataclasses import replace

import pytest
from dp_accounting import GaussianDpEvent
from test_site import make, started, terms, told, work_of  # noqa: F401
from test_site_rules import POLICY, begin_of

from fedsynth.data.schema import Schema
from fedsynth.deploy.link.messages import Accept, Done, Invite, Result
from fedsynth.deploy.participation import compose
from fedsynth.deploy.site.look import Assigned
from fedsynth.deploy.site.policy import _difference
from fedsynth.deploy.site.run import Refusal
from fedsynth.errors import BadInput

# ruff: noqa: F811


def test_an_inspection_needs_a_policy_and_a_job_of_its_own(make, terms):
    looking = replace(terms, inspection={"step": "count"})
    answer = told(make(), Invite("run", looking))
    assert answer.code == "policy" and answer.reason.startswith(
        "inspections are not allowed here; whoever owns"
    )
    willing = replace(POLICY, inspect=True)
    for message in (Invite("run", looking), begin_of(looking)):
        answer = told(make(willing), message)
        assert answer.code == "policy" and "an inspection is a job of its own" in answer.reason


class Strict:
    """An inspector that refuses for a reason that is no secret, or fails."""

    def __init__(self, error):
        self.error = error

    def agree(self, terms):
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (BadInput("the question is not known here"), "policy", "the question is not known here"),
        (Refusal("turns", "not now"), "turns", "not now"),
        (KeyError("Zwingli"), "error", "the site failed (KeyError)"),
    ],
)
def test_what_is_wrong_with_an_inspection_is_told_where_no_row_was_seen(make, terms, error, code, reason):
    site = make(replace(POLICY, inspect=True), look=Strict(error))
    answer = told(site, Invite("run", replace(terms, inspection={"step": "count"})))
    assert answer.code == code and reason in answer.reason and "Zwingli" not in answer.reason


class Inspector:
    """A look that trains on what the clients hold, in a job of one kind."""

    def __init__(self, schema, clients):
        self.schema, self.clients, self.asked = schema, clients, []

    def agree(self, terms):
        self.asked.append(("agree", terms))

    def allows(self, terms, job):
        self.asked.append(("allows", terms, job))
        return job == "round"

    def assigned(self, begin):
        algorithm = compose(replace(begin.terms, inspection={}), self.schema)
        return Assigned(algorithm, lambda: self.clients, ("look", 1), "look", ())


def test_a_step_of_an_inspection_is_a_run_of_its_agreement(make, terms, schema):
    looking = replace(terms, inspection={"step": "count"})
    look = Inspector(schema, make().holding.clients)
    site = make(replace(POLICY, inspect=True), look=look)
    site.ledger.append(GaussianDpEvent(9.0), what="earlier step", run="look-1")
    answer, state = started(site, looking)
    assert isinstance(answer, Done) and [kind for kind, *_ in look.asked] == ["agree"]
    assert [line.run for line in site._run("run").payer._own.lines()] == ["look-1"]
    assert isinstance(told(site, work_of(state)), Result)
    kind, shown, job = look.asked[-1]
    assert (kind, shown.inspection, job) == ("allows", {"step": "count"}, "round")
    answer = told(site, work_of(state, job="balance"))
    assert (
        answer.code == "message"
        and answer.reason == "job='balance': this step of an inspection has no such job"
    )


def test_schemas_are_the_same_whoever_paid_for_their_bounds_and_however_they_are_spelled(make, terms, schema):
    columns = [dict(reversed(column.items())) for column in terms.schema["columns"]]
    spelled = {**terms.schema, "columns": columns, "provenance": {"age": "paid"}, "client": "visit"}
    assert isinstance(told(make(), Invite("run", replace(terms, schema=spelled))), Accept)
    own = replace(schema, provenance={"age": "public"}, client="owner")
    assert _difference(terms.schema, own) == ""


def test_long_values_are_cut_where_schemas_differ(schema):
    long = [{"name": letter * 100, "type": "binary", "categories": ["no", "yes"]} for letter in "uv"]
    own = Schema.from_dict({"version": 1, "kind": "table", "label": "u" * 100, "columns": long})
    asked = {**own.to_dict(), "label": "v" * 100}
    assert _difference(asked, own) == f"label is {'v' * 80}, here it is {'u' * 80}"
