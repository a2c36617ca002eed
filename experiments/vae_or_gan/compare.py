"""VAE or GAN: epsilon, student accuracy, parameters and time of measured rows, as a table and a radar plot.

Reads results/measured/ of `fedsynth experiment run` and writes results/*.json for `make tables` and a radar plot.
Numbers of parameters come from the models that the settings build.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from fedsynth.federation.algorithm import Home
from fedsynth.models.model import total_size
from fedsynth.recipes.registry import recipe_named
from fedsynth.research.datasets import mnist

HERE = Path(__file__).parent
MEASURE = "student network: accuracy"
WRITERS = 539
THESIS = (
    "Thesis (EMNIST, projected to 30,000 clients): VAE 84% at epsilon 1.28, GAN 52% at 2.54 with four times the "
    "parameters."
)


def parameters(result: dict[str, Any]) -> tuple[int, int]:
    """How many parameters leave a client in a round, and how many the whole model has."""
    recipe = recipe_named(result["recipe"])
    task = recipe.task(mnist("test")[2], WRITERS)
    algorithm = recipe.build(task, recipe.values(result["settings"]))
    sent = [part for part, home in algorithm.homes.items() if home is Home.SHARED]
    return total_size(algorithm.model, sent), total_size(algorithm.model, algorithm.model.parts)


def row(result: dict[str, Any]) -> dict[str, Any]:
    """The four axes of one measured row."""
    sent, whole = parameters(result)
    (score,) = [score for score in result["scores"] if score["name"] == MEASURE]
    return {
        "system": result["title"],
        "epsilon": result["privacy"]["epsilon"],
        "student accuracy": score["value"],
        "parameters": whole,
        "of them sent": sent,
        "seconds a run": sum(result["seconds_training"]) / len(result["seconds_training"]),
        "trainings": result["runs"],
    }


def cells(axes: dict[str, Any]) -> dict[str, Any]:
    """A row as the table shows it."""
    counts = {name: f"{axes[name]:,}" for name in ("parameters", "of them sent")}
    return {
        **axes,
        **counts,
        "epsilon": f"{axes['epsilon']:.2f}",
        "seconds a run": f"{axes['seconds a run']:.0f}",
    }


def radar(rows: list[dict[str, Any]], path: Path) -> None:
    """Four axes, better outwards: accuracy as it is, the others by the logarithm of how far they are from the best."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = ["student accuracy", "epsilon", "parameters", "seconds a run"]
    least = {name: min(each[name] for each in rows) for name in names}
    angles = [2 * math.pi * number / len(names) for number in range(len(names))]
    figure, axis = plt.subplots(figsize=(6.5, 5), subplot_kw={"projection": "polar"})
    for each in rows:
        values = [each[names[0]]] + [
            1 / (1 + math.log(max(1.0, each[name] / least[name]))) for name in names[1:]
        ]
        axis.plot(
            [*angles, angles[0]], [*values, values[0]], label=each["system"].replace("`", ""), linewidth=1.8
        )
    axis.set_xticks(angles, ["student accuracy", "small epsilon", "few parameters", "fast"])
    axis.tick_params(axis="x", pad=22)
    axis.set_ylim(0, 1)
    axis.set_yticks([0.25, 0.5, 0.75, 1.0], ["", "", "", ""])
    axis.legend(loc="upper left", bbox_to_anchor=(1.05, 1.05), frameon=False, fontsize=8)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)


def main() -> None:
    """Read, count, write."""
    found = [json.loads(path.read_text()) for path in sorted((HERE / "results" / "measured").glob("*.json"))]
    rows = sorted((row(result) for result in found), key=lambda each: -each["student accuracy"])
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    for number, each in enumerate(rows):
        told = {"order": number, "layout": "plain", "cells": cells(each), "note": THESIS}
        (folder / f"{number}.json").write_text(json.dumps(told, indent=1) + "\n")
    if rows:
        radar(rows, HERE / "results" / "figures" / "radar.png")


if __name__ == "__main__":
    main()
