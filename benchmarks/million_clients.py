"""A million people of one row each, each protected: over four sites on one machine, and as a simulation in one process.

    python benchmarks/million_clients.py [--clients 1000000] [--unit client]     # when busy, the processor's time tells

With `--unit client` each person is a client of its own, where a site protects its records otherwise; the simulation has
the server add the noise then, since it would draw all shares one by one. Shares of noise (`--trust distributed`) fit
the ring for 100,000 clients, and not for a million.

The population has a known law, so what both learned is compared with all rows: the mean total variation of the
columns and of their pairs, numbers in tenths of their range.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil

from fedsynth.data.schema import Schema
from simulator import machine

SITES = "ada,bern,cern,dorn"
TRUSTS = ("distributed", "central")  # masked sums with noise of all sites together, or noise of the server
BUDGET = ["--recipe", "marginals", "--epsilon", "1", "--delta", "1e-8", "--rows", "200000"]
RESULTS = Path(__file__).parent / "results"
FILES = {"record": "million_clients.json", "client": "protected_clients-{trust}.json"}
PERSON = "person"
SCHEMA: dict[str, Any] = {
    "version": 1,
    "columns": [
        {"name": "age", "type": "integer", "min": 0, "max": 99},
        {"name": "region", "type": "categorical", "categories": list("abcdefgh")},
        {"name": "smokes", "type": "binary", "categories": ["no", "yes"]},
        {"name": "visits", "type": "integer", "min": 0, "max": 30},
        {"name": "pressure", "type": "continuous", "min": 60.0, "max": 220.0, "decimals": 0},
        {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
    ],
    "label": "ill",
}


def population(clients: int) -> pd.DataFrame:
    """One row for each client."""
    draw = np.random.default_rng(0)
    age = draw.integers(0, 100, clients)
    smokes = draw.random(clients) < 0.1 + 0.2 * (age > 20)
    pressure = np.clip(100 + 0.5 * age + 8 * smokes + draw.normal(0, 12, clients), 60, 220).round()
    visits = np.minimum(draw.poisson(1 + age / 25), 30)
    ill = draw.random(clients) < 1 / (1 + np.exp(6 - age / 20 - smokes - pressure / 60))
    words = np.array(["no", "yes"])
    return pd.DataFrame(
        {
            PERSON: np.arange(clients).astype(str),
            "age": age,
            "region": np.array(list("abcdefgh"))[np.minimum(draw.geometric(0.3, clients) - 1, 7)],
            "smokes": words[smokes.astype(int)],
            "visits": visits,
            "pressure": pressure,
            "ill": words[ill.astype(int)],
        }
    )


class Watch:
    """Processor time and most memory of processes and all that they start."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[int, float], float] = {}
        self.most_gib = 0.0

    def look(self, roots: list[psutil.Process]) -> None:
        resident = 0
        for root in roots:
            try:
                for process in (root, *root.children(recursive=True)):
                    times = process.cpu_times()
                    self.seconds[process.pid, process.create_time()] = times.user + times.system
                    resident += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self.most_gib = max(self.most_gib, resident / 2**30)


def fedsynth(*words: str) -> list[str]:
    return [sys.executable, "-m", "fedsynth.cli.main", *words]


def watched(words: list[str], beside: list[psutil.Process]) -> dict[str, float]:
    """Run a command; what it and the processes beside it took."""
    watch, began = Watch(), time.monotonic()
    watch.look(beside)
    before = sum(watch.seconds.values())
    with tempfile.TemporaryFile("w+") as said:
        process = psutil.Popen(words, stdout=said, stderr=said)
        while process.poll() is None:
            watch.look([process, *beside])
            time.sleep(0.5)
        said.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(words)}\n{said.read()}")
    return {
        "wall_s": time.monotonic() - began,
        "processor_s": sum(watch.seconds.values()) - before,
        "most_gib": watch.most_gib,
    }


def cells(rows: pd.DataFrame) -> list[np.ndarray]:
    """Each column as numbers of values, numbers in tenths of their range."""
    found = []
    for column in Schema.from_dict(SCHEMA).columns:
        if column.numeric:
            low, high = column.bounds
            found.append(
                np.minimum((rows[column.name].to_numpy(float) - low) / (high - low) * 10, 9).astype(int)
            )
        else:
            found.append(pd.Categorical(rows[column.name], categories=column.labels).codes.astype(int))
    return found


def distances(rows: pd.DataFrame, truth: pd.DataFrame) -> dict[str, float]:
    """Mean total variation of single columns and of pairs."""
    one, other = cells(rows), cells(truth)

    def distance(first: np.ndarray, second: np.ndarray) -> float:
        size = int(max(first.max(), second.max())) + 1
        shares = [np.bincount(each, minlength=size) / len(each) for each in (first, second)]
        return float(np.abs(shares[0] - shares[1]).sum() / 2)

    pairs = [(a, b) for a, b in combinations(range(len(one)), 2)]
    return {
        "columns": float(np.mean([distance(a, b) for a, b in zip(one, other, strict=True)])),
        "pairs": float(
            np.mean([distance(one[a] * 100 + one[b], other[a] * 100 + other[b]) for a, b in pairs])
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=10**6)
    parser.add_argument("--unit", choices=FILES, default="record")
    parser.add_argument("--trust", choices=TRUSTS, default="distributed")
    words = parser.parse_args()
    clients, unit = words.clients, words.unit
    owners = ["--client-column", PERSON] if unit == "client" else []
    budget = [*BUDGET, "--trust", words.trust, "--unit", unit]
    simulated = [*(owners or ["--clients", "4"]), *budget, *(["--trust", "central"] if owners else [])]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        truth = population(clients)
        truth = truth if owners else truth.drop(columns=PERSON)
        data, schema, sites = folder / "population.parquet", folder / "schema.json", folder / "sites"
        truth.to_parquet(data, index=False)
        schema.write_text(json.dumps(SCHEMA))
        given = ["--schema", str(schema)]
        alone = watched(fedsynth("run", str(data), *given, *simulated, "--out", str(folder / "one")), [])
        began = time.monotonic()
        dealt = ["--sites", SITES, "--unit", unit, *owners, "--delta", "1e-6", "--port", str(port)]
        before = {process.pid for process in psutil.process_iter()}
        subprocess.run(
            fedsynth("federation", "try", str(data), *given, *dealt, "--out", str(sites)), check=True
        )
        started = time.monotonic() - began
        new = [process for process in psutil.process_iter() if process.pid not in before]
        nodes = [process for process in new if str(sites) in " ".join(process.cmdline())]
        roots = [process for process in nodes if process.ppid() not in {each.pid for each in nodes}]
        try:
            over = watched(
                fedsynth("run", "--federation", str(sites), *given, *budget, "--out", str(folder / "four")),
                roots,
            )
        finally:
            subprocess.run(fedsynth("federation", "stop", str(sites)), check=True)
        result = {
            "machine": {**machine("cpu"), "load": os.getloadavg()},
            "clients": clients,
            "settings": budget,
            "one process": {
                **alone,
                **distances(pd.read_parquet(folder / "one" / "synthetic.parquet"), truth),
            },
            "four sites": {
                **over,
                "starting_s": started,
                **distances(pd.read_parquet(folder / "four" / "synthetic.parquet"), truth),
                "privacy": json.loads((folder / "four" / "privacy.json").read_text())["epsilon"],
            },
        }
    (RESULTS / FILES[unit].format(trust=words.trust)).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
