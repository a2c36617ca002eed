"""How loud 539 writers are against the noise that hides one of them: the sum of clipped updates, round by round.

python experiments/fedvae_thesis_images/loudness.py [--rounds 10] [--device cuda] [--out results/loudness]

Each row is trained as its TOML file says, noise included; what is told of the sum before its noise is a look at public
digits that no private run would allow.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from fedsynth.data.clients import encode_clients, image_clients_from
from fedsynth.recipes.budget import Target, fit_budget
from fedsynth.recipes.registry import recipe_named
from fedsynth.research.datasets import mnist, mnist_writers
from fedsynth.research.experiment import Experiment, machine
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess

HERE = Path(__file__).parent
ROWS = ("writers_unified_10", "writers_separate_10", "writers_smooth_10", "writers_smooth_separate_10")


def algorithm_of(experiment, schema, clients):
    """The algorithm of a row, with the noise that its epsilon asks for."""
    request, recipe = experiment.request, recipe_named("fed_vae")
    target = Target(request.epsilon, request.delta)
    return fit_budget(recipe, recipe.task(schema, clients), recipe.values(request.arguments), target)[0]


def measured(algorithm, clients, rounds, device):
    """The norm of the sum over that of its noise, in each round."""
    rng, everybody = Rng(0), np.arange(len(clients))
    link, state = InProcess(clients, rng, device=device), algorithm.init(rng.at("init"))
    noise = algorithm.mechanism.noise_multiplier * algorithm.mechanism.clip.bound * np.sqrt(algorithm.dim)
    ratios = []
    for version in range(rounds):
        link.start(algorithm, everybody, state)
        total, heard = 0.0, 0
        while heard < len(everybody):
            arrival = link.next()
            total, heard = total + arrival.messages.double().sum(0).cpu(), heard + len(arrival.ids)
        ratios.append(float(total[:-1].norm()) / noise)
        state, _ = algorithm.server_round(state, total, rng.at("server", version))
        link.commit()
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", default=ROWS)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--writers", type=int, help="only the first so many, for a trial")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "loudness")
    given = parser.parse_args()
    images, labels, schema = mnist("train")
    owners = mnist_writers("train")
    chosen = np.isin(owners, np.unique(owners)[: given.writers])
    raw = image_clients_from(images[chosen], labels[chosen], owners=owners[chosen])
    clients = encode_clients(raw, schema)
    given.out.mkdir(parents=True, exist_ok=True)
    for row in given.rows:
        experiment = Experiment.load(HERE / f"{row}.toml")
        algorithm = algorithm_of(experiment, schema, len(clients))
        ratios = measured(algorithm, clients, given.rounds, given.device)
        cells = {
            "decoder": experiment.title,
            "numbers shared": f"{algorithm.dim - 1:,}",
            "rounds": algorithm.rounds,
            "noise multiplier": f"{algorithm.mechanism.noise_multiplier:.2f}",
            "sum / noise, round 1": f"{ratios[0]:.2f}",
            f"mean of rounds 2 to {given.rounds}": f"{np.mean(ratios[1:]):.2f}",
        }
        note = "Norm of the sum of all clipped updates over the norm that its noise has on average."
        result = {
            "order": experiment.order,
            "layout": "plain",
            "cells": cells,
            "note": note,
            "machine": machine(given.device),
        }
        (given.out / f"{row}.json").write_text(json.dumps({**result, "ratios": ratios}, indent=1) + "\n")
        print(cells, flush=True)


if __name__ == "__main__":
    main()
