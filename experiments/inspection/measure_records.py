"""Two bugs in a table (Adult), found by contrast: users whose rows are unlikely under a public model, and the others.

python experiments/inspection/measure_records.py --bug hours_per_week --affected 0.3,0 --seeds 0-4 --out FILE.jsonl
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from records import BUGS, broken, people, public_model, scores_of, usual_score

from fedsynth.inspection.inspection import inspect
from fedsynth.inspection.primary import Installed
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.selection import Selection
from fedsynth.inspection.verdict import Simulation
from fedsynth.research.datasets import adult
from fedsynth.synthesis.request import Request

# one answer about every two columns, and a single step after it
ONE_SHOT = {"start_share": 0.95, "pretraining": 300}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=tuple(BUGS), default="hours_per_week")
    parser.add_argument("--affected", default="0.3,0")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--models", type=int, default=8, help="of the simulation without a difference")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    model = Installed(scores_of(public_model()), "income")
    odd = {"by": "user", "criterion": "unlikely", "threshold": usual_score()}
    selections = {
        "odd": Selection.parse({**odd, "above": "75%"}),
        "usual": Selection.parse({**odd, "below": "25%"}),
    }
    raw, schema = people(), adult("test")[1]
    noise: float | None = None  # it depends on epsilon alone
    first, _, last = asked.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        for affected in map(float, asked.affected.split(",")):
            if time.monotonic() - began > asked.seconds:
                return
            started = time.monotonic()
            request = Request(
                recipe="dp_fedavg_gan",
                epsilon=asked.epsilon,
                delta=1e-4,
                rounds=1,
                noise_multiplier=noise,
                seed=seed,
                arguments=ONE_SHOT,
            )
            plan = Simulation(models=asked.models, shown=5000)
            inspection = Inspection(request, schema, selections, model, plan, shown=5000)
            findings = inspect(inspection, broken(raw, asked.bug, affected, seed))
            noise = findings.recipe["noise_multiplier"]
            line = {
                "bug": asked.bug,
                "affected": affected,
                "seed": seed,
                "epsilon": asked.epsilon,
                "models": asked.models,
                "seconds": time.monotonic() - started,
                "fires": findings.fires,
                "noise_only": findings.empty,
                "fired": [f.name for f in findings.contrast if f.fires],
                "contrast": {f.name: [f.value, f.threshold] for f in findings.contrast},
                "share": {name: m.share.told for name, m in findings.models.items()},
            }
            print(line["bug"], affected, seed, line["fires"], line["fired"], flush=True)
            with asked.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
