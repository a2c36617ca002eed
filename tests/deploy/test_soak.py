"""Hours of work over real processes (`make soak`): masked rounds in one job, and kills of all parties.

FEDSYNTH_SOAK names a file that takes a summary: what was done, where, and when.
"""

import datetime
import json
import os
import platform
import random
import statistics
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import psutil
import pytest
from real_sites import COMMAND, SITES, Federation, until
from test_real_faults import check, kill

from fedsynth.synthesis.folder import Folder
from fedsynth.transport import keys

pytest_plugins = ["real_sites"]
pytestmark = [pytest.mark.recipe, pytest.mark.slow]
ROUNDS = int(os.environ.get("FEDSYNTH_MASKED_ROUNDS", "1000"))
KILLS = int(os.environ.get("FEDSYNTH_KILLS", "300"))
MINUTES = float(os.environ.get("FEDSYNTH_KILL_MINUTES", "inf"))  # after which no other run is begun
WARM = 30  # rounds after which libraries are loaded and pools have their size
FLAT = 100 * 2**20
THREADS = 100  # of a job's process, at most; without `deploy.nvflare.streams` a site's has 1,100
MB = 2**20


def note(name: str, **values) -> None:
    """Add what was done to the summary."""
    if "FEDSYNTH_SOAK" not in os.environ:
        return
    path = Path(os.environ["FEDSYNTH_SOAK"])
    summary = json.loads(path.read_text()) if path.exists() else {}
    machine = f"{psutil.cpu_count()} cores, {psutil.virtual_memory().total // 2**30} GB, {platform.system()}"
    when = datetime.datetime.now(datetime.UTC).date().isoformat()
    summary[name] = {"date": when, "machine": machine, "python": platform.python_version(), **values}
    path.write_text(json.dumps(summary, indent=1) + "\n")


def test_masked_rounds_in_one_job_leave_the_memory_flat(federation: Federation, tmp_path):
    """FEDSYNTH_MASKED_ROUNDS of them (default 1,000) of site_vae as it comes."""
    keys.create(tmp_path / "keys", sites=SITES)
    settings = {}
    for name in SITES:
        settings[name] = {
            "data": {"file": "rows-only.csv", "schema": str(federation.schema)},
            "budget": {"epsilon": 9.0, "delta": 1e-3, "unit": "record"},
            "policy": {"recipes": ["site_vae"], "transports": ["secagg"], "minimum_cohort": 3},
            "keys": {"folder": str(tmp_path / "keys" / name)},
            "state": {"folder": "soak-state"},
        }
        frame = pd.read_csv(federation.folder / name / "rows.csv").drop(columns="patient")
        frame.to_csv(federation.folder / name / "rows-only.csv", index=False)
    words = ["run", "--federation", federation.kits, "--schema", federation.schema, "--recipe", "site_vae"]
    numbers = ["--set", "records=360", "--set", "batch_size=60", "--rounds", ROUNDS, "--rows", "50"]
    budget = ["--epsilon", "8", "--delta", "1e-3", "--minimum-sites", "3"]
    out, before = tmp_path / "RUN", federation.server_run()
    with federation.with_site_files(settings):
        words = [*COMMAND, *map(str, [*words, *numbers, *budget, "--out", out])]
        coordinator = federation.begin_run(out, words=words)
        begun = lambda: federation.server_run() not in (None, before) and federation.rounds_done()  # noqa: E731
        until("a round", lambda: begun() or coordinator.poll() is not None)
        jobs = {name: federation.family(name)["job"][0] for name in ("server", *SITES)}
        memory: dict[int, dict[str, int]] = {}
        threads = dict.fromkeys(jobs, 0)
        while coordinator.poll() is None and (done := federation.rounds_done()) < ROUNDS:
            if done not in memory:
                memory[done] = {name: one.memory_full_info().uss for name, one in jobs.items()}
                threads = {name: max(threads[name], one.num_threads()) for name, one in jobs.items()}
                print(done, {name: used // MB for name, used in memory[done].items()}, threads, flush=True)
            time.sleep(0.05)
        assert coordinator.wait(600) == 0, federation.said_since(0)[-2000:]
    assert len(Folder(out).read_history()) == ROUNDS
    assert "begun anew" not in federation.said_since(0), "one job did it all"
    growth = {name: grown({done: used[name] for done, used in memory.items()}) for name in jobs}
    at_most = {name: max(used[name] for used in memory.values()) // MB for name in jobs}
    measured = {"grown_MB": growth, "at_most_MB": at_most, "at_most_threads": threads}
    note("masked rounds", recipe="site_vae", rounds=ROUNDS, jobs=1, **measured)
    assert max(growth.values()) < FLAT // MB, growth
    assert max(threads.values()) < THREADS, threads


def grown(used: dict[int, int]) -> int:
    """By how many MB the last quarter of the rounds lies above the first after the warm-up, by their medians."""
    early = [one for done, one in used.items() if WARM <= done < WARM + ROUNDS // 10 + 1]
    late = [one for done, one in used.items() if done >= ROUNDS * 3 // 4]
    return round((statistics.median(late) - statistics.median(early)) / MB)


def test_random_kills_of_all_parties_never_lose_a_run(federation: Federation, tmp_path):
    """FEDSYNTH_KILLS of them (default 300), a few in each run, each after a round since the last kill."""
    rng, kills, runs, resumed, began = random.Random(), Counter(), 0, 0, time.monotonic()

    def record() -> None:
        """Note what was done so far: a soak that is stopped leaves its true counts."""
        counted = {"kills": kills.total(), "by_process": dict(sorted(kills.items())), "runs_finished": runs}
        checked = {
            "resumed_by_hand": resumed,
            "ledgers_verified": runs * (1 + len(SITES)),
            "ledgers_broken": 0,
        }
        note("random kills", **counted, **checked, minutes=round((time.monotonic() - began) / 60))
        print(counted, checked, flush=True)

    while kills.total() < KILLS and time.monotonic() - began < MINUTES * 60:
        out, before = tmp_path / f"RUN{runs}", federation.server_run()
        coordinator = federation.begin_run(out, "--rounds", "24", "--round-timeout", "20")
        started = lambda: federation.server_run() not in (None, before)  # noqa: E731, B023
        for _ in range(min(KILLS - kills.total(), 8)):
            done = federation.rounds_done() if started() else 0
            over = lambda: coordinator.poll() is not None  # noqa: E731, B023
            until("a round", lambda: (started() and federation.rounds_done() > done) or over())  # noqa: B023
            if over():
                break
            time.sleep(rng.uniform(0, 2))
            party = rng.choice(("server", *SITES, "coordinator"))
            which = rng.choice(("watch", "engine", "job", "job"))
            if party == "coordinator":
                coordinator.kill()
                coordinator.wait()
                coordinator = federation.begin_run(
                    out, words=[*COMMAND, "run", "--out", str(out), "--resume"]
                )
                kills["coordinator"] += 1
            elif kill(federation, party, which):
                kills[f"{'server' if party == 'server' else 'site'}: {which}"] += 1
                if which == "watch":  # as a service manager does
                    federation.processes[party].wait()
                    federation.start(party)
            record()
        while coordinator.wait(1800) == 3:
            resumed += 1
            coordinator = federation.begin_run(out, words=[*COMMAND, "run", "--out", str(out), "--resume"])
        assert coordinator.returncode == 0, federation.said_since(0)[-3000:]
        check(out, federation)
        runs += 1
        record()
