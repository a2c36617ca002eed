"""Inspections of MNIST by writer, over seeds, with and without inverted pixels; one JSON line an inspection.

python experiments/inspection/measure.py --recipe moment_vae --by user --epsilon 8 --affected 0.5,0 --seeds 0-4 --out F
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pixels import inverted, primary_network, scores_of, writers

from fedsynth.assess.report.picture import write_grid
from fedsynth.inspection.contrast import intensity
from fedsynth.inspection.findings import Findings
from fedsynth.inspection.inspection import inspect
from fedsynth.inspection.primary import Installed
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.selection import Selection
from fedsynth.inspection.verdict import Simulation
from fedsynth.research.datasets import mnist
from fedsynth.synthesis.request import Request

BY_EXAMPLE = {
    "bad": {"by": "example", "criterion": "misclassified", "at_least": 10},
    "good": {"by": "example", "criterion": "correct", "at_least": 10},
}


def by_user(percent: int) -> dict[str, dict[str, Any]]:
    """The clients on which the classifier is worst and best: so many percent at either end."""
    user = {"by": "user", "criterion": "correct"}
    return {"bad": {**user, "below": f"{percent}%"}, "good": {**user, "above": f"{100 - percent}%"}}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="moment_vae")
    parser.add_argument("--by", choices=("user", "example"), default="user")
    parser.add_argument("--percent", type=int, default=25, help="by user: of the clients, at either end")
    parser.add_argument("--epsilon", default="8", help="numbers, by comma")
    parser.add_argument("--affected", default="0.5,0", help="shares of clients, by comma")
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--models", type=int, default=8, help="of the simulation without a difference")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", nargs="*", default=[], help="name=value of the recipe")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="begin no further inspection after so long"
    )
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def cases(asked: argparse.Namespace) -> Iterator[tuple[int, float, float]]:
    first, _, last = asked.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        for epsilon in map(float, asked.epsilon.split(",")):
            for affected in map(float, asked.affected.split(",")):
                yield seed, epsilon, affected


def line(findings: Findings) -> dict[str, Any]:
    """What is kept of an inspection."""
    return {
        "fires": findings.fires,
        "noise_only": findings.empty,
        "intensity": {name: intensity(model.sample) for name, model in findings.models.items()},
        "share": {name: model.share.told for name, model in findings.models.items()},
        "contrast": {f.name: [f.value, f.threshold] for f in findings.contrast},
        "noise_multiplier": findings.recipe["noise_multiplier"],
        "epsilon_by_ledger": [r["what"] for r in findings.statement.releases],
    }


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    began = time.monotonic()
    model = Installed(scores_of(primary_network()))
    schema = mnist("test")[2]
    raw = writers()
    chosen = by_user(asked.percent) if asked.by == "user" else BY_EXAMPLE
    selections = {name: Selection.parse(keys) for name, keys in chosen.items()}
    settings = dict(text.split("=", 1) for text in asked.set)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    noise: dict[float, float] = {}  # by epsilon: it depends on nothing else here
    for seed, epsilon, affected in cases(asked):
        if time.monotonic() - began > asked.seconds:
            break
        started = time.monotonic()
        request = Request(
            recipe=asked.recipe,
            epsilon=epsilon,
            delta=1e-4,
            rounds=asked.rounds,
            noise_multiplier=noise.get(epsilon),
            seed=seed,
            device=asked.device,
            arguments=settings,
        )
        inspection = Inspection(request, schema, selections, model, Simulation(models=asked.models))
        findings = inspect(inspection, inverted(raw, affected, seed))
        noise[epsilon] = findings.recipe["noise_multiplier"]
        settled = {
            "recipe": asked.recipe,
            "by": asked.by,
            "seed": seed,
            "epsilon": epsilon,
            "affected": affected,
        }
        settled |= {
            "rounds": asked.rounds,
            "models": asked.models,
            "percent": asked.percent,
            **settings,
            "seconds": time.monotonic() - started,
        }
        with asked.out.open("a") as file:
            file.write(json.dumps({**settled, **line(findings)}) + "\n")
        print(seed, epsilon, affected, findings.fires, flush=True)
        if seed == int(asked.seeds.partition("-")[0]):
            side_by_side(findings, asked.out.with_name(f"{asked.out.stem}_{epsilon:g}_{affected:g}.png"))


def side_by_side(findings: Findings, path: Path) -> None:
    """Examples of the bad selection at the left, of the good one at the right, a class a column."""
    halves = []
    for model in findings.models.values():
        images, labels = model.sample.data
        columns = [images[labels == digit][:5] for digit in findings.schema.classes]
        halves.append(np.stack([column for column in columns if len(column) == 5], axis=1))
    across = sum(half.shape[1] for half in halves)
    write_grid(np.concatenate(halves, axis=1).reshape(-1, 28, 28), path, across)


if __name__ == "__main__":
    main()
