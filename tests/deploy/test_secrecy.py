"""Amplification needs secrecy of the draw: what leaves the server is the same whoever, and however many, were drawn."""

import json
import threading
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import norm
from test_server_job import SCHEMA, SITES, site_file

from fedsynth.deploy.link.messages import Settle, Work, read
from fedsynth.deploy.server_job import ServerJob
from fedsynth.deploy.site.site_file import SiteFile
from fedsynth.federation.pace import Pace
from fedsynth.federation.schedule import Clock, PoissonCohort
from fedsynth.privacy import account
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.ledger import Ledger
from fedsynth.research.queue_channel import QueueChannel
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder

ROUNDS = 4


class Timed(QueueChannel):
    """Sites on a simulated clock: a message takes a moment, and work takes longer the more clients were drawn."""

    def __init__(self, handles, slow_s=0.007):
        super().__init__(handles)
        self.time, self.slow_s, self.heard = 0.0, slow_s, []

    def receive(self, timeout_s):
        if not self._queue:
            self.time += timeout_s
            return None
        site, payload = self._queue[0]
        message = read(payload)
        drawn = len(message.tensors["ids"]) if isinstance(message, Work) and message.job == "round" else 0
        self.heard.append((site, message, round(self.time, 6), drawn))
        self.time += 0.001 + self.slow_s * drawn
        return super().receive(timeout_s)

    def now(self):
        return self.time


class Seen:
    """All that a run gives to the coordinator and to its sites, and when."""

    def __init__(self, place, number):
        self.out, self.told, self.paid_when_waiting = place / f"server{number}" / "run", [], []
        self.out.parent.mkdir()  # a server of its own: it knows no earlier ledgers of these sites
        files = {name: site_file(place / f"{name}{number}", 7, seed=None) for name in SITES}
        self.channel = Timed({name: SiteFile.load(path).site().handle for name, path in files.items()})
        pace = partial(Pace, now=self.channel.now, sleep=self.sleep)
        asked = {
            "run": "r1", "minimum_sites": 2, "round_s": 60.0, "schema": SCHEMA,
            "request": {
                "recipe": "dpd_fvae", "epsilon": 8.0, "delta": 1e-2, "rounds": ROUNDS,
                "arguments": {"hidden": [8], "latent": 2, "epochs": 1},
            },
        }  # fmt: skip
        ServerJob(pace).conduct(asked, self.channel, self.out, self.tell, threading.Event())

    def sleep(self, seconds):
        self.paid_when_waiting.append(len(Ledger(self.out / "ledger.jsonl").lines()))
        self.channel.time += seconds

    def tell(self, line=None, **news):
        known = {} if line is None else {key: value for key, value in line.items() if key != "loss"}
        self.told.append((round(self.channel.time, 6), known, news))

    @property
    def cohorts(self):
        return [line["clients"] for line in Folder(self.out).read_rounds()]

    def file(self, name):
        return [json.loads(line) for line in (self.out / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two runs over the same rows whose cohorts differ."""
    place = tmp_path_factory.mktemp("secrecy")
    runs = Seen(place, 1), Seen(place, 2)
    assert runs[0].cohorts != runs[1].cohorts and len(runs[0].cohorts) == ROUNDS
    return runs


def test_the_coordinator_is_told_the_same_at_the_same_times_whoever_was_drawn(two):
    assert two[0].told == two[1].told
    lines = [known for _, known, _ in two[0].told if known]
    assert [set(line) for line in lines] == [{"version", "seconds", "epsilon"}] * ROUNDS


def test_the_files_that_the_coordinator_fetches_hold_nothing_of_the_cohort(two):
    """Equal to the byte, but for noisy values and what names, dates or hashes them."""
    names = [{path.name for path in ServerJob().results(run.out)} for run in two]
    assert names[0] == names[1] and "rounds.jsonl" not in names[0]
    noisy = {"generator.safetensors", "ledger.jsonl.head"}
    for name in names[0] - noisy:
        read_by = [run.file(name) if name.endswith("jsonl") else (run.out / name).read_text() for run in two]
        if name == "history.jsonl":
            assert [set(line) for line in read_by[0]] == [{"version", "loss", "seconds", "epsilon"}] * ROUNDS
        for line in (line for file in read_by for line in file if isinstance(line, dict)):
            for field in ("loss", "time", "hash", "previous", "files"):
                line.pop(field, None)
        assert read_by[0] == read_by[1], name


def test_a_round_is_paid_for_after_its_tick_so_the_ledgers_times_are_public_too(two):
    for run in two:
        assert run.paid_when_waiting == [1 + number for number in range(ROUNDS)]  # the class balance first


def test_a_site_hears_of_every_round_at_the_same_time_and_nothing_of_other_sites(two):
    for site in SITES:
        calls = [
            [(when, message.version, message.since) for who, message, when, _ in run.channel.heard
             if who == site and isinstance(message, Settle) and not message.over]
            for run in two
        ]  # fmt: skip
        assert calls[0] == calls[1] and len(calls[0]) == ROUNDS
    asked = [[message for _, message, _, drawn in run.channel.heard if drawn] for run in two]
    assert {message.sites for run in asked for message in run} == {len(SITES)}


def test_the_server_keeps_the_exact_rounds_on_its_own_disk(two):
    lines = two[0].file("rounds.jsonl")
    assert [line["version"] for line in lines] == list(range(1, ROUNDS + 1))
    assert all({"clients", "dropped", "bytes_up", "bytes_down", "seconds"} <= set(line) for line in lines)
    drawn = [drawn for _, _, _, drawn in two[0].channel.heard]
    assert sum(line["clients"] for line in lines) == sum(drawn)


def least_delta(rate, shift, rounds, epsilon, width=2.0**-10):
    """A proven lower bound on delta, where a round shows N(shift, 1) with probability `rate` and else N(0, 1).

    Losses are rounded down to multiples of `width` and added up by their exact probabilities.
    """
    x = np.linspace(-12.0, 12.0 + shift, 400_001)
    loss = np.logaddexp(np.log1p(-rate), np.log(rate) + shift * x - shift**2 / 2)  # grows with x
    mass = np.diff((1 - rate) * norm.cdf(x) + rate * norm.cdf(x - shift))
    places = np.floor(loss[:-1] / width).astype(int)
    lowest = places.min()
    one = np.bincount(places - lowest, weights=mass)
    size = 2 ** int(np.ceil(np.log2(rounds * len(one))))
    sums = np.fft.irfft(np.fft.rfft(one, size) ** rounds, size)
    totals = (np.arange(size) + rounds * lowest) * width
    above = totals > epsilon
    return float((sums[above] * -np.expm1(epsilon - totals[above])).sum())


def test_whoever_knows_cohort_sizes_sees_one_client_twice_as_large_as_the_clip():
    """All others send +S, this client -S: the sum less size times S is -2S if it was drawn, and 0 if not."""
    schedule, mechanism = PoissonCohort(20, 0.2), CentralGaussian(Clip(1.0), 1.0)
    everybody = torch.ones(20, 1)
    everybody[7] = -1.0
    sent = mechanism.privatize(everybody, mechanism.init(), Rng(1), np.arange(20))
    drawn = [schedule.start(Clock(version), Rng(1)) for version in range(200)]
    differences = [float(sent[ids].sum()) - len(ids) * float(sent[0, 0]) for ids in drawn]
    expected = [float(sent[7, 0] - sent[0, 0]) if 7 in ids else 0.0 for ids in drawn]
    np.testing.assert_allclose(differences, expected, atol=1e-6)
    assert 0 < sum(7 in ids for ids in drawn) < 200 and min(expected) == pytest.approx(-2.0, abs=1e-4)


def test_secret_cohorts_cost_7_93_and_cohorts_of_known_size_at_least_29_7():
    """Rate .2, noise multiplier 1, 30 rounds, delta 1e-5: the reason why no size leaves the server."""
    release = CentralGaussian(Clip(1.0), 1.0).release
    stated = account.epsilon(account.compose([PoissonCohort(500, 0.2).amplify(release)] * 30), 1e-5)
    assert stated == pytest.approx(7.93, abs=0.01)
    assert least_delta(0.2, 1.0, 30, 7.9) > 1e-5 > least_delta(0.2, 1.0, 30, 8.0)  # the bound is tight
    assert least_delta(0.2, 2.0, 30, 29.7) > 1e-5
