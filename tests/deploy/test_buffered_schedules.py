"""Hundreds of schedules of a federation with a buffer, in which messages, processes and disks fail, by their seeds."""

import os
import shutil
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, repeat
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from toy_buffers import ALGORITHMS, BUFFER, VERSIONS, Faults, play, reference
from toy_federation import SEED, names_of

from fedsynth.deploy.site.activity_log import ActivityLog

HERE = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # a disk in memory: each write is synced
KINDS = {
    "calm": (Faults(), (0.0, 0.0)),
    "slow": (Faults(delay=0.4, duplicate=0.2, longest_s=9.0), (0.0, 0.0)),
    "lossy": (Faults(drop=0.2, duplicate=0.2, delay=0.2), (0.0, 0.0)),
    "killed server": (Faults(server_crash=0.04, delay=0.3, longest_s=4.0), (0.0, 0.0)),
    "dying sites": (Faults(drop=0.05, delay=0.1, site_crash=0.12), (0.1, 0.0)),
    "full disk": (Faults(drop=0.05), (0.0, 0.15)),
    "everything": (
        Faults(drop=0.08, duplicate=0.15, delay=0.15, site_crash=0.06, server_crash=0.02), (0.04, 0.04),
    ),
}  # fmt: skip
HAPPENS = {  # what the schedules of a kind must contain, or they test nothing
    "calm": (),
    "slow": ("stale",),
    "lossy": ("stale", "lost"),
    "killed server": ("crashes", "stale"),
    "dying sites": ("lost", "stale"),
    "full disk": ("disk", "lost"),
    "everything": ("crashes", "lost", "stale", "disk", "session"),
}
NAMES = names_of(None)


def check(witness, trust, noise=SEED):
    """What must hold after every schedule."""
    assert witness.state.version == len(witness.versions)
    assert witness.state.version == VERSIONS or witness.ended
    assert all(len({client for client, _ in came}) == BUFFER == len(came) for came in witness.versions)
    assert len(witness.used) == len(set(witness.used)), "an update was used twice"
    expected = {} if noise is None else reference(witness, trust).parts
    for part, value in expected.items():
        assert torch.equal(witness.state.parts[part], value), "not the loop fed with those arrivals"
    schedule = ALGORITHMS[trust][1].schedule
    for client in range(len(NAMES)):
        numbers = [at for at, came in enumerate(witness.versions) for one, _ in came if one == client]
        assert all(later - earlier >= schedule.separation for earlier, later in pairwise(numbers))
    if trust != "none":
        check_server(witness, trust)
        for name, site in witness.sites.items():
            check_site(witness, name, site, trust)


def lines_of(ledger):
    """How often each holder was charged for each round, however often it was asked again."""
    found = Counter()
    for line in ledger.lines():
        if line.round:
            found[line.holder, line.round] += line.count
    return found


def check_server(witness, trust):
    """The server's books show everybody in each sum that was opened, and nobody more often than was agreed."""
    assert witness.ledger.verify() == []
    charged = lines_of(witness.ledger)
    for at, came in enumerate(witness.versions):
        assert all(charged[str(client), at + 1] for client, _ in came)
    uses = Counter(client for sum_of in witness.opened for client in sum_of)
    totals = Counter()
    for (holder, _), count in charged.items():
        totals[int(holder)] += count
    assert max(totals.values(), default=0) <= ALGORITHMS[trust][1].schedule.turns
    if trust != "local":  # noise that is drawn again is charged again; a local message is the same message
        assert all(totals[client] >= count for client, count in uses.items())
        return
    for number in range(1, len(witness.versions) + 1):
        billed = {str(client): times for client, times in witness.bills[number].items()}
        assert billed == {holder: times for (holder, at), times in charged.items() if at == number}
    left = Counter(client for site in witness.results.values() for client, _ in set(site.values()))
    if not (
        witness.crashes or witness.ended
    ):  # also what got lost was charged, but for who is still under way
        assert all(totals[client] >= count - 1 for client, count in left.items()), "what left was not charged"


def check_site(witness, name, site, trust):
    """A site's own books show at least what left it, and no client more often than it agreed to."""
    assert site.ledger.verify() == [] and ActivityLog(site.folder / "audit.jsonl").verify() == []
    charged = lines_of(site.ledger)
    left = Counter(witness.results.get(name, {}).values())
    for (client, version), times in left.items():
        assert charged[f"client {NAMES[client]}", version + 1] >= times, (
            f"{times} left of {client}, {version}"
        )
    totals = Counter()
    for (holder, _), count in charged.items():
        totals[holder] += count
    assert max(totals.values(), default=0) <= ALGORITHMS[trust][1].schedule.turns
    if trust != "local":
        return
    assert max(charged.values(), default=1) == 1, "one message was charged twice"
    if witness.lost or witness.ended:
        return
    used = {(client, version) for came in witness.versions for client, version in came}
    for client in range(len(NAMES)):
        paid = sorted(number - 1 for holder, number in charged if holder == f"client {NAMES[client]}")
        if (
            client not in witness.state.standing["busy"].tolist()
        ):  # whoever is, was charged for what is under way
            paid.append(VERSIONS)
        assert all((client, version) in used for version in paid[:-1]), "an update was charged and lost"


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
        seen.update({"schedules": 1, "crashes": witness.crashes, "lost": witness.lost})
        seen.update({"stale": witness.stale, "ended": bool(witness.ended)})
        seen.update(witness.refusals)
    return seen


@pytest.fixture(scope="module")
def pool():
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork")) as made:
        yield made


def spread(pool, kind, seeds, trust, noise=SEED):
    """The same over all cores."""
    pieces = [seeds[start : start + 8] for start in range(0, len(seeds), 8)]
    return sum(pool.map(schedules, repeat(kind), pieces, repeat(trust), repeat(noise)), Counter())


@pytest.mark.parametrize("trust", ALGORITHMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_schedule_ends_as_the_loop_fed_with_those_arrivals(kind, trust, pool):
    seen = spread(pool, kind, range(2 if kind == "calm" else 8), trust)
    assert all(seen[what] for what in HAPPENS[kind]), seen


def test_no_site_draws_noise_twice_for_the_same_question(pool):
    """With the system's noise a result that was computed again would differ: each order has one result."""
    assert spread(pool, "everything", range(16), "local", None)["schedules"] == 16


def test_schedules_that_found_a_bug():
    """A client lost twice in a version was counted once after a crash; one asked just before it was never used."""
    assert schedules("everything", (10_088, 10_148), "local")["crashes"]


@pytest.mark.slow
@pytest.mark.parametrize("trust", ALGORITHMS)
def test_thousands_of_schedules_with_a_buffer(trust, pool):
    assert spread(pool, "everything", range(10_000, 12_000), trust)["schedules"] == 2_000
