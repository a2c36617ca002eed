from dataclasses import replace

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from fedsynth.data.clients import Clients
from fedsynth.errors import BudgetExhausted, Incompatible
from fedsynth.federation.algorithm import Algorithm, Home
from fedsynth.federation.fedbuff import FedBuff
from fedsynth.federation.loop import ask, gather, learn_balance, run, with_opening_answer
from fedsynth.federation.schedule import Clock, PoissonCohort
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import When
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.simulator.speeds import Speeds
from fedsynth.simulator.virtual_clock import VirtualClock
from fedsynth.synthesis.payer import Payer
from fedsynth.transport.clear import Clear


def free(*_):
    return None


def trained(algorithm, clients, *, seed=1, chunk=None, pay=free, seen=free, link=None):
    rng = Rng(seed)
    link = link or InProcess(clients, rng, chunk=chunk)
    return run(algorithm, link, algorithm.init(rng.at("init")), rng, pay, seen, algorithm.rounds)


def test_nothing_is_noised_or_stepped_before_it_is_paid_for(build, ten, monkeypatch):
    happened = []
    estimate, opened = CentralGaussian.estimate, Clear.open
    monkeypatch.setattr(CentralGaussian, "estimate", lambda *a: happened.append("estimate") or estimate(*a))
    monkeypatch.setattr(Clear, "open", lambda *a: happened.append("open") or opened(*a))
    trained(
        build("dpd_fvae"), ten["table"],
        pay=lambda *_: happened.append("pay"), seen=lambda *_: happened.append("seen"),
    )  # fmt: skip
    assert happened == ["pay", "open", "estimate", "seen"] * 3


def test_a_refused_payment_releases_nothing(build, ten, monkeypatch):
    drawn, seen = [], []
    monkeypatch.setattr(CentralGaussian, "estimate", lambda *a: drawn.append(a))

    def refuse(*_):
        raise BudgetExhausted("spent")

    with pytest.raises(BudgetExhausted):
        trained(build("dpd_fvae"), ten["table"], pay=refuse, seen=lambda *a: seen.append(a))
    assert not drawn and not seen
    algorithm = build("dpd_fvae")
    with pytest.raises(BudgetExhausted):
        learn_balance(algorithm, InProcess(ten["table"], Rng(1)), algorithm.init(Rng(1)), Rng(1), refuse)
    assert not drawn


def test_a_round_is_charged_with_the_sampling_that_drew_it(build, ten):
    bills = []
    algorithm = build("fvae", rate=0.25, noise_multiplier=1.5)
    trained(algorithm, ten["table"], pay=lambda *bill: bills.append(bill))
    assert [when for when, _, _ in bills] == [When(1), When(2), When(3)]
    for version, (_, (charge,), ids) in enumerate(bills):
        assert charge.event == PoissonSampledDpEvent(0.25, GaussianDpEvent(1.5)) and charge.holder == "server"
        assert (ids == PoissonCohort(10, 0.25).start(Clock(version), Rng(1))).all()


def test_dp_sgd_is_charged_step_by_step_for_records(build):
    (charge,) = build("central_vae", clients=1).charges()
    rate = 4 / 38
    assert charge.event == PoissonSampledDpEvent(rate, GaussianDpEvent(1.0))
    assert charge.release.count == round(1 / rate) and charge.release.unit == "record"


@pytest.mark.parametrize("name", ["fvae", "dpd_fvae"])
def test_the_loss_in_the_history_is_noisy_under_privacy(name, build, ten):
    losses = {}
    for noise in (0.0, 50.0):
        lines = []
        algorithm = build(name, noise_multiplier=noise, rounds=1)
        for seed in (1, 2, 3):
            rng = Rng(seed)
            link = InProcess(ten["table"], Rng(1))  # the same training, other noise
            state = algorithm.init(Rng(1))
            algorithm_all = replace(algorithm, schedule=PoissonCohort(10, 1.0))
            run(
                algorithm_all, link, state, rng, free, lambda _, done, lines=lines: lines.append(done.loss), 1
            )
        losses[noise] = np.array(lines)
    assert np.ptp(losses[0.0]) == 0
    assert np.ptp(losses[50.0]) > algorithm.loss_bounds[1]  # a loss far outside what any client may report


def test_a_client_whose_update_is_not_a_number_does_not_poison_the_sum(build, ten):
    algorithm = replace(build("dpd_fvae", noise_multiplier=0.0), schedule=PoissonCohort(10, 1.0))
    clients = ten["table"]
    rows = clients.x.clone()
    rows[clients.offsets[8] : clients.offsets[9]] = float("nan")
    spoilt = replace(clients, encoded=rows)
    state = algorithm.init(Rng(1))
    sums = [
        gather(algorithm, algorithm.schedule, algorithm.transport, InProcess(c, Rng(1)), state, Rng(1))[0]
        for c in (clients, spoilt)
    ]
    ids = np.array([8])
    alone, _ = algorithm.client_round(
        state, {k: v[None] for k, v in algorithm.blank(state).items()}, clients.gather(ids), ids,
        Rng(1).at("client", "Algorithm", 0),
    )  # fmt: skip
    assert torch.isfinite(sums[1]).all()
    torch.testing.assert_close(sums[0] - alone[0].double(), sums[1], rtol=0, atol=1e-5)
    assert torch.isfinite(trained(algorithm, spoilt).parts["decoder"]).all()


def test_an_empty_cohort_is_a_round_of_noise_alone(build, ten):
    algorithm = build("dpd_fvae", rate=1e-6, rounds=1)
    lines = []
    state = trained(algorithm, ten["table"], seen=lambda _, done: lines.append(done))
    assert lines[0].clients == 0 and lines[0].bytes_up == 0
    assert torch.isfinite(state.parts["decoder"]).all()


def test_one_client_moves_the_sum_by_at_most_the_clip(build, ten):
    algorithm = build("dpd_fvae", clip=0.01, learning_rate=1.0)
    ids = np.arange(10)
    state = algorithm.init(Rng(1))
    memory = {name: value.expand(10, -1) for name, value in algorithm.blank(state).items()}
    messages, _ = algorithm.client_round(state, memory, ten["table"].gather(ids), ids, Rng(1))
    norms = messages.double().norm(dim=1)
    assert norms.max() <= 0.01 and norms.max() > 0.0099


def test_a_client_without_rows_sends_nothing(build, ten):
    for name in ("fvae", "dpd_fvae"):
        algorithm = build(name)
        state = algorithm.init(Rng(1))
        memory = {key: value[None] for key, value in algorithm.blank(state).items()}
        message, kept = algorithm.client_round(state, memory, ten["table"].gather([0]), np.array([0]), Rng(1))
        assert not message.any()
        assert all(torch.equal(kept[key], memory[key]) for key in kept)


def test_a_client_whose_training_diverged_sends_nothing_and_forgets_it_also_without_a_clip(build, ten):
    algorithm = build(
        "dpd_fvae", private=False, learning_rate=1e12, encoder_learning_rate=1e12, optimizer="sgd"
    )
    state, ids = algorithm.init(Rng(1)), np.array([8, 0])
    memory = {key: value.expand(2, -1) for key, value in algorithm.blank(state).items()}
    messages, kept = algorithm.client_round(state, memory, ten["table"].gather(ids), ids, Rng(1))
    assert torch.isfinite(messages).all() and not messages.any()
    assert all(torch.equal(kept[key], memory[key]) for key in kept)


def test_the_encoder_of_dpd_fvae_stays_with_its_client(build, ten):
    algorithm = build("dpd_fvae")
    assert algorithm.shared == ("decoder",)
    before = algorithm.init(Rng(1).at("init"))
    after = trained(algorithm, ten["table"])
    assert torch.equal(before.parts["encoder"], after.parts["encoder"])  # the public start, never a client's
    assert not torch.equal(before.parts["decoder"], after.parts["decoder"])
    assert algorithm.dim == len(after.parts["decoder"]) + 1


def test_dpd_fvae_keeps_the_encoders_optimizer_and_starts_the_decoders_afresh(build, ten):
    algorithm = build("dpd_fvae", optimizer="adam", rate=1.0)
    link = InProcess(ten["table"], Rng(1))
    state = trained(algorithm, ten["table"], link=link)
    blank = algorithm.blank(state)
    assert set(blank) == {"encoder", "encoder/first", "encoder/second", "encoder/steps"}
    memory = link.store.read(np.arange(10), blank)
    steps = memory["encoder/steps"].flatten().tolist()
    assert steps == [3 * -(-rows // 4) for rows in ten["table"].sizes]


def test_parts_without_a_home_are_refused(build):
    with pytest.raises(Incompatible, match="home"):
        replace(build("fvae"), homes={"encoder": Home.SHARED})


def test_a_transport_that_cannot_carry_the_message_is_refused(build):
    algorithm = build("fvae")
    with pytest.raises(Incompatible, match="carries"):
        replace(algorithm, transport=replace(algorithm.transport, carries=("ring",)))


def break_model(monkeypatch, version):
    """From now on the decoder that this version steps to is no number."""
    step = Algorithm.server_round

    def broken(self, state, total, rng, weight=1.0):
        after, loss = step(self, state, total, rng, weight)
        if after.version == version:
            after.parts["decoder"][0] = float("nan")
        return after, loss

    monkeypatch.setattr(Algorithm, "server_round", broken)


@pytest.mark.parametrize("buffered", [False, True])
def test_a_run_that_diverges_pays_for_its_whole_plan(build, ten, monkeypatch, buffered):
    break_model(monkeypatch, 2)
    algorithm = build("fvae_record", rounds=5)
    if buffered:
        algorithm = replace(algorithm, schedule=FedBuff(10, 6, 3))
    bills, told, rng = [], [], Rng(1)
    link, start = InProcess(ten["table"], rng), algorithm.init(rng.at("init"))
    state = run(algorithm, link, start, rng, lambda *bill: bills.append(bill), free, 5, tell=told.append)
    assert state.version == 1 and told[0].startswith("round 2: decoder has diverged") and len(bills) == 3
    when, charges, ids = bills[-1]
    assert (
        when.note.startswith("rounds 3 to 5, planned and not run") and len(ids) == 0 and ids.dtype == np.int64
    )
    planned = algorithm.charges()
    uses = np.bincount(np.concatenate([bill[2] for bill in bills[:2]]).astype(int)).max()
    left = 5 - uses if buffered else 3
    assert [charge.event for charge in charges] == [charge.event for charge in planned]
    assert [charge.release.count for charge in charges] == [left * charge.release.count for charge in planned]


def test_a_query_is_paid_for_once_by_all_who_were_asked(build, ten):
    algorithm, bills = build("dpd_fvae"), []
    answers = []
    for seed in (1, 1, 2):
        rng = Rng(seed)
        link, start = InProcess(ten["table"], rng), algorithm.init(rng.at("init"))
        state = learn_balance(algorithm, link, start, rng, lambda *bill: bills.append(bill))
        answers.append(state.balance)
        assert learn_balance(algorithm, link, state, rng, free) is state  # what is known is not asked again
    assert len(bills) == 3 and bills[0][:2] == (When(), algorithm.opening.charges())
    assert sorted(bills[0][2]) == list(range(10))
    assert torch.equal(answers[0], answers[1]) and not torch.equal(answers[0], answers[2])
    assert float(answers[0].sum()) == pytest.approx(1.0)


def test_a_round_is_told_with_its_numbers(build, ten):
    rounds = []
    trained(build("fvae", rate=1.0, rounds=2), ten["table"], seen=lambda _, done: rounds.append(done))
    assert [(one.version, one.clients, one.dropped, one.simulated_s) for one in rounds] == [
        (1, 10, 0, None),
        (2, 10, 0, None),
    ]
    assert all(one.seconds > 0 and one.bytes_up > 0 and one.bytes_down > 0 for one in rounds)


def test_where_the_server_pays_a_run_that_diverges_pays_for_the_rounds_that_are_left_if_any(
    build, ten, monkeypatch
):
    break_model(monkeypatch, 2)
    for rounds, expected in ((5, [1, 1, 3]), (2, [1, 1])):
        payer, words, rng = Payer(Ledger(None), "run"), [], Rng(1)
        algorithm = build("fvae", rounds=rounds, rate=1.0)
        link, start = InProcess(ten["table"], rng), algorithm.init(rng.at("init"))
        run(algorithm, link, start, rng, payer.pay, free, rounds, tell=words.append)
        assert [line.count for line in payer.ledger.lines()] == expected
        assert words[0].endswith("more clients in a round; training ends with the model of round 1")


def test_every_round_and_every_question_has_noise_of_its_own(build, ten):
    algorithm = build("fvae", clients=1, rate=1.0)
    nothing = Clients(ten["table"].x[:0], ten["table"].y[:0], np.array([0, 0]))  # noise alone
    link, start = InProcess(nothing, Rng(1)), algorithm.init(Rng(1).at("init"))
    after = [
        run(algorithm, link, replace(start, version=version), Rng(1), free, free, version + 1)
        for version in (0, 1)
    ]
    assert not torch.equal(after[0].parts["decoder"], after[1].parts["decoder"])
    one = algorithm.opening
    other = replace(one, what="another question")
    answers = [ask(query, link, start, Rng(1), free) for query in (one, other, one)]
    assert torch.equal(answers[0], answers[2]) and not torch.equal(answers[0], answers[1])


class Witnessed(InProcess):
    """Clients in this process, some of whom are away, and a record of what the loop says."""

    def __init__(self, clients, away=(), later=()):
        super().__init__(clients, Rng(1), chunk=1)
        self.away, self.later, self.arrivals, self.asked, self.commits = away, later, 0, [], 0

    def start(self, job, ids, state):
        self.asked.append((self.arrivals, ids.tolist()))
        super().start(job, ids, state)

    def next(self):
        self.arrivals += 1
        return super().next()

    def absent(self, *, for_good=False):
        gone = [*self.away, *(self.later if self.arrivals else ())]
        return np.array([] if for_good else gone, dtype=np.int64)

    def commit(self, ids=None):
        self.commits += 1
        super().commit(ids)


def test_a_link_hears_of_every_step(build, ten):
    link, commits = Witnessed(ten["table"]), []
    trained(build("fvae"), ten["table"], link=link, seen=lambda *_: commits.append(link.commits))
    assert commits == [1, 2, 3]  # before anybody else hears of it


def test_who_is_away_is_not_asked_at_the_beginning_nor_in_the_place_of_others(build, ten):
    algorithm = replace(build("fvae_record", rounds=1), schedule=FedBuff(10, 3, 3))

    def asked(away, later):
        link = Witnessed(ten["table"], away, later)
        gather(algorithm, algorithm.schedule, algorithm.transport, link, algorithm.init(Rng(1)), Rng(1))
        return link.asked[0][1], {client for _, ids in link.asked[1:] for client in ids}

    away = asked((), ())[0]
    first, usual = asked(away, ())
    assert len(first) == len(away) == 3 and not {*first} & {*away} and usual and not usual & {*away}
    again, instead = asked(away, tuple(usual))
    assert again == first and len(instead) == len(usual) and not instead & {*away, *usual}


def test_clients_who_pay_themselves_are_written_down_before_they_are_waited_for(build, ten):
    algorithm = replace(build("fvae_record", rounds=1), schedule=FedBuff(10, 4, 4))
    link, written = Witnessed(ten["table"]), []
    start = algorithm.init(Rng(1))
    run(
        algorithm, link, start, Rng(1), free, free, 1,
        ahead=lambda state: written.append((link.arrivals, state.standing["busy"].tolist())),
    )  # fmt: skip
    assert written[0] == (0, sorted(link.asked[0][1])) and len(written[0][1]) == 4


def test_simulated_time_is_told_and_goes_on(build, ten):
    rounds, rng = [], Rng(1)
    link = VirtualClock(InProcess(ten["table"], rng), Speeds(), rng)
    algorithm = replace(build("fvae_record"), schedule=FedBuff(10, 4, 2))
    trained(algorithm, ten["table"], link=link, seen=lambda _, done: rounds.append(done.simulated_s))
    assert rounds[0] > 0 and rounds == sorted(rounds) and len(set(rounds)) == 3


def test_where_nobody_comes_the_sum_has_weight_one(build, ten):
    algorithm = build("fvae", rate=1e-9)
    link, start = InProcess(ten["table"], Rng(1)), algorithm.init(Rng(1))
    heard = gather(algorithm, algorithm.schedule, algorithm.transport, link, start, Rng(1))
    assert heard.weight == 1.0 and heard.clients == 0 and not heard.total.any()


def test_a_question_says_itself_what_is_learned_from_its_answer(build):
    algorithm, answer = build("dpd_fvae"), torch.tensor([3.0, 1.0])
    start = algorithm.init(Rng(1))
    plain = with_opening_answer(algorithm, start, answer, Rng(1))
    assert plain.balance.tolist() == [0.75, 0.25]
    heard = []
    learning = replace(algorithm.opening, learn=lambda *told: heard.append(told) or plain)
    assert with_opening_answer(replace(algorithm, opening=learning), start, answer, Rng(1)) is plain
    assert heard[0][0] is start and heard[0][1] is answer
    assert heard[0][2].at("x").uniforms(3).tolist() == Rng(1).at("learn").at("x").uniforms(3).tolist()
