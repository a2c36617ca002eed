"""Processes killed with kill -9 in the middle of a run: it ends all the same, and no ledger shows too little."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from real_sites import SITES, Federation, command, until

from fedsynth.deploy.environment import SITE_FILE
from fedsynth.deploy.nvflare.metrics import is_connected
from fedsynth.deploy.nvflare.session import CoordinatorSession
from fedsynth.errors import FedsynthError
from fedsynth.privacy.ledger import Ledger
from fedsynth.synthesis.folder import Folder

pytest_plugins = ["real_sites"]
pytestmark = pytest.mark.recipe


def kill(federation: Federation, party: str, which: str) -> bool:
    """kill -9 for a party's processes of one kind; False if there are none now."""
    killed = 0
    for process in federation.family(party)[which]:
        with suppress(ProcessLookupError):  # it ended by itself
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
    return killed > 0


def run_of(out) -> str:
    return json.loads((out / "federation.json").read_text())["run"]


def check(out, federation: Federation, asked: float = 8.0) -> list[dict]:
    """The invariants of a finished run, whatever happened in between."""
    told = json.loads((out / "privacy.json").read_text())
    assert told["private"] and told["epsilon"] <= asked
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [line["version"] for line in history] == list(range(1, len(history) + 1))
    ledger = Ledger(out / "ledger.jsonl")
    assert ledger.verify() == []
    rounds = [line for line in ledger.lines() if ", round " in line.what]
    assert len(rounds) >= len(history) >= 1  # a round that was paid for and lost stays paid for
    for name in SITES:
        own = Ledger(federation.folder / name / "state" / "ledger.jsonl")
        assert own.verify() == []
    return history


def connected(federation: Federation) -> set[str]:
    """The sites that the server has now; none if it does not answer yet."""
    try:
        with CoordinatorSession(federation.coordinator()) as line:
            return set(line.sites())
    except FedsynthError:
        return set()


def stall(federation: Federation, out, log_before: int) -> None:
    """Stop the server's engine until the coordinator has noticed, and let it go on."""
    job, engine = (
        json.loads((out / "federation.json").read_text())["job"],
        federation.family("server")["engine"],
    )
    for process in engine:
        process.suspend()
    try:
        until("the loss of the line", lambda: "asking again" in federation.said_since(log_before))
    finally:
        for process in engine:
            process.resume()
    until("the coordinator's return", lambda: "asking again" in federation.said_since(log_before))
    assert json.loads((out / "federation.json").read_text())["job"] == job


def test_a_stall_a_killed_job_process_and_a_killed_coordinator_cost_no_result(
    federation: Federation, tmp_path
):
    for name in SITES:
        federation.site_file(name)
    before = federation.server_run()
    out, said = tmp_path / "RUN", federation.log_size()
    coordinator = federation.begin_run(out, "--rounds", "24", "--round-timeout", "60")
    started = lambda: federation.server_run() not in (None, before)  # noqa: E731
    until("the first round", lambda: started() and federation.rounds_done() >= 1)
    stall(federation, out, said)
    job = json.loads((out / "federation.json").read_text())["job"]
    done = federation.rounds_done()
    until(
        "a round after the stall", lambda: federation.rounds_done() > done or coordinator.poll() is not None
    )
    assert json.loads((out / "federation.json").read_text())["job"] == job, "another job was submitted"
    with CoordinatorSession(federation.coordinator()) as line:
        assert [one["job_id"] for one in line.jobs() if one["name"] == run_of(out)] == [job]
        assert line.stage(job) == "works" and line.job_of(run_of(out)) == job
    assert kill(federation, "bern", "job")
    done = federation.rounds_done()
    until(
        "the next job's rounds",
        lambda: federation.rounds_done() > done or coordinator.poll() is not None,
        every_s=0.02,
    )
    coordinator.kill()
    coordinator.wait()
    assert not (out / "generator.safetensors").exists()
    finished = federation.resume(out)
    assert finished.returncode == 0, finished.stderr
    history = check(out, federation)
    assert len(history) >= 16
    log = (federation.folder / "coordinator.log").read_text()
    assert "going on from the server's checkpoint" in log


def test_an_aborted_job_ends_its_run_at_the_coordinator_too(federation: Federation, tmp_path):
    before, out, said = federation.server_run(), tmp_path / "RUN", federation.log_size()
    coordinator = federation.begin_run(out, "--rounds", "60")
    until("a round", lambda: federation.server_run() not in (None, before) and federation.rounds_done() >= 1)
    job = json.loads((out / "federation.json").read_text())["job"]
    listed = json.loads(command("federation", "jobs", str(federation.kits), "--json").stdout)["jobs"][-1]
    assert (listed["job"], listed["state"]) == (job, "works")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", listed["since"])
    aborted = command("federation", "abort", str(federation.kits), job[:8])
    assert aborted.returncode == 0 and f"aborted job {job}" in aborted.stdout, aborted.stderr
    assert coordinator.wait(600) == 3
    assert "ended by hand (fedsynth federation abort); continue with --resume" in federation.said_since(said)
    until("its end", lambda: f"job {job}" in ended(federation))
    again = command("federation", "abort", str(federation.kits), job)
    assert again.returncode == 2 and "it has ended already" in again.stderr


def ended(federation: Federation) -> str:
    lines = command("federation", "jobs", str(federation.kits)).stdout.splitlines()
    return "\n".join(line for line in lines if ", ended (" in line)


def test_a_copy_of_a_site_is_refused_while_the_site_is_connected_and_all_concerned_are_told(
    federation: Federation, tmp_path
):
    until("all sites", lambda: connected(federation) == set(SITES))
    true = federation.family("cern")["engine"]
    kit = shutil.copytree(federation.kit("cern"), tmp_path / "kit")
    shutil.copytree(federation.folder / "cern", tmp_path / "cern")
    said, log = federation.folder / "server.log", tmp_path / "copy.log"
    words = [sys.executable, "-m", "fedsynth.deploy.nvflare.node", str(kit), "site", ""]
    own = {**os.environ, SITE_FILE: str(tmp_path / "cern" / "site.toml")}
    with log.open("ab") as file:
        copy = subprocess.Popen(words, stdout=file, stderr=file, env=own)
    try:
        until("the server's line", lambda: "site cern is connected, and a second process" in said.read_text())
        until("the copy's line", lambda: "does not keep this connection" in log.read_text())
        assert is_connected(true, federation.port) and connected(federation) == set(SITES)
    finally:
        copy.terminate()
        copy.wait(120)
    assert "does not keep" not in (federation.folder / "cern.log").read_text()


def test_a_site_that_fell_silent_is_no_longer_said_to_be_connected(federation: Federation):
    """The engine lists it for ten minutes, and coordinators took it back into runs that it was not there for."""
    until("all sites", lambda: connected(federation) == set(SITES))
    silent = federation.family("cern")["engine"]
    for process in silent:
        process.suspend()
    try:
        began = time.monotonic()
        until("its absence", lambda: connected(federation) == set(SITES) - {"cern"})
        assert time.monotonic() - began < 300
    finally:
        for process in silent:
            process.resume()
    until("its return", lambda: connected(federation) == set(SITES))


@pytest.mark.slow
@pytest.mark.parametrize(
    "party, which", [("ada", "engine"), ("ada", "watch"), ("server", "engine"), ("server", "job")]
)
def test_each_process_may_be_killed_in_the_middle(federation: Federation, tmp_path, party, which):
    before = federation.server_run()
    out = tmp_path / "RUN"
    coordinator = federation.begin_run(out, "--rounds", "20", "--round-timeout", "20")
    until("a round", lambda: federation.server_run() != before and federation.rounds_done() >= 2)
    assert kill(federation, party, which)
    if which == "watch":
        federation.processes[party].wait()
        federation.start(party)
    log = federation.folder / "coordinator.log"
    assert coordinator.wait(900) == 0, log.read_text()[-2000:]
    check(out, federation)
    if (party, which) == ("ada", "engine"):
        assert "ada: connected again; taken back in after this round" in log.read_text()


@pytest.mark.slow
def test_a_site_that_hangs_is_left_out_and_may_come_back(federation: Federation, tmp_path):
    before = federation.server_run()
    out = tmp_path / "RUN"
    coordinator = federation.begin_run(out, "--rounds", "60", "--round-timeout", "4")
    until("a round", lambda: federation.server_run() != before and federation.rounds_done() >= 2)
    hung = federation.family("bern")["job"]
    for process in hung:
        process.suspend()
    reached = federation.rounds_done()
    until("rounds without it", lambda: federation.rounds_done() >= reached + 2)
    for process in hung:
        process.resume()
    assert coordinator.wait(900) == 0, (federation.folder / "coordinator.log").read_text()[-2000:]
    check(out, federation)
    assert any(line["dropped"] for line in Folder(federation.server_run()).read_rounds())
