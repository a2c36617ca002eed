"""A federation of real processes on 127.0.0.1: a server, sites and a coordinator."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
import tomli_w

from fedsynth.cli.main import main
from fedsynth.deploy.environment import SITE_FILE
from fedsynth.deploy.link.ledger_heads import LedgerHeads
from fedsynth.deploy.nvflare.kits import Kit
from fedsynth.deploy.nvflare.membership import create
from fedsynth.deploy.nvflare.node import running

SITES = ("ada", "bern", "cern")
SCHEMA = {
    "version": 1,
    "kind": "table",
    "label": "ill",
    "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 99},
        {"name": "bmi", "type": "continuous", "min": 12.0, "max": 60.0},
        {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
    ],
}
PASSPHRASE = "correct horse battery"  # of the authority's key
COMMAND = [sys.executable, "-m", "fedsynth.cli.main"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(*words: str) -> subprocess.CompletedProcess:
    """A command as if it had a process of its own, without the seconds in which that would read its libraries."""
    told, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(told), redirect_stderr(errors), pytest.raises(SystemExit) as left:
        main(list(words))
    return subprocess.CompletedProcess(words, left.value.code, told.getvalue(), errors.getvalue())


def patients(number: int, rows: int = 120, each: int = 6) -> pd.DataFrame:
    """Rows of one site, `each` a patient."""
    rng = np.random.default_rng(number)
    age = rng.integers(20, 90, rows)
    ill = rng.random(rows) < age / 120
    return pd.DataFrame(
        {
            "patient": [f"p{number}-{row // each}" for row in range(rows)],
            "age": age,
            "bmi": np.round(20 + rng.random(rows) * 15, 1),
            "ill": np.where(ill, "yes", "no"),
        }
    )


def until(what, condition, patience_s=1800.0, every_s=0.2):
    """Wait for something to become true; what it returns."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {patience_s} s"
        time.sleep(every_s)
    return found


class Federation:
    """Kits, data and processes in one folder; `close` ends all that was started."""

    def __init__(self, folder: Path, sites=SITES, frames=None, schema=SCHEMA, column="patient"):
        self.folder = folder
        self.sites = sites
        self.port = free_port()
        self.kits = folder / "kits"
        create(sites, "127.0.0.1", self.port, self.kits, PASSPHRASE)
        self.schema = folder / "schema.json"
        self.schema.write_text(json.dumps(schema))
        self.processes: dict[str, subprocess.Popen] = {}
        for number, name in enumerate(sites):
            frame = frames[name] if frames else patients(number)
            (folder / name).mkdir()
            frame.to_csv(folder / name / "rows.csv", index=False)
            self.site_file(name, column=column)

    def site_file(self, name, *, column="patient", seed=None, epsilon=1000.0, **policy):
        """Write a site's site.toml."""
        keys = {
            "data": {"file": "rows.csv", "schema": str(self.schema)},
            "budget": {"epsilon": epsilon, "delta": 1e-2, "unit": "client"},
            "policy": {"recipes": ["dpd_fvae", "fvae"], "minimum_cohort": 1, **policy},
            "state": {"folder": "state"},
        }
        if column:
            keys["data"]["client_column"] = column
        if seed is not None:
            keys["test"] = {"seed": seed}
        (self.folder / name / "site.toml").write_text(tomli_w.dumps(keys))

    @contextmanager
    def with_site_files(self, settings):
        """Other site files for a while. Their state folders hold other ledgers, which the server takes for copies."""
        before = {name: (self.folder / name / "site.toml").read_text() for name in settings}
        written = {name: tomli_w.dumps(keys) for name, keys in settings.items()}
        for texts in (written, before):
            for name, text in texts.items():
                (self.folder / name / "site.toml").write_text(text)
            heads = LedgerHeads(self.kits / "server" / "runs" / "ledgers.json")
            if heads.path.exists():
                for name in settings:
                    heads.forget(name)
            if texts is written:
                yield

    def kit(self, name: str) -> Path:
        return self.kits / "server" if name == "server" else self.kits / "sites" / name

    def start(self, *names: str) -> None:
        """Start the server or sites: what their commands become when all is checked (test_real_try runs those)."""
        for name in names:
            role = "server" if name == "server" else "site"
            words = ["-m", "fedsynth.deploy.nvflare.node", str(self.kit(name)), role, "127.0.0.1"]
            own = {SITE_FILE: str(self.folder / name / "site.toml"), "OMP_NUM_THREADS": "1"}
            log = (self.folder / f"{name}.log").open("ab")
            self.processes[name] = subprocess.Popen(
                [sys.executable, *words], stdout=log, stderr=log, env={**os.environ, **own}
            )

    def start_all(self) -> None:
        self.start("server", *self.sites)

    def coordinator(self) -> Kit:
        return Kit.load(self.kits, "coordinator")

    def run_words(self, out: Path, *more: str) -> list[str]:
        words = ["run", "--federation", self.kits, "--schema", self.schema, "--recipe", "dpd_fvae"]
        settings = ["--set", "hidden=16", "--set", "latent=4", "--set", "epochs=1", "--rows", "100"]
        budget = ["--epsilon", "8", "--delta", "1e-2", "--round-timeout", "600"]
        return [*COMMAND, *map(str, [*words, *settings, *budget, "--out", out, *more])]

    def begin_run(self, out: Path, *more: str, words=None) -> subprocess.Popen:
        """Start the coordinator and do not wait."""
        return subprocess.Popen(
            words or self.run_words(out, *more),
            stdout=subprocess.PIPE,
            stderr=(self.folder / "coordinator.log").open("ab"),
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def run(self, out: Path, *more: str) -> subprocess.CompletedProcess:
        """Run the coordinator to its end."""
        return command(*self.run_words(out, *more)[len(COMMAND) :])

    def resume(self, out: Path) -> subprocess.CompletedProcess:
        return command("run", "--out", str(out), "--resume")

    def family(self, name: str) -> dict[str, list[psutil.Process]]:
        """The processes of a party: the watching one, the engine's, and that of a job."""
        watching = psutil.Process(running(self.kit(name)) or self.processes[name].pid)
        engine, jobs = watching.children(), []
        for one in engine:
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                jobs += one.children()
        return {"watch": [watching], "engine": engine, "job": jobs}

    def server_run(self) -> Path | None:
        """The folder of the newest run on the server's disk."""
        found = [path for path in (self.kits / "server" / "runs").glob("*") if path.is_dir()]
        return max(found, key=lambda path: path.stat().st_mtime, default=None)

    def rounds_done(self) -> int:
        place = self.server_run()
        history = place / "history.jsonl" if place else None
        return len(history.read_text().splitlines()) if history and history.exists() else 0

    def log_size(self) -> int:
        """How much coordinators have said so far, in bytes."""
        log = self.folder / "coordinator.log"
        return log.stat().st_size if log.exists() else 0

    def said_since(self, size: int) -> str:
        """The coordinators' lines after the first `size` bytes."""
        return (self.folder / "coordinator.log").read_bytes()[size:].decode()

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self.processes.items():
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                print(f"{name} had to be killed")


def listening(process: psutil.Process) -> list[str]:
    """Where a process and its children listen."""
    found = []
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # a job's process that has just ended
            found += [
                f"{link.laddr.ip}:{link.laddr.port}"
                for link in one.net_connections("tcp")
                if link.status == psutil.CONN_LISTEN
            ]
    return found


_RUNNING: list[Federation] = []


@pytest.fixture(scope="session")
def federation(tmp_path_factory):
    """Three sites and a server, as processes; each run reads the sites' site.toml anew."""
    made = Federation(tmp_path_factory.mktemp("federation"))
    _RUNNING.append(made)
    made.start_all()
    yield made
    _end_all()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """End the federation with its last test: it would be idle, and busy with that, until its worker is done."""
    if not _RUNNING or _needs_it(nextitem):
        return
    later = item.session.items[item.session.items.index(item) + 1 :]
    if not any(map(_needs_it, later)):
        _end_all()


def _needs_it(item) -> bool:
    return "federation" in getattr(item, "fixturenames", ())


def _end_all() -> None:
    while _RUNNING:
        _RUNNING.pop().close()
