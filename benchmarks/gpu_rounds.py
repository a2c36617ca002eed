"""Seconds a round of the cohort engine on a GPU, in float32 and in TF32, for two versions of the code.

PYTHONPATH=OLD/src:benchmarks python benchmarks/gpu_rounds.py old.json --precisions none
PYTHONPATH=src:benchmarks python benchmarks/gpu_rounds.py new.json --against old.json
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path

import cohort_engine
import torch
from cases import CASES

ROUNDS = {"image-100": 8, "image-100, 60 steps": 4, "table-100": 40, "table-1000": 20}
LONG = {"image-100, 60 steps": replace(CASES["image-100"], epochs=10)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("place", type=Path)
    parser.add_argument("--precisions", nargs="+", default=["float32", "tf32"])
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    found = {}
    for name, rounds in ROUNDS.items():
        case = replace({**CASES, **LONG}[name], rounds=rounds)
        for precision in options.precisions if name.startswith("image") else options.precisions[:1]:
            seconds, flat = timed(case, precision)
            found[f"{name}, {precision}"] = {
                "seconds": min(seconds),
                "median": statistics.median(seconds),
                "updates_per_s": case.cohort / min(seconds),
                "change": flat.tolist()[::97],
            }
            print(name, precision, found[f"{name}, {precision}"]["seconds"], flush=True)
    options.place.write_text(json.dumps(found))
    if options.against:
        compare(found, json.loads(options.against.read_text()))


def timed(case: cohort_engine.Case, precision: str) -> tuple[list[float], torch.Tensor]:
    """Seconds of each round, and how far the shared model went."""
    algorithm, clients = cohort_engine.algorithm_of(case), cohort_engine.clients_of(case)
    link = cohort_engine.InProcess
    if precision != "none":
        cohort_engine.InProcess = lambda *some, **more: link(*some, matmul=precision, **more)
    state, seconds = cohort_engine.train(algorithm, clients, "cuda", 0, case.rounds)
    cohort_engine.InProcess = link
    start = cohort_engine._flat(algorithm.init(cohort_engine.Rng(0)))
    return seconds, cohort_engine._flat(state) - start


def compare(new: dict[str, dict], old: dict[str, dict]) -> None:
    print("| case | before, ms a round | now, ms a round | updates/s | | from before, of the change |")
    print("|---|---|---|---|---|---|")
    for name, result in new.items():
        before = next(
            value for key, value in old.items() if key.rpartition(", ")[0] == name.rpartition(", ")[0]
        )
        a, b = (torch.tensor(value["change"]) for value in (result, before))
        print(
            f"| {name} | {1000 * before['seconds']:.2f} | {1000 * result['seconds']:.2f} | "
            f"{result['updates_per_s']:,.0f} | "
            f"{before['seconds'] / result['seconds']:.1f} x | {float((a - b).norm() / b.norm()):.1e} |"
        )


if __name__ == "__main__":
    main()
