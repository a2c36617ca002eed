"""Client updates per second: fedsynth's cohort engine against one client after another and Apple's pfl-research.

    make bench-simulator                            # about ten minutes; makes .venv-pfl for pfl
    python benchmarks/simulator.py --device cuda    # on a GPU machine; without pfl
    python benchmarks/simulator.py --scale          # the number of clients alone; the rest of the results is kept
    python benchmarks/simulator.py --cases image-100 --threads 1   # that case alone; likewise

All contenders train the same model on the same data with the same hyper-parameters, each in a process of its own,
in turns; each is given one thread and then all cores, and its fastest round counts.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cases import CASES

HERE = Path(__file__).parent
ROOT = HERE.parent
PFL_VENV = ROOT / ".venv-pfl"
PFL_PYTHON = PFL_VENV / "bin" / "python"
PFL_NEEDS = ["torch==2.13.0", "pfl==0.6.0", "dp-accounting<0.6"]
SCALE = (1_000, 10_000, 100_000, 1_000_000)

Result = dict[str, Any]


@dataclass(frozen=True)
class Contender:
    """A way to train, and the command that times it."""

    key: str
    name: str
    script: str
    options: tuple[str, ...] = ()
    python: Path = Path(sys.executable)


COHORT = Contender("cohort", "(b) fedsynth, cohort engine", "cohort_engine.py", ("--check",))
ALONE = Contender("alone", "(a) fedsynth, one client after another", "cohort_engine.py", ("--chunk", "1"))
PLAIN = Contender("plain", "an ordinary torch loop, one client after another", "plain.py")
PFL = Contender("pfl", "(c) pfl-research 0.6.0", "apple_pfl.py", python=PFL_PYTHON)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=2, help="turns of each contender")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument(
        "--threads", type=int, nargs="+", help="numbers of threads, instead of one and all cores"
    )
    parser.add_argument("--scale", action="store_true", help="time the number of clients alone")
    options = parser.parse_args()
    if options.scale:
        results = json.loads(_page(options.device).with_suffix(".json").read_text())
        write(results | scales(options.device), options.device)
        return
    contenders = [COHORT, ALONE, PLAIN]
    if options.device == "cpu" and pfl_is_there():
        contenders.append(PFL)
    about = machine(options.device)
    found = {case: race(case, contenders, options) for case in options.cases}
    if len(found) < len(CASES):
        results = json.loads(_page(options.device).with_suffix(".json").read_text())
        results["cases"] |= found
        results["case_machines"] = results.get("case_machines", {}) | dict.fromkeys(found, about)
        write(results, options.device)
        return
    write({"machine": about, "cases": found, **scales(options.device)}, options.device)


def pfl_is_there() -> bool:
    """Make pfl's own environment: it needs an older dp-accounting than fedsynth does."""
    ready = PFL_VENV / ".installed"
    if not ready.exists():
        print("making .venv-pfl (a few minutes)", flush=True)
        pip = [str(PFL_PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        try:
            subprocess.run([sys.executable, "-m", "venv", str(PFL_VENV)], check=True)
            subprocess.run([*pip, PFL_NEEDS[0]], check=True)  # first and alone, or CUDA is fetched as well
            subprocess.run([*pip, *PFL_NEEDS], check=True)
        except subprocess.CalledProcessError as error:
            print(f"pfl could not be installed, so (c) is left out: {error}", flush=True)
            return False
        ready.touch()
    return True


def race(case: str, contenders: list[Contender], options: argparse.Namespace) -> dict[str, Result]:
    """The best of each contender over turns and numbers of threads, by the clock and by the processor."""
    best: dict[str, Result] = {}
    least: dict[str, float] = {}
    device = options.device
    threads = options.threads or (sorted({1, os.cpu_count() or 1}) if device == "cpu" else [1])
    for turn in range(options.repeats):
        for count in threads:
            for contender in contenders:
                result = timed(contender, "--case", case, "--threads", str(count), "--device", device)
                result["threads"] = count
                rate = result["updates_per_s"]
                print(f"{case}, turn {turn + 1}, {count} threads, {contender.name}: {rate:.1f}/s", flush=True)
                own = result["processor_s"][0] / result["clients"] * 1000
                least[contender.key] = min(own, least.get(contender.key, own))
                if contender.key not in best or rate > best[contender.key]["updates_per_s"]:
                    best[contender.key] = result
    return {key: result | {"processor_ms": least[key]} for key, result in best.items()}


def scales(device: str) -> Result:
    about = {**machine(device), "load": os.getloadavg()}
    return {"scale_machine": about, "scale": {str(n): scale(n, device) for n in SCALE}}


def scale(clients: int, device: str) -> Result:
    """Seconds a round and peak memory with so many clients, of which 1,000 take part; each keeps its encoder."""
    result = timed(COHORT, "--case", "table-1000", "--clients", str(clients), "--device", device)
    seconds, peak = result["seconds"], result["peak_gib"]
    print(f"{clients:,} clients: {seconds:.3f} s a round, {peak:.2f} GiB at most", flush=True)
    return result


def timed(contender: Contender, *options: str) -> Result:
    command = [str(contender.python), str(HERE / contender.script), *options]
    if "--clients" not in options:
        command += contender.options
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def machine(device: str) -> Result:
    cpu = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu[0] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory[0] / 2**20) if memory else None,
        "gpu": torch.cuda.get_device_name() if device != "cpu" else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fedsynth": f"{importlib.metadata.version('fedsynth')} at {commit.stdout.strip() or 'no commit'}",
        "load": [round(value, 1) for value in os.getloadavg()],
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def _page(device: str) -> Path:
    name = "simulator" if device == "cpu" else f"simulator-{device.partition(':')[0]}"
    return HERE / "results" / f"{name}.md"


def write(results: Result, device: str) -> None:
    place = _page(device)
    place.parent.mkdir(exist_ok=True)
    place.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    page = "\n".join(report(results)) + "\n"
    place.write_text(page)
    print("\n" + page)


def report(results: Result) -> list[str]:
    about = results["machine"]
    timed_on = results.get("scale_machine", about)
    busy = _busy(timed_on)
    where = about["gpu"] or f"{about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB"
    lines = [
        "# Client updates per second",
        "",
        f"{where}; Python {about['python']}, torch {about['torch']}, fedsynth {about['fedsynth']}; "
        f"{about['date']}. Written by `make bench-simulator`.",
        "",
    ]
    for name, found in results["cases"].items():
        lines += _case_table(name, found, results.get("case_machines", {}).get(name))
    lines += [
        "",
        "## Number of clients",
        "",
        "Cohorts of 1,000 on one thread; each client keeps its encoder and Adam's memory, 25,249 numbers, in a file;",
        f"{timed_on['date']}, fedsynth {timed_on['fedsynth']}. Processor time: least, median and most of five rounds.",
        *([f"Other work had the machine too (load {timed_on['load'][0]:.0f}): processor time tells."] * busy),
        "",
    ]
    lines += ["| clients | seconds a round | of the processor | most memory, GiB |", "|---|---|---|---|"]
    for clients, result in results["scale"].items():
        spread = " ".join(f"{seconds:.3f}" for seconds in result.get("processor_s", []))
        lines.append(f"| {int(clients):,} | {result['seconds']:.3f} | {spread} | {result['peak_gib']:.2f} |")
    return [*lines, "", "## How", "", *_method(results)]


def _busy(about: Result) -> bool:
    return about.get("load", [0.0])[0] > 2 * about["cores"]


def _case_table(name: str, found: dict[str, Result], about: Result | None) -> list[str]:
    case, fastest = CASES[name], found["cohort"]
    what = "table autoencoder" if case.kind == "table" else "convolutional VAE, 28 x 28 grey"
    lines = [
        "",
        f"## {name}: {what}, {fastest['parameters']:,} parameters",
        "",
        f"{case.records} records a client, {case.steps} local steps of at most {case.batch}, cohort {case.cohort}.",
    ]
    if about:
        lines += [
            f"Timed on {about['date']} at a load of {about['load'][0]:.0f} on {about['cores']} cores, "
            f"fedsynth {about['fedsynth']}.",
            "Busy cores make the clock's columns tell little; processor time tells." if _busy(about) else "",
        ]
    lines += [
        "",
        "| | updates/s | cohort engine is faster by | timed on | threads | ms of the processor an update | by |",
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    for contender in (COHORT, ALONE, PFL, PLAIN):
        if contender.key in found:
            result = found[contender.key]
            ratio = fastest["updates_per_s"] / result["updates_per_s"]
            own = result.get("processor_ms")
            spent = f"{own:.2f} | {own / fastest['processor_ms']:.1f} x" if own else "|"
            lines.append(
                f"| {contender.name} | {result['updates_per_s']:,.1f} | {ratio:.1f} x | "
                f"{result['clients']} clients | {result['threads']} | {spent} |"
            )
    return lines


def _method(results: Result) -> list[str]:
    checks = [found["cohort"] for found in results["cases"].values()]
    plain, alone = (max(check[key] for check in checks) for key in ("from_plain", "from_one_by_one"))
    graphs = "Both ways of fedsynth replay their steps as a CUDA graph, also one by one; the ordinary loop does not."
    return [
        "Plain federated averaging with SGD at the client and no noise, the whole round timed, server step included.",
        "Each contender ran in a process of its own, in turns, with one thread and with all cores; its fastest round",
        "counts, and its least processor time, which other work on the machine changes less. Where the cohort was not",
        "timed in full, the number of clients is in the table. The ordinary torch",
        "loop and pfl train the same module, whose loss is fedsynth's to a relative "
        f"{plain:.1e}; a cohort trained as stacks",
        f"differs from the same clients one by one by {alone:.1e} of the change.",
        *(["", graphs] if results["machine"]["gpu"] else []),
    ]


if __name__ == "__main__":
    main()
