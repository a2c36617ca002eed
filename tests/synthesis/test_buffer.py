"""A buffered run that is stopped anywhere goes on as if it had not been, and nobody pays twice for one message."""

from collections import Counter

import pytest
import torch
from dp_accounting import GaussianDpEvent

from fedsynth import Synthesizer, clients_from
from fedsynth.errors import FedsynthError
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import Charge, Release, When
from fedsynth.simulator.virtual_clock import VirtualClock
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.payer import Payer
from fedsynth.synthesis.request import Request
from samples import make_frame

SETTINGS = {
    "epsilon": 8.0, "delta": 1e-3, "transport": "clear", "rounds": 4, "buffer": 3, "concurrency": 5, "latent": 2,
    "hidden": (4,), "batch_rate": 0.5, "steps": 2, "usual_records": 4, "generator_batch": 4,
    "start_share": 0.0,
}  # fmt: skip


class Stop(Exception):
    """Pulls the plug."""


@pytest.fixture(scope="module")
def owners():
    return clients_from(make_frame([number // 4 for number in range(32)]), client_column="owner")


def fitted(schema, owners, path, **changes):
    asked = {**SETTINGS, **changes}
    speeds = asked.pop("simulate_speeds", "dropouts=0.2,stragglers=0.2")
    made = Synthesizer("pp_fedgan", schema, **asked)
    made.request = made.request.changed(simulate_speeds=speeds)
    return made.fit(owners, folder=path)


def resumed(schema, owners, path):
    return Synthesizer.of(Request.from_toml(Folder(path).read_recipe()), schema).resume(owners, path)


def stops_at(monkeypatch, owner, name, count):
    """Pull the plug at the beginning of the call with this number."""
    calls = Counter()
    real = getattr(owner, name)

    def counted(*args, **more):
        calls[name] += 1
        if calls[name] == count:
            raise Stop
        return real(*args, **more)

    monkeypatch.setattr(owner, name, counted)
    return calls


@pytest.fixture(scope="module")
def straight(schema, owners, tmp_path_factory):
    path = tmp_path_factory.mktemp("straight") / "run"
    return path, fitted(schema, owners, path, seed=5)


def same_as(path, straight):
    return (path / "generator.safetensors").read_bytes() == (straight / "generator.safetensors").read_bytes()


def uses(path):
    lines = Ledger(path / "ledger.jsonl").lines()
    return Counter((line.holder, line.what) for line in lines if ", round " in line.what)


def test_the_history_has_simulated_time(straight):
    times = [line["simulated_s"] for line in straight[1].history]
    assert times == sorted(times) and times[0] > 0 and len(times) == 4


@pytest.mark.parametrize("arrival", range(1, 14))
def test_killed_at_any_arrival_a_seeded_run_ends_the_same_to_the_bit(
    arrival, straight, schema, owners, tmp_path, monkeypatch
):
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        stops_at(patch, VirtualClock, "next", 8 + arrival)  # the first eight answer the class balance
        with pytest.raises(Stop):
            fitted(schema, owners, path, seed=5)
    made = resumed(schema, owners, path)
    assert same_as(path, straight[0])
    kept = [{k: v for k, v in line.items() if k not in ("seconds", "epsilon")} for line in made.history]
    assert kept == [
        {k: v for k, v in line.items() if k not in ("seconds", "epsilon")} for line in straight[1].history
    ]
    assert uses(path) == uses(straight[0])


@pytest.mark.parametrize("seed", [5, None])
def test_what_was_charged_is_neither_lost_nor_charged_again(
    seed, straight, schema, owners, tmp_path, monkeypatch
):
    """Killed between the payment and the step: the very messages that were paid for are in the next version."""
    path, sums = tmp_path / "run", []
    step = Algorithm.server_round

    def killed(algorithm, state, total, *rest):
        sums.append(total)
        if len(sums) == 3:
            raise Stop
        return step(algorithm, state, total, *rest)

    monkeypatch.setattr(Algorithm, "server_round", killed)
    with pytest.raises(Stop):
        fitted(schema, owners, path, seed=seed)
    before = uses(path)
    third = {holder for holder, what in before if what.endswith("round 3")}
    assert len(third) >= 3  # charged, and not in a checkpoint's version yet
    resumed(schema, owners, path)
    assert len(sums) == 5 and torch.equal(sums[3], sums[2])  # to the bit, noise and all
    after = uses(path)
    assert {key: count for key, count in after.items() if key in before} == before
    assert seed is None or (same_as(path, straight[0]) and after == uses(straight[0]))
    assert Ledger(path / "ledger.jsonl").verify() == []


def test_a_round_paid_for_and_lost_counts_for_noise_that_the_server_draws_again():
    """Only what a client sent itself is the same message the second time."""
    payer = Payer(Ledger(None), "run")
    for trust, lines in (("local", 3), ("central", 9)):
        release = Release(trust, "client", trust, GaussianDpEvent(1.0), separation=1)
        charge = Charge(release, release.event)
        for pay in (payer.pay, payer.pay_once, payer.pay_once):
            pay(When(1), [charge], [4, 5, 5])
        assert sum(line.what == f"{trust}, round 1" for line in payer.ledger.lines()) == lines


def test_the_statement_is_that_of_the_worst_client_and_within_the_budget(schema, owners, tmp_path):
    made = fitted(schema, owners, tmp_path / "run", simulate_speeds="stragglers=0.3")
    turns = Counter(holder for holder, _ in uses(tmp_path / "run"))
    assert 1 < max(turns.values()) <= 3
    assert made.privacy.private and made.privacy.adjacency == "zero-out" and 0 < made.privacy.epsilon <= 8
    assert made.history[-1]["epsilon"] == pytest.approx(made.privacy.epsilon, rel=0.01)


def diverge(monkeypatch, version, value):
    step = Algorithm.server_round

    def broken(a, s, t, r, w=1.0):
        after, loss = step(a, s, t, r, w)
        if after.version == version:
            after.parts["generator"][0] = value
        return after, loss

    monkeypatch.setattr(Algorithm, "server_round", broken)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e9])
def test_a_model_that_diverges_ends_the_run_with_the_last_good_one(
    value, schema, owners, tmp_path, monkeypatch
):
    diverge(monkeypatch, 3, value)
    made = fitted(schema, owners, tmp_path / "run", seed=5)
    assert len(made.history) == 2
    assert len(made.notes) == 1 and "round 3: generator has diverged" in made.notes[0]
    assert "the model of round 2" in made.notes[0] and "learning rate" in made.notes[0]
    assert all(torch.isfinite(flat).all() for flat in made.generator.parts.values())
    assert any(what.endswith("round 3") for _, what in uses(tmp_path / "run"))  # it was released all the same


def test_a_run_that_diverges_at_once_has_nothing_to_release(schema, owners, tmp_path, monkeypatch):
    diverge(monkeypatch, 1, float("nan"))
    with pytest.raises(FedsynthError, match="nothing was learned"):
        fitted(schema, owners, tmp_path / "run", seed=5)
