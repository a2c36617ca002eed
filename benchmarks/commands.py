"""Processor time of short commands, as a user starts them: help, a plan, more rows of a run.

    python benchmarks/commands.py RUN SCHEMA.json     # a run of `marginals` and its schema; a minute
    python benchmarks/commands.py RUN SCHEMA.json --before SRC --turns 2    # beside the source of another commit

Aims of the project, on a quiet machine: help .3 s, a plan 2 s, a sample of 10,000 rows 1.5 s.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from simulator import machine

START = "import sys; sys.argv[0] = 'fedsynth'; from fedsynth.cli.main import main; main()"  # as the installed command
LIBRARIES = ("torch", "scipy.stats, scipy.signal", "pandas")
RESULTS = Path(__file__).parent / "results" / "commands.json"


def processor(source: str, code: str, *words: str) -> float:
    """Seconds that a Python process and its children take of the processor, with the package of `source`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code, *words],
        check=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": source},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("schema")
    parser.add_argument("--before", help="src of a checkout of an earlier commit")
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    schema, now = asked.schema, str(Path(__file__).parents[1] / "src")
    people = ["--clients", "32561", "--records", "32561", "--epsilon", "1", "--delta", "1e-6"]
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "help": (START, "--help"),
            "plan of the recipe that auto takes": (
                START,
                "plan",
                "--schema",
                schema,
                *people,
                "--recipe",
                "auto",
            ),
            "plan of all recipes": (START, "plan", "--schema", schema, *people),
            "sample of 10,000 rows": (
                START,
                "sample",
                asked.run,
                "--rows",
                "10000",
                "--out",
                f"{folder}/TURN.csv",
            ),
            **{f"import {name}": (f"import {name}",) for name in LIBRARIES},
            "an empty program": ("",),
        }
        ways = {name: (now, *words) for name, words in commands.items()}
        if asked.before:
            ways |= {
                f"{name}, before": (asked.before, *commands[name])
                for name in commands
                if START in commands[name]
            }
        took: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(1 + asked.turns):  # the first fills the disk's cache
            for name, (source, *words) in ways.items():
                seconds = processor(source, *(word.replace("TURN", f"{turn} {name}") for word in words))
                took[name] += [seconds] if turn else []
    result = {
        "machine": {**machine("cpu"), "load": os.getloadavg()},
        "processor_s": {
            name: [min(turns), statistics.median(turns), max(turns)] for name, turns in took.items()
        },
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
