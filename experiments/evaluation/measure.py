"""Do the scores rank synthetic tables rightly? Six tables whose order is known, against the same real rows.

    FEDSYNTH_DATA=... python experiments/evaluation/measure.py [ROW ...]

Half of Adult's training split is real, the other half is a fresh draw: nothing can be more like the real rows without
copying them. Rows are named in ROWS; each writes results/ROW.json, from which `make tables` makes the page.
"""

import argparse
import json
import time
from pathlib import Path

import pandas as pd
import torch

from fedsynth.assess.attacks.table_attacks import Claim
from fedsynth.assess.suite import evaluate
from fedsynth.data.clients import clients_from
from fedsynth.research.datasets import adult
from fedsynth.research.experiment import machine
from fedsynth.rng import Rng
from fedsynth.synthesis.synthesizer import Synthesizer

CLIENTS, DELTA = 5_000, 1e-5
ROWS = {  # title, order, epsilon (a number, None for a generator without privacy) or how the table is made
    "fresh": ("a fresh half of the real rows", 1, "fresh"),
    "dpd_fvae": ("`dpd_fvae`", 2, None),
    "dpd_fvae_8": ("`dpd_fvae`", 3, 8.0),
    "dpd_fvae_1": ("`dpd_fvae`", 4, 1.0),
    "independent": ("the real columns, each shuffled by itself", 5, "independent"),
    "copies": ("the real rows again", 6, "copies"),
}
KEPT = (
    "train_on_real",
    "train_on_real_spread",
    "majority",
    "real_halves",
    "test",
    "rows",
    "at_least",
    "above_ceiling",
)


def halves():
    train, schema = adult("train")
    order = Rng(0).at("halves").numpy().permutation(len(train))
    half = len(train) // 2
    real, fresh = (train.iloc[kept].reset_index(drop=True) for kept in (order[:half], order[half:]))
    return real, fresh, adult("test")[0], schema


def independent(real: pd.DataFrame) -> pd.DataFrame:
    random = Rng(0).at("independent").numpy()
    return pd.DataFrame({name: real[name].array[random.permutation(len(real))] for name in real})


def trained(real, schema, epsilon):
    """The recipe with its defaults, with noise from the operating system: a real private run."""
    budget = {"private": False} if epsilon is None else {"epsilon": epsilon, "delta": DELTA}
    clients = clients_from(real, clients=CLIENTS, split="uniform", label=schema.label, rng=Rng(0).at("split"))
    made = Synthesizer("dpd_fvae", schema, **budget).fit(clients)
    return made.sample(len(real)), made.privacy, Claim.of(made.privacy)


def measure(row):
    title, order, made = ROWS[row]
    real, fresh, test, schema = halves()
    began = time.perf_counter()
    statement = claim = None
    if made is None or isinstance(made, float):
        synthetic, statement, claim = trained(real, schema, made)
    else:
        synthetic = {
            "fresh": lambda: fresh,
            "independent": lambda: independent(real),
            "copies": lambda: real,
        }[made]()
    trained_in = time.perf_counter() - began
    found = evaluate(
        real, synthetic, schema, test=test, claim=claim, progress=lambda *told: print(*told, flush=True)
    )
    scores = [
        {**score.to_dict(), "detail": {key: score.detail[key] for key in KEPT if key in score.detail}}
        for score in found.scores
    ]
    return {
        "layout": "ranking",
        "row": row,
        "title": title,
        "order": order,
        "data": {
            "name": "adult",
            "real_rows": len(real),
            "synthetic_rows": len(synthetic),
            "test_rows": len(test),
        },
        "privacy": {
            "private": claim is not None,
            "unit": statement.unit if statement else None,
            "epsilon": claim.epsilon if claim else None,
            "delta": claim.delta if claim else None,
            "simulation": False,
        },
        "scores": scores,
        "machine": machine("cpu"),
        "seconds_training": round(trained_in, 1),
        "seconds_evaluating": found.details["seconds"],
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)} (default: all)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    for row in options.row or ROWS:
        result = measure(row)
        (options.out / f"{row}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(row, result["seconds_training"], sum(result["seconds_evaluating"].values()))


if __name__ == "__main__":
    main()
