"""Membership inference against DP-Fed-WAE (the paper's Table 4): shadow generators with and without each target.

    python experiments/dp_fed_wae/membership.py [--epsilon 8 2 0.5 0] [--runs 48] [--out results/membership]

Epsilon 0 stands for no privacy. Each run trains on rows of Adult (a9a) dealt to half as many clients, with each of the
targets in or out by the toss of a coin; half of the targets are the rows that are easiest to recognise.
"""

import argparse
import json
from pathlib import Path

import torch

from fedsynth.assess.attacks.membership import membership_attack
from fedsynth.assess.attacks.shadow import Shadows
from fedsynth.research.experiment import machine
from fedsynth.research.experiment_data import a9a_tables

HERE = Path(__file__).parent
PAPER = {0.0: 0.642, 8.0: 0.535, 2.0: 0.519, 0.5: 0.506}
SETTINGS = {"pretraining": 300, "group": 50}


def attacked(epsilon, runs, size, targets, seed):
    """The row of one epsilon."""
    train, _, schema = a9a_tables()
    values = {**SETTINGS, **({"epsilon": epsilon} if epsilon else {})}
    shadows = Shadows("dp_fed_wae", schema, values, clients=size // 2, private=bool(epsilon), trust="local")
    area, found = membership_attack(
        train, schema, shadows, runs=runs, size=size, targets=targets, ceiling=shadows.ceiling, seed=seed
    )
    if area.failed:
        raise SystemExit(f"epsilon {epsilon:g}: {area.failed}")
    detail = area.detail
    title = f"each client: ε = {epsilon:g}, nobody trusted" if epsilon else "nobody"
    return {
        "order": -int(epsilon * 10) if epsilon else -1000,
        "layout": "plain",
        "cells": {
            "protected": title,
            "best attacker: accuracy": detail["accuracy"],
            "AUC": area.value,
            "found at 1% false alarms": found.value,
            "who it was": detail["attacker"],
            "the paper: accuracy": f"{PAPER[epsilon]:.3f}" if epsilon in PAPER else "",
        },
        "note": f"{runs} shadow generators a row, each of {size:,} people and {targets} targets that are in or out, "
        "with as many synthetic rows; a quarter of the runs choose the attacker, a quarter that nobody saw judge it.",
        "detail": {
            name: value for name, value in detail.items() if name in ("attackers", "runs", "targets", "size")
        },
        "settings": values,
        "machine": machine("cpu"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[0.0, 8.0, 2.0, 0.5])
    parser.add_argument("--runs", type=int, default=48)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--targets", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "membership")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    for epsilon in given.epsilon:
        row = attacked(epsilon, given.runs, given.size, given.targets, given.seed)
        name = f"epsilon_{epsilon:g}".replace(".", "p") if epsilon else "no_privacy"
        (given.out / f"{name}.json").write_text(json.dumps(row, indent=1, allow_nan=False) + "\n")
        print(row["cells"], flush=True)


if __name__ == "__main__":
    main()
