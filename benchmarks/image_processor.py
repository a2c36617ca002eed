"""Processor time of one client update on images: the cohort engine beside an ordinary torch loop, in turns.

    python benchmarks/image_processor.py     # a minute; one thread, also on a machine with other work

The clock of benchmarks/simulator.py needs a quiet machine; processor time and its ratio do not.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import time
from pathlib import Path

import torch
from cases import CASES, made_up
from cohort_engine import algorithm_of, clients_of, train
from plain import autoencoder, one_round

from simulator import machine

TURNS = 5
RESULTS = Path(__file__).parent / "results" / "image_processor.json"


def main() -> None:
    torch.set_num_threads(1)
    case = CASES["image-100"]
    algorithm, clients = algorithm_of(case), clients_of(case)
    x, y = (value[: case.sample] for value in made_up(case, case.sample))
    model = autoencoder(case)
    one_round(model, case, x, y)
    took: dict[str, list[float]] = {"cohort engine": [], "ordinary loop": []}
    for _ in range(TURNS):
        rounds: list[float] = []
        train(algorithm, clients, "cpu", 0, 2, rounds)
        took["cohort engine"].append(rounds[0] / case.cohort)
        began = time.process_time()
        one_round(model, case, x, y)
        took["ordinary loop"].append((time.process_time() - began) / case.sample)
    ratios = [slow / fast for fast, slow in zip(took["cohort engine"], took["ordinary loop"], strict=True)]
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": {**machine("cpu"), "load": os.getloadavg()},
        "update_processor_s": {
            name: [min(turns), statistics.median(turns), max(turns)] for name, turns in took.items()
        },
        "ratio": [min(ratios), statistics.median(ratios), max(ratios)],
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
