"""The tasks besides debugging (T1, T3, T5, T6): a number and a picture for what `fedsynth inspect` wrote.

fedsynth inspect --config experiments/inspection/missing_digit.toml --out T6_0
python experiments/inspection/tasks.py T6 T6_0 T6_1 T6_2 --out experiments/inspection/results/T6.jsonl
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pixels import primary_network, scores_of, writers
from public_digits import MISSING, Subspaces, public_subspaces, usual_score
from torch import nn

from fedsynth.assess.report.picture import write_grid
from fedsynth.data.schema import Schema
from fedsynth.data.text import Text
from fedsynth.inspection.contrast import intensity
from fedsynth.inspection.sample import Sample
from fedsynth.inspection.text import unknown_by_position
from fedsynth.research.datasets import data_folder, mnist
from fedsynth.rng import Rng
from fedsynth.synthesis.generator import Generator

LABELLED = 200
READER_STEPS = 1500  # of the network that stands for somebody who can read digits
POSITIONS = 8


def sample_of(folder: Path, name: str) -> Sample:
    """The examples that an inspection made up for a selection."""
    return Sample.load(folder, name, Schema.load(folder / "schema.json"))


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
    guess = scores_of(network)(tests).argmax(1)
    return float((guess == truth.astype(int)).mean())


def random_examples(folder: Path, seed: int, picture: Path | None) -> dict[str, Any]:
    """T1: are random examples as they should be? Size, range, intensity, and whether a reader reads their label."""
    sample = sample_of(folder, "everyone")
    images, labels = sample.data
    read = scores_of(primary_network(READER_STEPS))(images).argmax(1)
    if picture:
        write_grid(_by_class(images, labels, 4), picture, 20)
    raw = writers()
    assert raw.data[0] is not None
    return {
        "size": list(images.shape[1:]),
        "range": [int(images.min()), int(images.max())],
        "intensity": intensity(sample),
        "intensity of real rows": float(raw.data[0].mean(dtype=np.float64) / 255),
        "read as labelled": float((read == labels.astype(int)).mean()),
    }


def _by_class(images: np.ndarray, labels: np.ndarray, down: int) -> np.ndarray:
    """Two columns a class, so many rows."""
    columns = [images[labels == kind][: 2 * down].reshape(down, 2, 28, 28) for kind in sorted(set(labels))]
    return np.concatenate(columns, axis=1).reshape(-1, 28, 28)


def unknown_words(folder: Path, seed: int, picture: Path | None) -> dict[str, Any]:
    """T3: where sentences have words out of the vocabulary, as the model of such sentences tells it and as it is."""
    schema = Schema.load(folder / "schema.json")
    values = json.loads((folder / "findings.json").read_text())["recipe"]
    generator = Generator.load(folder / "unknown.safetensors", schema, values.pop("recipe"), values)
    texts = sample_of(folder, "unknown").texts
    return {
        "unknown by position": unknown_by_position(generator, Rng(seed), POSITIONS),
        "real": _real_unknown(Text(schema)),
        "texts": texts[:5],
    }


def _real_unknown(encoding: Text) -> list[float]:
    """The share of unknown words by position in the sentences that have one, which nobody would see."""
    known = frozenset(encoding.words)
    source = gzip.decompress((data_folder() / "stackexchange_by_user.jsonl.gz").read_bytes())
    pieces = [
        piece.split() for line in source.splitlines() for piece in encoding.pieces(json.loads(line)["text"])
    ]
    chosen = [words for words in pieces if any(word not in known for word in words)]
    return [
        float(np.mean([words[place] not in known for words in chosen if len(words) > place]))
        for place in range(POSITIONS)
    ]


def label_by_rule(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What somebody who knows digits would say, and which examples they would not leave out."""
    scores = scores_of(primary_network(READER_STEPS))(images)
    order = np.sort(scores, axis=1)
    return scores.argmax(1), order[:, -1] - order[:, -2] > 1.0


def labels_by_hand(folder: Path, seed: int, picture: Path | None) -> dict[str, Any]:
    """T5: no client has labels; 200 synthetic digits are labelled and train a classifier that is tested on real ones.

    The hand is a network trained well on the test writers: it stands for somebody who can read digits.
    """
    images = sample_of(folder, "unlabelled").data[0]
    labels, sure = label_by_rule(images)
    kept = np.flatnonzero(sure)[:LABELLED]
    if picture:
        write_grid(images[kept[np.argsort(labels[kept], kind="stable")][:: LABELLED // 40]], picture, 20)
    raw = writers()
    some = Rng(seed).at("real").numpy().choice(raw.rows, LABELLED, replace=False)
    return {
        "labelled": len(kept),
        "left out": float(1 - sure.mean()),
        "accuracy": accuracy(images[kept], labels[kept], seed),
        "accuracy of as many real digits": accuracy(raw.data[0][some], raw.data[1][some].astype(int), seed),
    }


def unlike_public(folder: Path, seed: int, picture: Path | None) -> dict[str, Any]:
    """T6: the public set lacks a digit; among what clients hold that it does not explain that digit is frequent."""
    found = {name: sample_of(folder, name) for name in ("unlike", "everyone")}
    images, labels = found["unlike"].data
    if picture:
        first = np.argsort(labels != MISSING, kind="stable")
        strange = images[first][:20], images[: 20 * 2]
        write_grid(np.concatenate(strange), picture, 20)
    network = Subspaces(*public_subspaces())
    raw = writers()
    real = scores_of(network)(raw.data[0]) < usual_score(network)
    return {
        "share of the missing digit": {
            name: float((s.data[1] == MISSING).mean()) for name, s in found.items()
        },
        "share among the real rows": float((raw.data[1][real] == MISSING).mean()),
    }


TASKS = {"T1": random_examples, "T3": unknown_words, "T5": labels_by_hand, "T6": unlike_public}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=tuple(TASKS))
    parser.add_argument("folders", nargs="+", type=Path, help="that `fedsynth inspect --out` wrote")
    parser.add_argument("--picture", type=Path, help="PNG of the first folder's examples")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for number, folder in enumerate(asked.folders):
        found = TASKS[asked.task](folder, number, asked.picture if number == 0 else None)
        promise = json.loads((folder / "privacy.json").read_text())
        spent = {"epsilon": promise["epsilon"], "delta": promise["delta"]}
        lines.append(json.dumps({"task": asked.task, "run": number, **spent, **found}))
        print(lines[-1], flush=True)
    asked.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
