"""Simulated time: arrivals in their order, work done by cohort, and a clock that a checkpoint brings back."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsynth.errors import BadInput
from fedsynth.federation.fedbuff import FedBuff
from fedsynth.federation.loop import run
from fedsynth.federation.schedule import Everyone
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.simulator.speeds import Speeds
from fedsynth.simulator.virtual_clock import VirtualClock


def free(*_):
    return None


def made(clients, speeds, seed=1):
    rng = Rng(seed)
    return VirtualClock(InProcess(clients, rng), speeds, rng)


def test_arrivals_come_in_the_order_of_their_time_and_with_the_numbers_of_the_plain_link(build, ten):
    algorithm = build("fvae_record")
    state, everyone = algorithm.init(Rng(1)), np.arange(10)
    link = made(ten["table"], Speeds(stragglers=0.2))
    link.start(algorithm, everyone, state)
    arrivals = [link.next() for _ in everyone]
    times = [arrival.at_s for arrival in arrivals]
    assert times == sorted(times) and times[0] > 0
    plain = InProcess(ten["table"], Rng(1))
    plain.start(algorithm, everyone, state)
    whole = plain.next()
    order = [arrival.ids.item() for arrival in arrivals]
    assert sorted(order) == list(range(10)) and order != list(range(10))
    rows = {int(client): row for client, row in zip(whole.ids, whole.messages, strict=True)}
    assert all(torch.equal(arrival.messages[0], rows[arrival.ids.item()]) for arrival in arrivals)


def test_those_that_started_from_one_version_are_computed_as_one_stack(build, ten, monkeypatch):
    algorithm, stacks = build("fvae_record"), []
    compute = type(algorithm).client_round
    monkeypatch.setattr(
        type(algorithm),
        "client_round",
        lambda a, s, m, d, ids, r: stacks.append(len(ids)) or compute(a, s, m, d, ids, r),
    )
    buffered = replace(algorithm, schedule=FedBuff(10, 10, 5), rounds=4)
    rng = Rng(1)
    run(buffered, made(ten["table"], Speeds()), buffered.init(rng), rng, free, free, 4)
    assert stacks[0] == 10 and max(stacks[1:]) == 5


def finished_at(algorithm, clients, speeds):
    times = []
    rng = Rng(1)
    run(
        algorithm,
        made(clients, speeds),
        algorithm.init(rng),
        rng,
        free,
        lambda _, d: times.append(d.simulated_s),
        4,
    )
    return times


def test_a_round_of_all_waits_for_the_straggler_and_a_buffer_does_not(build, ten):
    slow = Speeds(spread=0.1, stragglers=0.1, factor=50.0)
    together = replace(build("fvae_record"), schedule=Everyone(10), rounds=4)
    buffered = replace(together, schedule=FedBuff(10, 10, 5))
    waited, went_on = (finished_at(algorithm, ten["table"], slow) for algorithm in (together, buffered))
    assert waited == sorted(waited) and waited[-1] > 4 * 40 * 60 > 10 * went_on[-1]


def test_paces_have_the_stated_spread_and_share_of_stragglers():
    paces = Speeds(spread=0.5, stragglers=0.1, factor=1000.0).paces(20_000, Rng(1))
    slow = paces > 60 * 50
    assert slow.mean() == pytest.approx(0.1, abs=0.002)
    logs = np.log(paces[~slow] / 60)
    assert logs.std() == pytest.approx(0.5, rel=0.03) and abs(logs.mean()) < 0.02


def test_journeys_get_lost_at_the_stated_rate():
    speeds = Speeds(dropouts=0.2)
    lost = [speeds.journey(60.0, Rng(1).at(number))[1] for number in range(4000)]
    assert np.mean(lost) == pytest.approx(0.2, abs=0.03)


def test_the_flag_is_read_and_what_is_wrong_is_named():
    assert Speeds.parse("default") == Speeds()
    assert Speeds.parse("stragglers=0.1, factor=20,dropouts=.05") == Speeds(
        stragglers=0.1, factor=20, dropouts=0.05
    )
    for wrong, message in [
        ("straggler=0.1", "did you mean 'stragglers'"),
        ("stragglers", "expected NAME=VALUE"),
        ("stragglers=some", "expected a number"),
        ("stragglers=1", "stragglers=1: expected a share"),
        ("factor=0.5", "factor=0.5"),
        ("spread=inf", "finite"),
    ]:
        with pytest.raises(BadInput, match=message):
            Speeds.parse(wrong)
