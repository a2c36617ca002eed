"""Thousands of schedules of a federation in which messages, processes and disks fail, each decided by its seed."""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import torch
from toy_federation import ROUNDS, Faults, play, reference

from fedsynth.engines.audit import Audit

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


def check(witness, trust):
    """What must hold after every schedule."""
    assert witness.state.version == ROUNDS
    assert len(witness.used) == len(set(witness.used)), "an update was used twice"
    expected = reference(witness, trust)
    for part, value in expected.parts.items():
        assert torch.equal(witness.state.parts[part], value), "not the sum over those who arrived"
    rounds = [line for line in witness.ledger.lines() if ", round " in line.what]
    paid = {(line.what, line.index if trust == "central" else "") for line in rounds}
    assert len(paid) >= ROUNDS and witness.ledger.verify() == []
    lines = len(witness.ledger.lines())
    assert lines >= witness.opened if trust == "central" else lines > 0
    for name, site in witness.sites.items():
        check_site(witness, name, site)


def check_site(witness, name, site):
    """A site's own books show at least what left it."""
    assert site.ledger.verify() == [] and Audit(site.folder / "audit.jsonl").verify() == []
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


def schedules(kind, seeds, trust):
    faults, disk = KINDS[kind]
    seen = Counter()
    for seed in seeds:
        folder = Path(tempfile.mkdtemp(dir=HERE))
        try:
            witness = play(seed, folder, faults, trust, disk)
            check(witness, trust)
            seen["crashes"] += witness.crashes
            seen["dropped"] += witness.dropped
            seen.update(witness.refusals)
        except BaseException:
            print(f"schedule {kind!r} {trust!r} seed {seed}")
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return seen


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_schedule_ends_as_the_run_of_those_who_arrived(kind, trust):
    seen = schedules(kind, range(20), trust)
    if kind == "calm":
        assert not any(seen.values())
