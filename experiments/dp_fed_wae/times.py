"""How long DP-Fed-WAE takes (the paper's Table 3): a client's ten epochs, a server's round, 10^5 synthetic rows.

python experiments/dp_fed_wae/times.py [--out results/times]
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

from fedsynth.data.clients import clients_from, encode_clients
from fedsynth.recipes.registry import recipe_named
from fedsynth.research.experiment import machine
from fedsynth.research.experiment_data import a9a_tables
from fedsynth.rng import Rng
from fedsynth.synthesis.generator import Generator

HERE = Path(__file__).parent
PAPER = {"client": "1.06", "stack": "", "server": "0.0035", "generation": "7.38"}
VALUES = {
    "epsilon": 8.0,
    "opening": 0.0,
    "alpha": 0.1,
    "epochs": 10,
    "optimizer": "adam",
    "learning_rate": 0.001,
    "group": 10,
    "pretraining": 0,
}


def timed(work, times):
    """The median time of a call, and what the last one gave."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        made = work()
        taken.append(time.perf_counter() - began)
    return median(taken), made


def measured(times):
    """Seconds of each piece of work, and how many numbers the model has."""
    train, _, schema = a9a_tables()
    clients = encode_clients(clients_from(train.iloc[:200], clients=100, rng=Rng(0)), schema)
    recipe = recipe_named("dp_fed_wae")
    values = recipe.values(VALUES)
    algorithm = recipe.build(recipe.task(schema, 50_000), values)
    state = algorithm.init(Rng(0))

    def trained(count):
        ids = np.arange(count)
        return algorithm.client_round(state, {}, clients.gather(ids), ids, Rng(0))[0]

    one, _ = timed(lambda: trained(1), times)
    stack, messages = timed(lambda: trained(10), times)
    weights = torch.ones(len(messages))

    def served():
        total = algorithm.transport.absorb(algorithm.wire, algorithm.wire.zero(), messages, weights)
        return algorithm.server_round(state, total, Rng(0))

    server, _ = timed(served, times)
    parts = {part: state.parts[part] for part in algorithm.model.generative}
    generator = Generator(schema, "dp_fed_wae", values, parts, torch.tensor([0.76, 0.24]))
    generation, _ = timed(lambda: generator.sample(100_000, Rng(0)), 3)
    return {"client": one, "stack": stack, "server": server, "generation": generation}, algorithm.dim


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "times")
    given = parser.parse_args()
    torch.set_num_threads(1)
    seconds, size = measured(given.times)
    told = {
        "client": "ten epochs of one client",
        "stack": "the same of ten clients, as one stack",
        "server": "the server's round: ten messages, and the new model",
        "generation": "10^5 synthetic rows",
    }
    where = machine("cpu")
    note = (
        f"Median, one thread of {where['cpu']}; {size:,} numbers in the model. The paper: Intel E5-2470, threads not "
        "stated."
    )
    given.out.mkdir(parents=True, exist_ok=True)
    for place, (name, value) in enumerate(seconds.items()):
        cells = {"Adult (a9a)": told[name], "seconds": f"{value:.4f}", "the paper": PAPER[name]}
        row = {"order": place, "layout": "plain", "cells": cells, "note": note, "machine": where}
        (given.out / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")
        print(cells, flush=True)


if __name__ == "__main__":
    main()
