"""Single attacks by a lying server, each once and in full: from the bytes, not from the site's books."""

from dataclasses import replace

import pytest
from schedule import KINDS, Kind, attacked, planned
from small_world import HOME, NAMES, ROUNDS, VICTIM

from fedsynth.deploy.link.messages import Settle

TWO = KINDS["masked sums of two sites"]


def quiet(server):
    """A server that lies only where it is told to."""
    server.often = 0.0
    server.begin("run", server.terms)
    return server.runs.get("run")


def ask_each_round(server, job="round", times=ROUNDS):
    run = server.runs["run"]
    server.questions = 1.0 if job == "balance" else 0.0
    for version in range(times):
        run.version = version
        server.ask(run)


@pytest.mark.parametrize("kind", ["clear sums", "local noise", "masked sums of two sites"])
def test_an_honest_run_is_covered_and_all_its_sums_are_opened(kind, tape):
    """The harness sees what it should: without a lie each round gives a sum, and the ledger covers them tightly."""

    def attack(server):
        quiet(server)
        ask_each_round(server)

    assert attacked(tape, KINDS[kind], attack)["sum"] == ROUNDS


def test_a_server_that_asks_one_client_of_each_site_strips_no_noise(tape):
    """One share in three would be left of the noise: epsilon of 22 where 5 was stated."""

    def attack(server):
        quiet(server)
        server.forced["ids"] = [VICTIM]
        ask_each_round(server)

    attacked(tape, replace(TWO, honest=NAMES), attack)


@pytest.mark.parametrize(
    "kind", ["masked sums with a participant that helps", "masked sums of three, one helps"]
)
def test_who_knows_its_own_share_of_the_noise_learns_no_more_than_is_stated(kind, tape):
    """Two sites at 3.0 were 5.25 against each other, three 4.09."""

    def attack(server):
        quiet(server)
        ask_each_round(server)

    attacked(tape, KINDS[kind], attack)


def test_a_policy_counts_a_local_run_as_its_own_statement_does(tape):
    """A client's row replaced by its opposite moves its message by two clips, not by one."""

    def attack(server):
        quiet(server)
        if server.runs:
            ask_each_round(server)

    name = "local noise, a row replaced"
    attacked(tape, KINDS[name], attack, budget=1.001 * planned(name))


@pytest.mark.parametrize("trust", ["central", "local", "distributed"])
def test_a_question_that_is_asked_at_every_version_is_paid_for_each_time(trust, tape):
    """Answers with fresh noise average it out: the question before the first round is one release, or several lines."""
    kind = Kind(trust, 0, ("ada", "bern") if trust == "distributed" else (HOME,))

    def attack(server):
        quiet(server)
        ask_each_round(server, "balance", times=12)

    attacked(tape, kind, attack)


def test_what_was_paid_under_other_terms_pays_for_nothing(tape):
    """Rounds paid at a hundred clips of noise, whose stages were left out, do not pay for rounds with half a clip."""

    def attack(server):
        server.often = 0.0
        noisy = replace(server.terms, values={**server.terms.values, "noise_multiplier": 100.0})
        quiet_terms = replace(server.terms, values={**server.terms.values, "noise_multiplier": 0.5})
        server.begin("run", noisy)
        run = server.runs["run"]
        for version in range(ROUNDS):
            run.version = version
            orders = server.work(run, "round")
            for site, work in orders.items():
                server.tell(replace(work, since=0), site)  # no stages: it is paid, and nothing can be sealed
        server.begin("run", quiet_terms)
        ask_each_round(server)

    attacked(tape, TWO, attack)


def test_rounds_that_were_only_settled_pay_for_no_other_terms(tape):
    def attack(server):
        server.often = 0.0
        noisy = replace(server.terms, values={**server.terms.values, "noise_multiplier": 100.0})
        server.begin("run", noisy)
        run = server.runs["run"]
        server.tell(Settle("run", run.session, ROUNDS, 0, ()))
        server.begin("run", replace(noisy, values={**noisy.values, "noise_multiplier": 0.5}))
        ask_each_round(server)
        reasons = [answer.reason for answer in server.answers if answer.kind == "refuse"]
        assert any("plan of this run is not the one that it began with" in reason for reason in reasons)

    attacked(tape, KINDS["clear sums of sampled clients"], attack)


@pytest.mark.parametrize("version", [ROUNDS + 1, 3000, 2**50])
def test_one_message_about_a_round_that_never_was_costs_nothing(version, tape):
    """`Settle(version=3000)` in a run of three rounds wrote three thousand lines."""

    def attack(server):
        run = quiet(server)
        server.tell(Settle("run", run.session, version, 0, ()))

    attacked(tape, KINDS["clear sums of sampled clients"], attack, budget=12.0, agreed=12.0)


def test_work_for_a_round_beyond_the_last_one_writes_no_more_than_it_sends(tape):
    def attack(server):
        run = quiet(server)
        run.version = 3000
        server.ask(run)

    attacked(tape, KINDS["clear sums of sampled clients"], attack, budget=1e6, agreed=1e6)


@pytest.mark.parametrize("sessions", [2, 20])
def test_a_server_that_is_started_again_and_again_averages_no_noise_out(sessions, tape):
    def attack(server):
        server.often = 0.0
        server.questions = 0.0
        for _ in range(sessions):
            server.begin("run", server.terms)
            server.ask(server.runs["run"])
            server.runs["run"].version = 0

    attacked(tape, TWO, attack, agreed=6.0)


@pytest.mark.parametrize(
    "lie", [{"survivors": (0,)}, {"survivors": (0, 1)}, {"sharers": []}, {"cohort": ["ada", "bern"]}]
)
def test_a_helper_and_two_lists_of_survivors_open_no_single_vector(lie, tape):
    """The server shows each site other survivors, and the one that helps signs every list."""

    def attack(server):
        quiet(server)
        server.forced |= lie
        ask_each_round(server)

    attacked(tape, KINDS["masked sums of three, one helps"], attack)


@pytest.mark.parametrize("claimed", [1, 5, 30])
def test_a_participant_that_claims_more_clients_than_it_has_takes_no_noise_away(claimed, tape):
    def attack(server):
        server.often = 0.0
        server.forced["clients"] = claimed
        server.terms = replace(server.terms, clients=3 + claimed)
        quiet(server)
        ask_each_round(server)

    attacked(tape, KINDS["masked sums with a participant that helps"], attack)
