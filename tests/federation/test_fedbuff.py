"""Buffered asynchrony: who may start, what a version is made of, and what it costs whom."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.errors import BadInput, Incompatible, NotPrivate
from fedsynth.federation.client_uses import ClientUses
from fedsynth.federation.fedbuff import FedBuff
from fedsynth.federation.loop import run
from fedsynth.federation.schedule import Clock, Everyone, Rotation, Sequential
from fedsynth.privacy.banded import BandedGaussian
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.local import LocalGaussian
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.simulator.speeds import Speeds
from fedsynth.simulator.virtual_clock import VirtualClock
from fedsynth.synthesis.payer import Payer
from fedsynth.transport.registry import transport_named

EVEN = Speeds(spread=0.0, jitter=0.0)
UNEVEN = Speeds(spread=0.7, stragglers=0.2, dropouts=0.15)


def free(*_):
    return None


def trained(algorithm, clients, speeds=UNEVEN, *, pay=free, seen=free, tell=free, seed=1):
    rng = Rng(seed)
    link = VirtualClock(InProcess(clients, rng), speeds, rng)
    start = algorithm.init(rng.at("init"))
    return run(algorithm, link, start, rng, pay, seen, algorithm.rounds, tell=tell)


def test_a_buffer_of_all_without_age_is_the_synchronous_round(build, ten):
    together = replace(build("fvae_record"), schedule=Everyone(10))
    buffered = replace(together, schedule=FedBuff(10, concurrency=10, buffer=10))
    one, other = (trained(made, ten["table"], EVEN) for made in (together, buffered))
    for part in one.parts:
        torch.testing.assert_close(other.parts[part], one.parts[part], rtol=0, atol=1e-6)
    assert other.standing["uses"].tolist() == [together.rounds] * 10


def simulated(schedule: FedBuff, versions: int, seed: int):
    """The clients of each version, when arrivals come in any order at all."""
    draw = np.random.default_rng(seed)
    standing, used = ClientUses.fresh(schedule.clients), []
    flying: list[int] = []
    for version in range(versions):
        clock = Clock(version, len(standing.busy), 0, standing)
        came: list[int] = []
        more = schedule.start(clock, Rng(seed))
        while True:
            flying += more.tolist()
            clock = clock.with_started(more)
            assert clock.in_flight == len(flying) <= schedule.concurrency
            if not flying:
                return used
            client = flying.pop(draw.integers(len(flying)))
            lost = draw.random() < 0.2
            gone = np.array([client] if lost else [], dtype=np.int64)
            came += [] if lost else [client]
            clock = clock.with_heard(0 if lost else 1, int(lost), gone)
            if schedule.ready(clock):
                break
            more = schedule.refill(clock, Rng(seed))
        standing = clock.standing.settled(np.array(came), version)
        used.append(came)
    return used


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 5), st.integers(0, 2), st.integers(0, 10**6))
def test_nobody_is_used_more_often_or_sooner_than_promised(buffer, separation, spare, turns, seed):
    clients = buffer * separation + spare
    schedule = FedBuff(clients, min(clients, buffer + spare), buffer, separation, turns)
    used = simulated(schedule, 12, seed)
    assert len(used) == 12 or turns  # without a bound on turns it never runs dry
    assert all(len(set(came)) == len(came) == buffer for came in used)
    counts = Counter(client for came in used for client in came)
    assert max(counts.values(), default=0) <= schedule.participations(len(used) or 1)
    for client in counts:
        versions = [version for version, came in enumerate(used) if client in came]
        assert all(b - a >= separation for a, b in zip(versions, versions[1:], strict=False))


def test_every_use_of_a_client_in_a_version_is_a_line_of_its_own(build, ten):
    algorithm = replace(build("fvae_record"), schedule=FedBuff(10, 6, 3), rounds=8)
    payer = Payer(Ledger(None), "run")
    state = trained(algorithm, ten["table"], pay=payer.pay)
    counts = Counter(int(line.holder) for line in payer.ledger.lines())
    assert [counts[client] for client in range(10)] == state.standing["uses"].tolist()
    assert max(counts.values()) > 1 and min(counts[client] for client in range(10)) < max(counts.values())
    assert all(line.count == 1 and line.unit == "record" for line in payer.ledger.lines())


def test_the_ledgers_epsilon_is_that_of_the_client_used_most(build, ten):
    algorithm = replace(build("fvae_record", noise_multiplier=2.0), schedule=FedBuff(10, 6, 3), rounds=8)
    payer = Payer(Ledger(None), "run")
    state = trained(algorithm, ten["table"], pay=payer.pay)
    (charge,) = algorithm.charges()
    alone = Ledger(None)
    alone.append(charge.event, what="x", unit="record", count=int(state.standing["uses"].max()))
    spent = payer.ledger.epsilon(1e-5, adjacency="zero-out", unit="record")
    assert spent == pytest.approx(alone.epsilon(1e-5, adjacency="zero-out", unit="record"))


def test_a_client_that_had_its_turns_is_not_asked_again_and_the_end_is_told(build, ten):
    algorithm = replace(build("fvae_record"), schedule=FedBuff(10, 4, 2, turns=2), rounds=30)
    told, bills = [], []
    state = trained(algorithm, ten["table"], Speeds(), pay=lambda *bill: bills.append(bill), tell=told.append)
    counts = Counter(np.concatenate([ids for _, _, ids in bills]).tolist())
    assert state.version == 10 and set(counts.values()) == {2}
    assert told == ["after round 10: too few clients have budget left to fill a buffer; training ends"]


def test_a_stale_update_weighs_less_and_never_more_than_one():
    schedule = FedBuff(10, 5, 2)
    weights = [schedule.weigh(age) for age in range(20)]
    assert weights[0] == 1.0 and weights == sorted(weights, reverse=True) and weights[3] == 0.5
    assert {FedBuff(10, 5, 2, staleness="constant").weigh(age) for age in range(5)} == {1.0}


def test_the_loss_shown_does_not_shrink_with_the_weights(build, ten):
    """Losses of equal clients: the weighted mean of equal numbers is that number."""
    algorithm = replace(
        build("fvae", private=False, learning_rate=1e-9), schedule=FedBuff(10, 10, 1), rounds=6
    )
    slow = replace(ten["table"], encoded=ten["table"].x[:1].expand_as(ten["table"].x))
    shown = []
    trained(algorithm, slow, Speeds(spread=0.8), seen=lambda _, done: shown.append((done.loss, done.clients)))
    full = [loss for loss, _ in shown if loss > 0]
    assert max(full) - min(full) < 0.25 * max(full)


def test_amplification_by_sampling_is_refused(build):
    algorithm = build("fvae")
    assert isinstance(algorithm.mechanism, CentralGaussian)
    with pytest.raises(Incompatible, match="sampling amplifies nothing; use BandedGaussian"):
        replace(algorithm, schedule=FedBuff(10, 4, 2, staleness="constant"))


def banded(algorithm, separation):
    clip = Clip(algorithm.mechanism.clip.bound, algorithm.mechanism.clip.blocks)
    return BandedGaussian(clip, 1.0, separation, 4)


def test_correlated_noise_gives_clients_a_guarantee_by_the_uses_that_the_schedule_allows(build, ten):
    algorithm = build("fvae")
    schedule = FedBuff(10, 6, 2, separation=4, turns=2, staleness="constant")
    made = replace(algorithm, mechanism=banded(algorithm, 4), schedule=schedule, rounds=7)
    payer = Payer(Ledger(None), "run")
    state = trained(made, ten["table"], Speeds(), pay=payer.pay)
    lines = payer.ledger.lines()
    assert len(lines) == 2 * state.version and {line.unit for line in lines} == {"client"}
    most = Ledger(None)
    most.append(made.mechanism.release.event, what="x", count=int(state.standing["uses"].max()))
    assert payer.ledger.epsilon(1e-5, adjacency="zero-out") == pytest.approx(most.epsilon(1e-5))


@pytest.mark.parametrize("schedule", [Everyone(10), FedBuff(10, 6, 2, separation=3, staleness="constant")])
def test_correlated_noise_is_refused_where_a_client_may_come_back_too_soon(build, schedule):
    algorithm = build("fvae")
    with pytest.raises(NotPrivate, match="needs 4 rounds from one use"):
        replace(algorithm, mechanism=banded(algorithm, 4), schedule=schedule)
    replace(algorithm, mechanism=banded(algorithm, 4), schedule=Rotation(10, 5))


def test_weights_are_refused_where_noise_or_seals_need_a_grid(build):
    algorithm = build("fvae")
    with pytest.raises(Incompatible, match="staleness=constant"):
        replace(algorithm, mechanism=banded(algorithm, 1), schedule=FedBuff(10, 4, 2))
    with pytest.raises(Incompatible, match="sealed; set staleness=constant"):
        replace(
            build("fvae_record", momentum=0.0), transport=transport_named("he"), schedule=FedBuff(10, 4, 2)
        )


def test_a_transport_that_needs_a_cohort_is_refused(build):
    algorithm = build("fvae_record")
    masked = replace(algorithm.transport, needs_cohort=True)
    with pytest.raises(Incompatible, match="agreed cohort"):
        replace(algorithm, transport=masked, schedule=FedBuff(10, 4, 2))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"buffer": 0}, "buffer=0"),
        ({"buffer": 11}, "buffer=11"),
        ({"concurrency": 1}, "concurrency=1"),
        ({"concurrency": 11}, "concurrency=11"),
        ({"separation": 0}, "separation=0"),
        ({"separation": 6}, "buffers of 2 use 12 different clients"),
        ({"turns": -1}, "turns=-1"),
        ({"staleness": "square"}, "staleness='square'"),
    ],
)
def test_impossible_buffers_are_refused(wrong, message):
    with pytest.raises(BadInput, match=message):
        FedBuff(**{"clients": 10, "concurrency": 4, "buffer": 2, **wrong})


def test_one_client_after_another_each_from_what_the_last_one_left(build, ten):
    algorithm = replace(build("fvae_record"), schedule=Sequential(10), rounds=12)
    bills = []
    trained(algorithm, ten["table"], EVEN, pay=lambda *bill: bills.append(bill[2].tolist()))
    assert bills == [[number % 10] for number in range(12)]
    assert algorithm.schedule.participations(12) == 2 and algorithm.schedule.denominator() == 1


def test_nobody_starts_who_is_absent_or_for_whom_there_is_no_room():
    schedule, standing = FedBuff(6, concurrency=4, buffer=2), ClientUses.fresh(6)
    here = schedule.start(Clock(0, 0, 0, standing, absent=np.array([0, 3])), Rng(1))
    assert here.tolist() == [1, 2, 4, 5]
    assert [len(schedule.start(Clock(0, flying, 0, standing), Rng(1))) for flying in (0, 3, 4, 5)] == [
        4,
        1,
        0,
        0,
    ]


def test_nobody_starts_in_the_place_of_others_once_the_buffer_is_full():
    schedule, standing = FedBuff(6, concurrency=4, buffer=2), ClientUses.fresh(6)
    full, not_yet = (schedule.refill(Clock(0, 1, arrived, standing), Rng(1)) for arrived in (2, 1))
    assert len(full) == 0 and full.dtype == np.int64 and len(not_yet) == 3


def test_who_starts_first_is_drawn_anew_for_each_version():
    schedule, standing = FedBuff(40, concurrency=5, buffer=5), ClientUses.fresh(40)
    drawn = {tuple(schedule.start(Clock(version, 0, 0, standing), Rng(1))) for version in range(4)}
    assert len(drawn) == 4


def test_a_client_is_in_as_many_versions_as_turns_and_separation_allow():
    most = [
        FedBuff(12, 6, 3, separation, turns).participations(9)
        for separation, turns in ((4, 0), (1, 2), (4, 7))
    ]
    assert most == [3, 2, 3]


def test_noise_of_ones_own_costs_what_it_costs():
    release = LocalGaussian(Clip(1.0), 2.0).release
    assert release.separation is None and FedBuff(6, 4, 2).amplify(release) == release.event
