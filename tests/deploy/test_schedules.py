"""Thousands of schedules of a federation in which messages, processes and disks fail, each decided by its seed."""

import os
import shutil
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from toy_federation import ROUNDS, SEED, Faults, play, reference

from fedsynth.deploy.site.activity_log import ActivityLog

HERE = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # a disk in memory: each write is synced
KINDS = {
    "calm": (Faults(), (0.0, 0.0)),
    "lossy": (Faults(drop=0.2, duplicate=0.2, delay=0.2), (0.0, 0.0)),
    "slow": (Faults(delay=0.5, duplicate=0.1), (0.0, 0.0)),
    "dying sites": (Faults(drop=0.05, delay=0.1, site_crash=0.15), (0.1, 0.0)),
    "dying server": (Faults(drop=0.05, duplicate=0.1, delay=0.1, server_crash=0.03), (0.0, 0.0)),
    "full disk": (Faults(drop=0.05), (0.0, 0.2)),
    "everything": (
        Faults(drop=0.1, duplicate=0.15, delay=0.15, site_crash=0.08, server_crash=0.02), (0.05, 0.05),
    ),
}  # fmt: skip
HAPPENS = {  # what the schedules of a kind must contain, or they test nothing
    "calm": (),
    "lossy": ("dropped", "stale"),
    "slow": ("dropped", "stale"),
    "dying sites": ("dropped", "begin"),
    "dying server": ("crashes", "session"),
    "full disk": ("disk", "dropped"),
    "everything": ("crashes", "dropped", "disk", "session"),
}


def check(witness, trust, noise=SEED):
    """What must hold after every schedule."""
    assert witness.state.version == ROUNDS
    assert len(witness.used) == len(set(witness.used)), "an update was used twice"
    expected = (
        {} if noise is None else reference(witness, trust).parts
    )  # system noise can be drawn by nobody twice
    for part, value in expected.items():
        assert torch.equal(witness.state.parts[part], value), "not the sum over those who arrived"
    assert witness.ledger.verify() == []
    per_sum = 1 if trust == "central" else 0  # under local privacy a line a client: each site's books count
    assert len(witness.ledger.lines()) >= witness.opened * per_sum
    assert {line.what.rpartition(", round ")[2] for line in witness.ledger.lines()} >= set("123")
    for name, site in witness.sites.items():
        check_site(witness, name, site)


def check_site(witness, name, site):
    """A site's own books show at least what left it."""
    assert site.ledger.verify() == [] and ActivityLog(site.folder / "audit.jsonl").verify() == []
    left = Counter(witness.versions.get(name, {}).values())
    for (job, version), times in left.items():
        label = f", round {version + 1}" if job == "round" else ""
        lines = [
            line.what
            for line in site.ledger.lines()
            if (line.what.endswith(label) or f"{label}, asked" in line.what)
            and (label or ", round" not in line.what)
        ]
        assert len(lines) >= times, f"{name}: {times} results of {job} {version} left, {len(lines)} lines"


def schedules(kind, seeds, trust, noise=SEED):
    """Play and check these schedules; what happened in them, counted."""
    torch.set_num_threads(1)
    faults, disk = KINDS[kind]
    seen = Counter()
    for seed in seeds:
        folder = Path(tempfile.mkdtemp(dir=HERE))
        try:
            witness = play(seed, folder, faults, trust, disk, noise)
            check(witness, trust, noise)
        except BaseException as error:
            raise AssertionError(f"schedule {kind!r}, {trust}, seed {seed}: {error!r}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        seen.update({"schedules": 1, "crashes": witness.crashes, "dropped": witness.dropped})
        seen.update(witness.refusals)
    return seen


@pytest.fixture(scope="module")
def pool():
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork")) as made:
        yield made


def spread(pool, kind, seeds, trust):
    """The same over all cores."""
    pieces = [seeds[start : start + 10] for start in range(0, len(seeds), 10)]
    return sum(pool.map(schedules, repeat(kind), pieces, repeat(trust)), Counter())


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_schedule_ends_as_the_run_of_those_who_arrived(kind, trust, pool):
    seen = spread(pool, kind, range(10 if kind == "calm" else 170), trust)
    assert all(seen[what] for what in HAPPENS[kind]), seen
    if kind == "calm":
        assert set(seen) == {"schedules"}


def test_no_site_draws_noise_twice_for_the_same_question(pool):
    """With the system's noise a result that was computed again would differ: each order has one result."""
    kinds = ("lossy", "dying sites", "everything")
    for seen in pool.map(schedules, kinds, repeat(range(15)), repeat("local"), repeat(None)):
        assert seen["schedules"] == 15


def test_a_site_that_obeys_a_later_server_is_left_out_and_does_not_stop_the_run():
    """It missed the invitation of a server that was started again, and so is the only one to know the last session."""
    assert schedules("everything", (12_714, 12_949), "central")["schedules"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["central", "local"])
def test_tens_of_thousands_of_schedules(trust, pool):
    seen = spread(pool, "everything", range(10_000, 20_000), trust)
    assert seen["schedules"] == 10_000
