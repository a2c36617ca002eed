"""Attacks on images: who was trained on, and what a single update shows.

    python experiments/image_attacks/measure.py membership ROW.toml [--device cuda] [--out FOLDER]
    python experiments/image_attacks/measure.py inversion [--recipes NAME ...] [--out FOLDER]

`membership` trains a row of another experiment once and asks about 1,000 of its training images and as many others:
is a synthetic image near (closest image), and are synthetic images denser there than the population (density ratio), in
pixels and in the features of a LeNet, the most telling of which is chosen on one half and told on the other. The
others and a population of 4,000 are test images. `inversion` rebuilds the images of 50 clients that have one each from
the updates of the first round, by a search (research/image_inversion.py).
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional as F

from fedsynth.assess.attacks.attack import area, attack_scores
from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.assess.attacks.density import density_ratios
from fedsynth.assess.attacks.distance import AttackedPoints, nearest_distances
from fedsynth.assess.scores.features import extract
from fedsynth.data.atomic import write_file
from fedsynth.data.image import Image
from fedsynth.recipes.budget import Target
from fedsynth.research.experiment import Experiment, machine
from fedsynth.research.image_experiment import IMAGE_DATA, ImageJudge, kept_lenet
from fedsynth.research.inverted import inverted
from fedsynth.rng import Rng

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tables import protected  # noqa: E402 - of all experiments, one folder up

RECIPES = ("fvae", "dpd_fvae")
ORDER = {
    row: place for place, row in enumerate(("mnist_fvae_none", "mnist_dpd_fvae_none", "writers_table_9_adam"))
}
ASKED, KNOWN, SYNTHETIC = 1000, 4000, 20_000
LENETS = HERE.parent / "pp_fedgan" / "results" / "lenets"


def views(images, network):
    """Images as points: their pixels, four in one, and the features of a LeNet."""
    pixels = F.avg_pool2d(images.float() / 255, 2).flatten(1)
    features = extract(network, images).values
    return {"pixels": pixels, "LeNet": torch.as_tensor(features, dtype=torch.float32)}


def guesses(members, others, synthetic, known):
    """What each attack says of members and of others, by its name."""
    found = {}
    for view in members:
        points = AttackedPoints(members[view], others[view], synthetic[view])
        near = [
            -nearest_distances(side, points.synthetic)[:, 0].numpy()
            for side in (points.members, points.others)
        ]
        found[f"closest image, {view}"] = near
        for kind, ratio in density_ratios(points, known[view]).items():
            found[f"density ratio, {view}, {kind}"] = list(ratio)
    return found


def membership(row, device):
    """One training of a row, and what the best attack finds."""
    experiment = Experiment.load(row).changed({}, device, 1)
    judge = ImageJudge(experiment.data, (), 1, experiment.train_rows, 1)
    trial = judge.trial(replace(experiment.request, seed=None), None, experiment.fit)
    draw = Rng(0)
    encoded = [
        Image(judge.schema).encode(each)[0]
        for each in (IMAGE_DATA[experiment.data]("train")[:2], trial.sets[0])
    ]
    test = Image(judge.schema).encode(IMAGE_DATA[experiment.data]("test")[:2])[0]
    real, made = encoded
    order = draw.at("others").numpy().permutation(len(test))
    chosen = draw.at("members").numpy().permutation(len(real))[:ASKED]
    network = kept_lenet(LENETS / f"{experiment.data}.safetensors", judge.schema)
    groups = (real[chosen], test[order[:ASKED]], made[:SYNTHETIC], test[order[ASKED : ASKED + KNOWN]])
    found = guesses(*(views(group, network) for group in groups))
    half = ASKED // 2
    best = max(found, key=lambda kind: area(*(side[:half] for side in found[kind])))
    privacy = trial.fitted.privacy
    claim = Ceiling.of(privacy["epsilon"], privacy["delta"], swapped=True) if privacy["private"] else None
    auc, caught = attack_scores(best, *(side[half:] for side in found[best]), claim)
    allowed = auc.detail["allowed"]
    return {
        "layout": "plain",
        "order": ORDER.get(row.stem, 99),
        "cells": {
            "trained on": experiment.title,
            "protected": protected(privacy),
            "best attack": best,
            "AUC": f"{auc.value:.3f} (at least {auc.detail['at_least']:.3f})",
            "the claim allows": "" if allowed is None else f"{allowed:.3f}",
            "found at 1% false alarms": caught.value,
        },
        "note": f"{half} members and {half} others judge the attack that as many others chose.",
        "row": row.stem,
        "privacy": privacy,
        "every": {kind: area(*sides) for kind, sides in found.items()},
        "seconds": round(trial.seconds, 1),
        "machine": machine(device),
    }


def inversion(name, optimizer, steps):
    """What the search rebuilds from single updates and from the noisy sum of 50 clients, at epsilon 10 for 500."""
    settings = {"rounds": 50, "rate": 1.0, "optimizer": optimizer}
    began = time.perf_counter()
    single, noisy = inverted(name, "mnist", Target(10.0, 1e-5), 500, settings, steps=steps)
    return {
        "layout": "plain",
        "order": [*RECIPES].index(name) * 2 + (optimizer == "sgd"),
        "cells": {
            "recipe": f"`{name}`",
            "client's step": optimizer,
            "steps of search": f"{steps}",
            "from a single update": single.value,
            "from the noisy sum": noisy.value,
            "the mean image": single.detail["baseline"],
        },
        "note": "Mean correlation over the pixels of 50 images.",
        "scores": [single.to_dict(), noisy.to_dict()],
        "seconds": round(time.perf_counter() - began, 1),
        "machine": machine("cpu"),
    }


def main():
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("membership", "inversion"))
    parser.add_argument("rows", nargs="*", type=Path)
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--optimizers", nargs="+", default=("adam", "sgd"))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    if asked.what == "membership":
        found = ((row.stem, membership(row, asked.device)) for row in asked.rows)
    else:
        asked.out = asked.out / "inversion"
        each = itertools.product(asked.recipes, asked.optimizers)
        found = ((f"{name}_{optimizer}", inversion(name, optimizer, asked.steps)) for name, optimizer in each)
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, result in found:
        write_file(asked.out / f"{name}.json", json.dumps(result, indent=1, allow_nan=False) + "\n")
        print(name, result["cells"], flush=True)


if __name__ == "__main__":
    main()
