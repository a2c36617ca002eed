"""From lines that measurements left (results/*.jsonl) to rows of the README's tables and the plot.

python experiments/inspection/summary.py && make tables
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE / "results"
Lines = list[dict[str, Any]]


def lines(*stems: str) -> Lines:
    """All lines of these files, as far as they exist."""
    files = [path for stem in stems for path in sorted(RESULTS.glob(f"{stem}.jsonl"))]
    return [json.loads(text) for path in files for text in path.read_text().splitlines()]


def spread(values: list[float]) -> str:
    if not values:
        return "–"
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


def write(folder: str, order: int, name: str, cells: dict[str, Any], note: str = "") -> None:
    place = HERE / folder
    place.mkdir(exist_ok=True)
    row = {"layout": "plain", "order": order, "cells": cells, "note": note}
    (place / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")


def firing() -> None:
    """How often the verdict fires, with the bug and without, and the difference of mean intensities."""
    groups: dict[tuple[Any, ...], Lines] = defaultdict(list)
    for line in lines("user*", "example*", "moments*", "gan*", "vae*"):
        known = "asked" if "share" in line else "guessed"
        groups[known, line["recipe"], line["by"], line["epsilon"], line["affected"]].append(line)
    note = (
        "Difference: mean intensity of the bad selection's examples minus that of the good, and its standard "
        "deviation over seeds. A verdict needs simulations without a difference; where none were made, there is "
        "none. The rows with many seeds are older: there the share of clients who qualify was a public guess (a "
        "quarter) and not asked for."
    )
    for order, (key, found) in enumerate(sorted(groups.items(), key=lambda item: tuple(map(str, item[0])))):
        known, recipe, by, epsilon, affected = key
        judged = [line for line in found if line["fires"] is not None]
        apart = [line["intensity"]["bad"] - line["intensity"]["good"] for line in found]
        thresholds = [line["contrast"]["mean intensity"][1] for line in judged]
        cells = {
            "recipe": recipe,
            "selected by": by,
            "epsilon": f"{epsilon:g}",
            "clients with inverted pixels": f"{affected:.0%}",
            "how many qualify": known,
            "fires": f"{sum(line['fires'] for line in judged)} of {len(found)}" if judged else "no verdict",
            "difference": spread(apart),
            "threshold": spread(thresholds),
        }
        write("results", order, f"firing_{known}_{recipe}_{by}_{epsilon:g}_{affected:g}", cells, note)


def bugs_in_a_table() -> None:
    """How often each bug of the table is found, and whether the column is named."""
    groups: dict[tuple[str, float], Lines] = defaultdict(list)
    for line in lines("hours", "relationship"):
        groups[line["bug"], line["affected"]].append(line)
    for order, ((bug, affected), found) in enumerate(sorted(groups.items())):
        cells = {
            "bug in": bug,
            "clients with it": f"{affected:.0%}",
            "fires": f"{sum(bool(line['fires']) for line in found)} of {len(found)}",
            "columns named": ", ".join(sorted({name for line in found for name in line["fired"]})) or "none",
            "distance of that column": spread([line["contrast"][bug][0] for line in found]),
            "threshold": spread([line["contrast"][bug][1] for line in found]),
        }
        write("results_tables", order, f"{bug}_{affected:g}", cells)


def sensitivity() -> None:
    """The share of runs that fire by share of affected clients and epsilon: a table, and a plot of the differences."""
    found = [
        line
        for line in lines("sense*", "user")
        if line["recipe"] == "moment_vae" and line["by"] == "user" and line["affected"] > 0
    ]
    shares = sorted({line["affected"] for line in found})
    for order, epsilon in enumerate(sorted({line["epsilon"] for line in found})):
        cells: dict[str, Any] = {"epsilon": f"{epsilon:g}"}
        for share in shares:
            here = [line for line in found if line["epsilon"] == epsilon and line["affected"] == share]
            cells[f"{share:.0%} affected"] = (
                f"{sum(bool(line['fires']) for line in here)} of {len(here)}" if here else "–"
            )
        write("results_sensitivity", order, f"epsilon_{epsilon:g}", cells)
    if found:
        plot(found)


def plot(found: Lines) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4))
    for epsilon in sorted({line["epsilon"] for line in found}):
        here = [line for line in found if line["epsilon"] == epsilon]
        shares = sorted({line["affected"] for line in here})
        ratio = [
            np.mean(
                [
                    line["contrast"]["mean intensity"][0] / line["contrast"]["mean intensity"][1]
                    for line in here
                    if line["affected"] == share
                ]
            )
            for share in shares
        ]
        axes.plot([100 * share for share in shares], ratio, marker="o", label=f"epsilon {epsilon:g}")
    axes.axhline(1, color="black", linestyle=":", linewidth=1)
    axes.set_xlabel("clients with inverted pixels, percent")
    axes.set_ylabel("difference of mean intensity / threshold")
    axes.legend()
    figure.tight_layout()
    figure.savefig(HERE / "sensitivity.png", dpi=110)


def tasks() -> None:
    """T5 and T6 in a line each."""
    by_hand, bias = lines("T5"), lines("T6")
    if by_hand:
        cells = {
            "task": "T5: a classifier trained on 200 synthetic digits labelled by rule, on real test digits",
            "measured": "accuracy " + spread([line["accuracy"] for line in by_hand]),
            "beside it": "200 real digits "
            + spread([line["accuracy of as many real digits"] for line in by_hand]),
        }
        write("results_tasks", 0, "T5", cells)
    if bias:
        among = [line["share of the missing digit"] for line in bias]
        cells = {
            "task": "T6: the share of the digit that the public set lacks, among synthetic digits it finds unlikely",
            "measured": spread([each["unlike"] for each in among]),
            "beside it": "among all synthetic digits " + spread([each["everyone"] for each in among]),
        }
        write("results_tasks", 1, "T6", cells)


if __name__ == "__main__":
    firing()
    bugs_in_a_table()
    sensitivity()
    tasks()
