"""The tasks besides debugging: T5 (labels by hand on synthetic digits) and T6 (a group that a public set lacks).

python experiments/inspection/tasks.py T5|T6 --seeds 0-2 --out FILE.jsonl
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pixels import primary_network, scores_of, writers
from public_digits import MISSING, Subspaces, public_subspaces, usual_score
from torch import nn

from fedsynth.data.clients import RawClients
from fedsynth.data.datasets import mnist
from fedsynth.inspect.inspection import Inspection, inspect
from fedsynth.inspect.primary import Installed
from fedsynth.inspect.selection import Selection
from fedsynth.inspect.verdict import Simulation
from fedsynth.report.picture import write_grid
from fedsynth.rng import Rng
from fedsynth.synthesis.request import Request

LABELLED = 200


def request(epsilon: float, seed: int) -> Request:
    return Request(recipe="moment_vae", epsilon=epsilon, delta=1e-4, rounds=2, seed=seed)


def accuracy(images: np.ndarray, labels: np.ndarray, seed: int) -> float:
    """Of a small network trained on these images, on the real test digits."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(network.parameters(), 1e-3, weight_decay=1e-3)
    x = torch.from_numpy(images)[:, None].float() / 255
    y = torch.from_numpy(labels.astype(int))
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    tests, truth, _ = mnist("test")
    with torch.no_grad():
        guess = network(torch.from_numpy(tests)[:, None].float() / 255).argmax(1).numpy()
    return float((guess == truth.astype(int)).mean())


def label_by_rule(images: np.ndarray, rule: Any) -> tuple[np.ndarray, np.ndarray]:
    """What somebody who knows digits would say, and which examples they would leave out: the rule is a good network."""
    scores = rule(images)
    order = np.sort(scores, axis=1)
    sure = order[:, -1] - order[:, -2] > 1.0
    return scores.argmax(1), sure


def labels_by_hand(seed: int, epsilon: float) -> dict[str, Any]:
    """T5: no client has labels; 200 synthetic digits are labelled and train a classifier that is tested on real ones.

    The hand is a network trained well on the test writers: it stands for somebody who can read digits.
    """
    raw = writers()
    blank = RawClients(raw.owner, raw.count, raw.names, images=raw.images, labels=np.full(raw.rows, ""))
    selection = Selection.parse({"criterion": "unlabelled", "by": "example"})
    asked = Inspection(
        request(epsilon, seed),
        mnist("test")[2],
        {"unlabelled": selection},
        None,
        Simulation(models=0),
        shown=1000,
    )
    sample = inspect(asked, blank).models["unlabelled"].sample
    assert sample.images is not None
    labels, sure = label_by_rule(sample.images, scores_of(primary_network(1500)))
    kept = np.flatnonzero(sure)[:LABELLED]
    draw = Rng(seed).at("real").numpy()
    some = draw.choice(raw.rows, LABELLED, replace=False)
    return {
        "labelled": len(kept),
        "left out": float(1 - sure.mean()),
        "accuracy": accuracy(sample.images[kept], labels[kept], seed),
        "accuracy of as many real digits": accuracy(raw.images[some], raw.labels[some].astype(int), seed),
        "images": sample.images[:60],
    }


def unlike_public(seed: int, epsilon: float) -> dict[str, Any]:
    """T6: the public set lacks a digit; what clients hold that it does not explain is mostly that digit.

    The public model is the distance from the subspaces of the public digits.
    """
    schema = mnist("test")[2]
    network = Subspaces(*public_subspaces())
    likely = scores_of(network)
    threshold = usual_score(network)
    raw = writers()
    chosen = {
        "unlike": {"criterion": "unlikely", "by": "example", "threshold": threshold, "at_least": 5},
        "everyone": {"criterion": "everyone"},
    }
    selections = {name: Selection.parse(keys) for name, keys in chosen.items()}
    asked = Inspection(request(epsilon, seed), schema, selections, Installed(likely), Simulation(models=0))
    found = inspect(asked, raw).models
    shares = {name: float((m.sample.labels == MISSING).mean()) for name, m in found.items()}
    real = likely(raw.images) < threshold
    images, labels = found["unlike"].sample.images, found["unlike"].sample.labels
    return {
        "threshold": threshold,
        "share of the missing digit": shares,
        "share among the real rows": float((raw.labels[real] == MISSING).mean()),
        "images": images[np.argsort(labels != MISSING, kind="stable")][:60],
    }


TASKS = {"T5": labels_by_hand, "T6": unlike_public}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=tuple(TASKS))
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    first, _, last = asked.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        found = TASKS[asked.task](seed, asked.epsilon)
        images = found.pop("images")
        if seed == int(first):
            write_grid(images, asked.out.with_suffix(".png"), 20)
        line = {"task": asked.task, "seed": seed, "epsilon": asked.epsilon, **found}
        print(line, flush=True)
        with asked.out.open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
