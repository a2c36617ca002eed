"""Tables at small epsilon: UCI Adult by `marginals`, real private runs with the system's noise.

    python experiments/tables/measure.py sites|clients EPSILON [--runs 3]

`sites`: each record is protected, four sites, masked sums, noise of all sites together. `clients`: each of 5,000
clients of about six rows is protected, and the server adds the noise. As many synthetic rows as the training split has;
gradient boosting learns `income` from them and is tested on the test split. Pairs: total variation of two columns
together between synthetic and test rows, sixteen public bins a number, the mean over all pairs.
"""

import argparse
import json
import platform
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from fedsynth import Synthesizer, clients_from
from fedsynth.assess.scores.utility import performance
from fedsynth.data.schema import Schema
from fedsynth.research.datasets import adult

RESULTS = Path(__file__).parent / "results"
BINS = 16
WAYS = {
    "sites": (
        "each record, four sites, masked sums",
        4,
        {"unit": "record", "trust": "distributed", "transport": "secagg"},
    ),
    "clients": ("each client, 5,000 of about six rows", 5000, {}),
}


def pair_distance(one: pd.DataFrame, other: pd.DataFrame, schema: Schema) -> float:
    """The mean total variation of all pairs of columns."""
    cells = [[_cells(frame, column) for column in schema.columns] for frame in (one, other)]
    distances = []
    for first, second in combinations(range(len(schema.columns)), 2):
        shares = [
            pd.Series(list(zip(of[first], of[second], strict=True))).value_counts(normalize=True)
            for of in cells
        ]
        distances.append(shares[0].sub(shares[1], fill_value=0).abs().sum() / 2)
    return float(np.mean(distances))


def _cells(frame: pd.DataFrame, column) -> np.ndarray:
    if column.min is None:
        return (
            frame[column.name]
            .astype(object)
            .where(frame[column.name].notna(), "missing")
            .astype(str)
            .to_numpy()
        )
    numbers = pd.to_numeric(frame[column.name]).to_numpy(float)
    bins = np.floor((numbers - column.min) / (column.max - column.min) * BINS).clip(0, BINS - 1)
    return np.where(np.isnan(numbers), BINS, bins)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("epsilon", type=float)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    title, count, how = WAYS[asked.way]
    (train, schema), (test, _) = adult("train"), adult("test")
    runs = []
    for run in range(asked.runs):
        dealt = train.assign(who=np.random.default_rng(run).permutation(len(train)) % count)
        start = time.perf_counter()
        synthesizer = Synthesizer("marginals", schema, epsilon=asked.epsilon, delta=1e-5, **how)
        synthesizer.fit(clients_from(dealt, client_column="who"))
        rows = synthesizer.sample(len(train))
        seconds = time.perf_counter() - start
        scores = performance(rows, test, schema, "gradient boosting", seed=0)
        runs.append(
            {
                "auc": scores.auc,
                "accuracy": scores.accuracy,
                "pairs": pair_distance(rows, test, schema),
                "seconds": seconds,
            }
        )
        print(runs[-1], flush=True)
    mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    spread = {key: float(np.std([run[key] for run in runs])) for key in runs[0]}
    cells = {
        "protected": title,
        "epsilon": f"{asked.epsilon:g}",
        **{name: f"{mean[key]:.3f} ± {spread[key]:.3f}" for name, key in _HEADS.items()},
        "seconds a run": f"{mean['seconds']:.0f}",
    }
    result = {
        "layout": "plain",
        "order": list(WAYS).index(asked.way) * 100 + asked.epsilon,
        "cells": cells,
        "runs": runs,
        "machine": f"{platform.processor() or platform.machine()}, one thread",
        "note": f"Mean ± standard deviation over {asked.runs} trainings with the system's noise, delta 1e-5.",
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{asked.way}_{asked.epsilon:g}.json").write_text(json.dumps(result, indent=2) + "\n")


_HEADS = {"AUC": "auc", "accuracy": "accuracy", "pairs": "pairs"}

if __name__ == "__main__":
    main()
