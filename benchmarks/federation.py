"""What the federation engine costs on loopback, without training: `make bench-federation`.

A server and sites as processes on 127.0.0.1; each round sends so many float32 parameters to every site and gets as
many back. Bytes on the wire are what the kernel counts on the server's port over a whole job: TLS, the engine's own
protocol, start and polling included.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from fedsynth.deploy.nvflare.kits import Kit
from fedsynth.deploy.nvflare.membership import create
from fedsynth.deploy.nvflare.node import running
from fedsynth.deploy.nvflare.session import CoordinatorSession, wait_for

HERE = Path(__file__).parent
WORK = {"server": "federation_echo.Sender", "client": "federation_echo.Echo"}
SIZES = (16_000, 200_000, 1_000_000)
ROUNDS = 20
LONG = int(os.environ.get("FEDSYNTH_BENCH_ROUNDS", "1000"))


class Nodes:
    """A server and sites as processes; kits of their own that also allow the benchmark's echo."""

    def __init__(self, count: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fedsynth-bench-"))
        self.names = tuple(f"site-{number}" for number in range(count))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        create(self.names, "127.0.0.1", self.port, self.folder / "kits", "of a benchmark")
        self.kits = [self.folder / "kits" / "server", *sorted((self.folder / "kits" / "sites").iterdir())]
        self.processes = []
        environment = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
        for kit in self.kits:
            path = kit / "local" / "resources.json"
            keys = json.loads(path.read_text())
            keys["class_allow_list"].append("federation_echo.")
            path.write_text(json.dumps(keys))
            role = "server" if kit.name == "server" else "site"
            command = [sys.executable, "-m", "fedsynth.deploy.nvflare.node", str(kit), role, "127.0.0.1"]
            self.processes.append(subprocess.Popen(command, env=environment))

    def line(self) -> CoordinatorSession:
        kit = Kit.load(self.folder / "kits", "coordinator")
        found: list[CoordinatorSession] = []

        def dial() -> bool:
            try:
                found.append(CoordinatorSession(kit))
            except Exception:
                return False
            return True

        assert wait_for(dial, 120, 0.5)
        assert wait_for(lambda: len(found[0].sites()) == len(self.names), 180)
        return found[0]

    def job_memory(self, kit: Path) -> int:
        """The largest memory of a job's process of this party, in bytes."""
        watching = psutil.Process(running(kit))
        jobs = [job for engine in watching.children() for job in engine.children()]
        return max((job.memory_info().rss for job in jobs), default=0)

    def wire(self) -> int:
        """Bytes through the server's port so far, both ways."""
        told = subprocess.run(
            ["ss", "-tinH", f"sport = :{self.port}"], capture_output=True, text=True, check=True
        ).stdout
        return sum(map(int, re.findall(r"bytes_(?:sent|received):(\d+)", told)))

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        shutil.rmtree(self.folder)


def echo(nodes: Nodes, line: CoordinatorSession, parameters: int, rounds: int, name: str) -> dict:
    """One job; its rounds, bytes and memory."""
    began, wire = time.time(), nodes.wire()
    job = line.submit({"run": name, "parameters": parameters, "rounds": rounds}, WORK)
    lines: list[dict] = []
    site_memory: list[int] = []
    first = None
    while True:
        news = line.news(job, len(lines))
        if news:
            lines += news["history"]
            if first is None and lines:
                first = lines[0]["when"] - began
            if lines and (not site_memory or len(lines) > 25 * len(site_memory)):
                site_memory.append(nodes.job_memory(nodes.kits[1]))
            if news["state"] in ("finished", "failed"):
                assert news["state"] == "finished", news["error"]
                if not news["history"]:
                    break
        else:
            assert line.running(job), "the job died"
        time.sleep(0.1)
    through = nodes.wire() - wire
    line.done(job)
    wait_for(lambda: not line.running(job), 60, 0.5)
    payload = 2 * 4 * parameters * len(nodes.names) * len(lines)
    seconds = [entry["seconds"] for entry in lines[1:]]
    return {
        "sites": len(nodes.names),
        "parameters": parameters,
        "rounds": rounds,
        "seconds_median": statistics.median(seconds),
        "seconds_worst": max(seconds),
        "first_round_after_s": first,
        "wire_over_payload": through / payload,
        "server_memory": [entry["memory"] for entry in lines],
        "site_memory": site_memory,
    }


def main() -> None:
    """Measure and write benchmarks/results/federation.md and .json."""
    found = []
    before = os.getloadavg()
    for count in (3, 10):
        nodes = Nodes(count)
        line = None
        try:
            line = nodes.line()
            for size in SIZES:
                found.append(echo(nodes, line, size, ROUNDS, f"echo-{count}-{size}"))
                print(json.dumps({k: v for k, v in found[-1].items() if "memory" not in k}), flush=True)
            if count == 3:
                long = echo(nodes, line, 200_000, LONG, "long")
        finally:
            if line:
                line.close()
            nodes.close()
    write(found, long, before)


def write(found: list[dict], long: dict, before: tuple[float, float, float]) -> None:
    """The table for people and the numbers for programs."""
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    loads = f"{before[0]:.1f} before, {os.getloadavg()[0]:.1f} after (the benchmark's own processes included)"
    for each in (*found, long):
        steps = max(1, len(each["server_memory"]) // 20)
        each["server_memory_mb"] = [value >> 20 for value in each.pop("server_memory")[::steps]]
        each["site_memory_mb"] = [value >> 20 for value in each.pop("site_memory")]
    results = HERE / "results"
    keys = {"machine": machine, "load": loads, "rounds": found, "long": long}
    (results / "federation.json").write_text(json.dumps(keys, indent=1) + "\n")
    lines = [
        "# The federation engine's cost",
        "",
        f"`make bench-federation` on {machine}; load average {loads}. Server and sites are processes "
        "on 127.0.0.1; a round sends the parameters (float32) to every site and gets as many back; no training.",
        "",
        "| sites | parameters | a round, median s | worst s | bytes on the wire / payload | submit to first round, s |",
        "|---|---|---|---|---|---|",
    ]
    for each in found:
        lines.append(
            f"| {each['sites']} | {each['parameters']:,} | {each['seconds_median']:.3f} | {each['seconds_worst']:.3f} "
            f"| {each['wire_over_payload']:.3f} | {each['first_round_after_s']:.1f} |"
        )
    server, site = long["server_memory_mb"], long["site_memory_mb"]
    lines += [
        "",
        f"Memory over {long['rounds']:,} rounds of 200,000 parameters with 3 sites, without torch: the server's job "
        f"{server[0]} MB at first, {max(server)} MB at most, {server[-1]} MB at the end; a site's job {site[0]} MB at "
        f"first, {max(site)} MB at most, {site[-1]} MB at the end. Median round there {long['seconds_median']:.3f} s.",
    ]
    (results / "federation.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
