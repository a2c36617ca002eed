"""What a site does and does not do, whatever it is asked."""

import resource
import signal
from dataclasses import replace

import pytest
import torch
from three_sites import conducted, holdings, make_sites, part_of, queue_of, terms_for

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
    Status,
    Work,
    read,
    write,
)
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.participation import compose
from fedsynth.deploy.site.site import Holding, Site, SitePolicy
from fedsynth.errors import BadInput
from fedsynth.federation.schedule import Rotation
from fedsynth.privacy.banded import BandedGaussian
from fedsynth.privacy.budget import Budget
from fedsynth.privacy.clip import Clip
from fedsynth.rng import Rng

VALUES = {
    "latent": 2, "hidden": (4,), "rounds": 3, "rate": 0.8, "noise_multiplier": 2.0, "batch_size": 4,
}  # fmt: skip
POLICY = SitePolicy(Budget(1e6, 1e-5), ("dpd_fvae",), ("clear",), minimum_cohort=2)


@pytest.fixture
def terms(schema):
    return terms_for("dpd_fvae", schema, VALUES, minimum_cohort=2)


@pytest.fixture
def make(schema, ten, tmp_path):
    def made(policy=POLICY, seed=1, folder=tmp_path / "site", make_algorithm=compose, **more):
        holding = holdings(ten["table"], schema)["bern"]
        return Site(holding, policy, folder, make_algorithm, seed=seed, **more)

    return made


def started(site, terms, session=1, make_algorithm=compose):
    """The site after it began, and the algorithm and the state of the server."""
    algorithm = make_algorithm(terms, site.holding.schema)
    state = algorithm.init(Rng(1).at("init"))
    begin = Begin("run", session, terms, 3, 3, {"encoder": state.parts["encoder"]})
    return read(site.handle(write(begin))), state


def work_of(state, ids=(3, 5), version=0, session=1, **changes):
    tensors = {"ids": torch.tensor(ids), "parts/decoder": state.parts["decoder"]}
    given = {
        "sites": 3,
        "since": version,
        "used": (),
        "part": 0,
        "job": "round",
        "tensors": tensors,
        **changes,
    }
    return Work("run", session, version=version, **given)


def told(site, message):
    return read(site.handle(write(message)))


def test_a_site_says_how_many_clients_it_has_and_no_more(make, terms):
    answer = told(make(), Invite("run", terms))
    assert isinstance(answer, Accept) and answer.clients == 3 and answer.seeded


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"recipe": "fvae"}, "recipe='fvae': not allowed here; allowed: dpd_fvae"),
        ({"transport": "he"}, "transport='he': not allowed here; allowed: clear"),
        ({"private": False}, "without privacy"),
        ({"minimum_cohort": 1}, "only with 2 sites or more"),
    ],
)
def test_what_the_policy_does_not_allow_is_refused_with_the_reason(make, terms, change, reason):
    site = make()
    answer = told(site, Invite("run", replace(terms, **change)))
    assert isinstance(answer, Refuse) and reason in answer.reason and answer.code == "policy"
    assert site.audit.lines()[-1]["reason"] == answer.reason


def test_another_schema_is_refused_and_the_difference_named(make, terms):
    columns = [dict(column) for column in terms.schema["columns"]]
    for change, reason in (
        ({"label": "sex"}, "label is sex, here it is ill"),
        ({"columns": [{**columns[0], "name": "agee"}, *columns[1:]]}, "column 'agee': did you mean 'age'?"),
        ({"columns": [{**columns[0], "max": 120}, *columns[1:]]}, "its columns differ"),
    ):
        answer = told(make(), Invite("run", replace(terms, schema={**terms.schema, **change})))
        assert isinstance(answer, Refuse) and reason in answer.reason


def test_a_run_over_the_budget_is_refused_before_its_first_round(make, terms):
    site = make(replace(POLICY, budget=Budget(0.5, 1e-5)))
    answer, _ = started(site, terms)
    assert isinstance(answer, Refuse) and answer.code == "budget" and answer.final
    assert "over the budget of 0.5" in answer.reason and site.ledger.lines() == []


def test_no_more_is_spent_than_was_agreed_whatever_the_server_asks(make, terms):
    cheap = replace(
        terms, values={**VALUES, "rate": 1.0}, epsilon=4.0
    )  # three rounds cost about 3.9 with the balance
    site = make(seed=None)
    answer, state = started(site, cheap)
    assert isinstance(answer, Done)
    answers = []
    for session in range(1, 30):
        if session > 1:
            assert isinstance(started(site, cheap, session)[0], Done | Refuse)
        answers.append(told(site, work_of(state, session=session)))
    refused = [one for one in answers if isinstance(one, Refuse)]
    assert isinstance(answers[0], Result) and refused and refused[-1].code == "budget"
    assert site.ledger.epsilon(1e-5) <= 4.0 + 1e-6


@pytest.fixture
def two_runs(make, terms):
    """A site whose budget is enough for one of two runs, the first of them begun; and the start of the second."""
    cheap = replace(terms, values={**VALUES, "rate": 1.0}, epsilon=4.0)
    site = make(replace(POLICY, budget=Budget(4.5, 1e-5)), seed=None)
    _, state = started(site, cheap)
    return site, state, Begin("other", 1, cheap, 3, 3, {"encoder": state.parts["encoder"]})


def test_the_budget_that_a_run_was_promised_is_not_promised_to_another(two_runs):
    site, state, begin = two_runs
    refused = told(site, begin)
    assert (refused.code, refused.final) == ("budget", True) and not site.ledger.lines()
    assert (
        "over the budget of 4.5" in refused.reason and "reserved for run until that is over" in refused.reason
    )
    answers = [told(site, work_of(state, version=version)) for version in range(3)]
    assert all(isinstance(one, Result) for one in answers), "the promise is kept"
    assert site.ledger.epsilon(1e-5) <= 4.5


def test_what_a_run_did_not_use_is_free_for_others_when_it_is_over(two_runs):
    site, _, begin = two_runs
    assert isinstance(told(site, Settle("run", 1, 0, 0, (), over=True)), Done)
    assert not site.ledger.lines() and site.reserved.names() == []
    assert isinstance(told(site, begin), Done)


def test_the_rest_of_a_plan_that_stops_early_can_always_be_charged(two_runs):
    site, state, begin = two_runs
    told(site, work_of(state))
    told(site, begin)
    told(site, Settle("run", 1, 1, 1, (), over=True))
    assert [line.count for line in site.ledger.lines() if "not run" in line.what] == [2]
    assert not any("not charged" in line["what"] for line in site.audit.lines())


def test_a_run_that_its_server_gave_up_is_ended_by_the_site(two_runs, make):
    site, state, begin = two_runs
    told(site, work_of(state))
    assert site.open_runs() == ["run"]
    site.end("run")
    assert site.open_runs() == [] == site.reserved.names()
    assert sum(line.count for line in site.ledger.lines() if line.run == "run") == 3
    with pytest.raises(BadInput, match="run run: this site is in no run of that name"):
        site.end("run")


def test_the_same_work_is_answered_with_the_same_bytes_and_paid_once(make, terms):
    site = make(seed=None)  # fresh noise each time, if it drew any
    _, state = started(site, terms)
    first = site.handle(write(work_of(state)))
    lines = len(site.ledger.lines())
    assert site.handle(write(work_of(state))) == first
    again = make(seed=None)  # the process was started anew
    assert again.handle(write(work_of(state))) == first
    assert len(again.ledger.lines()) == lines


def test_another_question_about_an_answered_version_is_refused(make, terms):
    site = make()
    _, state = started(site, terms)
    assert isinstance(told(site, work_of(state)), Result)
    answer = told(site, work_of(state, ids=(3, 4)))
    assert isinstance(answer, Refuse) and answer.code == "stale"


def test_local_noise_is_drawn_once_a_version_even_for_a_server_that_was_started_again(make, schema):
    terms = terms_for("dpd_fvae", schema, VALUES, trust="local", minimum_cohort=2)
    site = make(seed=None)
    _, state = started(site, terms)
    first = site.handle(write(work_of(state)))
    spent = len(site.ledger.lines())
    assert isinstance(started(site, terms, session=2)[0], Done)
    assert (
        site.handle(write(work_of(state, ids=(4, 5), session=2))) == first
    )  # those who answered, not those asked
    assert len(site.ledger.lines()) == spent
    moved = replace(state, parts={**state.parts, "decoder": state.parts["decoder"] + 1})
    assert isinstance(told(site, work_of(moved, ids=(4, 5), session=2)), Result)  # another release: paid for
    assert len(site.ledger.lines()) == spent + 2
    assert {line.holder for line in site.ledger.lines()} <= {
        "client bern-0",
        "client bern-1",
        "client bern-2",
    }


def test_a_server_that_was_replaced_is_not_obeyed(make, terms):
    site = make()
    _, state = started(site, terms, session=2)
    answer = told(site, work_of(state, session=1))
    assert isinstance(answer, Refuse) and answer.code == "session"
    assert started(site, terms, session=1)[0].code == "session"


def test_rounds_in_which_nobody_here_was_drawn_are_paid_for(make, terms):
    site = make()
    started(site, terms)
    assert isinstance(told(site, Settle("run", 1, 2, 2, ())), Done)
    assert [line.what.rpartition(", ")[2] for line in site.ledger.lines()] == ["round 1", "round 2"]


def test_what_was_not_used_is_forgotten(make, terms, tmp_path):
    """A client whose result was lost sends in the next round what it would have sent without it."""
    sums = {}
    for case in ("used", "not used", "absent"):
        site = make(folder=tmp_path / case)
        _, state = started(site, terms)
        name = ""
        if case != "absent":
            name = told(site, work_of(state)).name
        later = work_of(state, version=1, used=(name,) if case == "used" else ())
        sums[case] = told(site, later).tensors["messages"]
    assert torch.equal(sums["not used"], sums["absent"])
    assert not torch.equal(sums["used"], sums["absent"])


def test_a_settled_version_is_not_done_again(make, terms):
    site = make()
    _, state = started(site, terms)
    told(site, Settle("run", 1, 2, 2, ()))
    answer = told(site, work_of(state, version=1, since=0))
    assert isinstance(answer, Refuse) and answer.code == "stale"


@pytest.mark.parametrize(
    "spoil, reason",
    [
        (lambda t: t | {"parts/decoder": t["parts/decoder"][:-1]}, "expected torch.float32"),
        (lambda t: t | {"parts/decoder": t["parts/decoder"].double()}, "torch.float64"),
        (lambda t: t | {"parts/encoder": t["parts/decoder"]}, "parts/encoder: missing or not expected"),
        (lambda t: {"ids": t["ids"]}, "parts/decoder: missing"),
        (lambda t: t | {"ids": torch.tensor([5, 3])}, "ascending numbers from 3 to 5"),
        (lambda t: t | {"ids": torch.tensor([3, 6])}, "ascending numbers from 3 to 5"),
        (lambda t: t | {"ids": torch.tensor([3, 3])}, "ascending"),
        (lambda t: t | {"ids": torch.tensor([], dtype=torch.int64)}, "one or more clients"),
        (lambda t: t | {"seed": torch.tensor([1])}, "seed: missing or not expected"),
    ],
)
def test_work_of_another_layout_is_refused_and_costs_nothing(make, terms, spoil, reason):
    site = make()
    _, state = started(site, terms)
    work = work_of(state)
    answer = told(site, replace(work, tensors=spoil(dict(work.tensors))))
    assert isinstance(answer, Refuse) and answer.code == "message" and reason in answer.reason
    assert site.ledger.lines() == []


def test_a_message_that_is_too_long_is_refused_unread(make, terms):
    answer = read(make(most_bytes=100).handle(write(Invite("run", terms))))
    assert isinstance(answer, Refuse) and "too long" in answer.reason


def test_other_messages_are_answered_or_refused_but_never_fatal(make, terms):
    site = make()
    assert isinstance(told(site, Status("run")), Report)
    assert told(site, work_of(compose(terms, site.holding.schema).init(Rng(1)))).code == "begin"
    _, state = started(site, terms)
    assert "no stages" in told(site, Stage("run", 1, 0, "keys", b"x")).reason
    assert "not asked that" in told(site, Done("run", "", 0)).reason
    assert told(site, work_of(state, job="shell")).code == "message"
    assert told(site, Status("../../etc")).reason.startswith("run '../../etc'")
    assert told(site, Settle("run", 1, 3, 3, (), over=True)).paid == 3
    assert not (site.folder / "runs" / "run" / "clients.bin").exists()
    assert told(site, work_of(state, version=3)).code == "stale"


def test_the_plan_cannot_change_once_somebody_worked(make, terms):
    site = make()
    _, state = started(site, terms)
    other = replace(terms, values={**VALUES, "noise_multiplier": 3.0})
    assert isinstance(started(site, other, session=2)[0], Done)  # nobody has worked yet
    told(site, work_of(state, session=2))
    answer, _ = started(site, terms, session=3)
    assert isinstance(answer, Refuse) and "not the one that it began with" in answer.reason


def test_a_full_disk_is_a_refusal_and_nothing_is_lost(make, terms):
    """The kernel refuses to let files grow: the round is refused, and done when there is room again."""
    site = make()
    _, state = started(site, terms)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for room in (0, 100, 400, 1000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
            answer = told(site, work_of(state))
            assert isinstance(answer, Refuse) and answer.code == "disk" and "cannot write" in answer.reason
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    answer = told(site, work_of(state))
    assert isinstance(answer, Result)
    fresh = make(folder=site.folder.parent / "other")
    started(fresh, terms)
    assert torch.equal(told(fresh, work_of(state)).tensors["messages"], answer.tensors["messages"])
    assert site.ledger.verify() == [] and site.audit.verify() == []
    assert len([line for line in site.ledger.lines() if line.count]) == 1


def test_the_ledger_stays_valid_when_the_clock_jumps(make, terms, monkeypatch):
    from datetime import UTC, datetime

    import fedsynth.privacy.ledger as module

    site = make()
    _, state = started(site, terms)
    told(site, work_of(state))

    class Past(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(1999, 12, 31, tzinfo=UTC)

    monkeypatch.setattr(module, "datetime", Past)
    told(site, work_of(state, version=1))
    assert site.ledger.lines()[-1].time.startswith("1999") and site.ledger.verify() == []


def test_what_a_mechanism_keeps_secret_is_not_sent(schema, ten, tmp_path):
    """The banded mechanism's earlier sums have no noise: they stay with the server."""
    terms = terms_for("dpd_fvae", schema, VALUES)

    def banded(terms, schema):
        made = compose(terms, schema)
        clip = made.mechanism.clip
        turns = Rotation(made.schedule.clients, 2)
        return replace(made, mechanism=BandedGaussian(Clip(clip.bound, clip.blocks), 2.0, 2), schedule=turns)

    sent = []
    sites = make_sites(ten["table"], schema, tmp_path)
    for site in sites.values():
        site._compose = banded
    channel = queue_of(sites)
    forward = channel.send
    channel.send = lambda name, payload: (sent.append(read(payload)), forward(name, payload))[1]
    state = conducted(Remote(channel, "run"), terms, banded(terms, schema))
    assert state.version == 3 and "sums" in state.mechanism
    names = {name for message in sent if isinstance(message, Work) for name in message.tensors}
    assert "mechanism/values" in names and not [name for name in names if "sums" in name]


def test_a_site_as_a_whole_is_one_client(schema, ten, tmp_path):
    policy = replace(POLICY, minimum_cohort=1)
    sites = {
        name: Site(
            Holding(part_of(ten["table"], 3 * number, 3).pooled(), (name,), schema),
            policy, tmp_path / name, compose, seed=1,
        )
        for number, name in enumerate(("ada", "bern"))
    }  # fmt: skip
    terms = terms_for("dpd_fvae", schema, {**VALUES, "rate": 1.0}, clients=2)
    remote = Remote(queue_of(sites), "run")
    state = conducted(remote, terms, compose(terms, schema))
    assert state.version == 3 and remote.roster.clients == 2


def test_a_recipe_that_pools_rows_is_refused(make, terms):
    policy = replace(POLICY, recipes=("central_vae",))
    pooled = replace(terms, recipe="central_vae", values={}, unit="record")
    answer = told(make(policy), Begin("run", 1, pooled, 3, 3, {}))
    assert isinstance(answer, Refuse) and "needs all rows in one place" in answer.reason
