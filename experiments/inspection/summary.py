"""From lines that measurements left (results/*.jsonl) to rows of the README's tables and the plot.

python experiments/inspection/summary.py && make tables
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

from fedsynth.inspection.contrast import INTENSITY
from fedsynth.research.plain_rows import Line, measured, spread, write_rows

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def fired(lines: list[Line]) -> str:
    """How many of the inspections that ended in a verdict found something."""
    judged = [line for line in lines if line["fires"] is not None]
    return f"{sum(line['fires'] for line in judged)} of {len(judged)}" if judged else "–"


def grouped(lines: list[Line], *keys: str) -> list[tuple[tuple[Any, ...], list[Line]]]:
    """The lines that agree in these keys, in their order."""
    groups: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for line in lines:
        groups[tuple(line[key] for key in keys)].append(line)
    return sorted(groups.items())


def firing() -> None:
    """How often the verdict fires, with the bug and without, and the difference of mean intensities."""
    rows = []
    found = measured(RESULTS, "user.jsonl", "example.jsonl", "gan.jsonl", "vae.jsonl")
    for key, lines in grouped(found, "recipe", "by", "epsilon", "affected"):
        recipe, by, epsilon, affected = key
        thresholds = [line["contrast"][INTENSITY][1] for line in lines if line["fires"] is not None]
        rows.append(
            {
                "recipe": recipe,
                "selected by": by,
                "epsilon": f"{epsilon:g}",
                "clients with inverted pixels": f"{affected:.0%}",
                "fires": fired(lines),
                "difference": spread(
                    [line["intensity"]["bad"] - line["intensity"]["good"] for line in lines]
                ),
                "threshold": spread(thresholds),
            }
        )
    note = (
        "Difference: mean intensity of the bad selection's examples minus that of the good, and its standard deviation "
        "over seeds. The threshold is for its absolute value."
    )
    write_rows(RESULTS, rows, note)


def bugs_in_a_table() -> None:
    """How often each bug of the table is found, and whether the column is named."""
    rows = []
    for (bug, affected, epsilon), lines in grouped(
        measured(RESULTS, "records.jsonl"), "bug", "affected", "epsilon"
    ):
        named = sorted({name for line in lines for name in line["fired"]})
        rows.append(
            {
                "bug in": bug if affected else "no column",
                "clients with it": f"{affected:.0%}",
                "epsilon": f"{epsilon:g}",
                "fires": fired(lines),
                "columns named": ", ".join(named) or "none",
                "distance of that column": spread([line["contrast"][bug][0] for line in lines])
                if affected
                else "–",
                "threshold": spread([line["contrast"][bug][1] for line in lines]) if affected else "–",
            }
        )
    write_rows(HERE / "results" / "tables", sorted(rows, key=lambda row: row["bug in"] == "no column"))


def sensitivity() -> None:
    """The share of runs that fire by share of affected clients and epsilon: a table, and a plot of the differences."""
    found = [
        {"percent": 25, **line}
        for line in measured(RESULTS, "sense.jsonl", "user.jsonl")
        if line["recipe"] == "moment_vae" and line["by"] == "user"
    ]
    shares = sorted({line["affected"] for line in found})
    rows = []
    for (ends, epsilon), lines in grouped(found, "percent", "epsilon"):
        cells = {"worst and best clients": f"{ends}% each", "epsilon": f"{epsilon:g}"}
        for share in shares:
            same = [line for line in lines if line["affected"] == share]
            cells[f"{share:.0%}"] = f"{hits(same)} of {len(same)}" if same else "–"
        rows.append(cells)
    note = (
        "Inspections that fire, of how many, by the share of clients with inverted pixels. One that finds too few "
        "clients above the noise to draw a conclusion counts as one that does not fire."
    )
    write_rows(HERE / "results" / "sensitivity", rows, note)
    plot([line for line in found if line["affected"] > 0 and line["percent"] == 25])


def hits(lines: list[Line]) -> int:
    """How many fire; one that cannot tell does not."""
    return sum(line["fires"] is True for line in lines)


def over_threshold(line: Line) -> float:
    """How far the farthest statistic is above its threshold, as a ratio: above 1 it fires."""
    return max(value / threshold for value, threshold in line["contrast"].values())


def wilson(found: int, count: int, deviations: float = 1.96) -> tuple[float, float]:
    """Wilson's interval for a share of which so many of `count` trials are known; with 1.96 deviations, of 95%.

    >>> [round(end, 2) for end in wilson(3, 3)], [round(end, 2) for end in wilson(5, 10)]
    ([0.44, 1.0], [0.24, 0.76])
    """
    share, square = found / count, deviations**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = deviations * np.sqrt(share * (1 - share) / count + square / (4 * count**2)) / (1 + square / count)
    return float(middle - half), float(middle + half)


def plot(found: list[Line]) -> None:
    """Left each inspection as a dot, and the mean over seeds as a line; right how many fire, with Wilson intervals."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.4, 4))
    for number, ((epsilon,), lines) in enumerate(grouped(found, "epsilon")):
        color, means, shares = f"C{number}", {}, {}
        for (affected,), same in grouped(lines, "affected"):
            ratios = [over_threshold(line) for line in same]
            left.plot([100 * affected] * len(ratios), ratios, ".", color=color, alpha=0.4)
            means[100 * affected] = np.mean(ratios)
            place = 100 * affected * 1.03 ** (number - 1.5)  # beside each other
            low, high = wilson(hits(same), len(same))
            right.plot([place, place], [low, high], color=color, linewidth=1.2, alpha=0.6)
            shares[place] = hits(same) / len(same)
        left.plot(list(means), list(means.values()), color=color, label=f"epsilon {epsilon:g}")
        right.plot(list(shares), list(shares.values()), "o-", color=color, markersize=4, linewidth=1)
    left.axhline(1, color="black", linestyle=":", linewidth=1)
    left.set_yscale("log")
    left.set_yticks([0.5, 1, 2, 5], ["0.5", "1", "2", "5"])
    left.set_yticks([], minor=True)
    left.set_ylabel("difference over threshold (fires above 1)")
    left.legend()
    right.set_ylabel("inspections that fire, and 95% intervals")
    ticks = sorted({100 * line["affected"] for line in found})
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("clients with inverted pixels, percent")
    figure.tight_layout()
    file = HERE / "results" / "figures" / "sensitivity.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def percent(values: list[float]) -> str:
    """The mean and standard deviation of shares."""
    return spread([100 * value for value in values], 1) + "%"


def tasks() -> None:
    """The other tasks, a line each."""
    sane, words, by_hand, bias = (measured(RESULTS, f"{name}.jsonl") for name in ("T1", "T3", "T5", "T6"))
    rows = [
        {
            "task": "T1: random synthetic digits that a reader reads as their label",
            "runs": len(sane),
            "measured": percent([line["read as labelled"] for line in sane]),
            "beside it": f"mean intensity {spread([line['intensity'] for line in sane])}, of real digits "
            + spread([line["intensity of real rows"] for line in sane[:1]]),
        },
        {
            "task": "T3: unknown words at the first and at the second position of sentences that have some",
            "runs": len(words),
            "measured": " and ".join(
                percent([line["unknown by position"][place] for line in words]) for place in (0, 1)
            ),
            "beside it": "really "
            + " and ".join(percent([line["real"][place] for line in words[:1]]) for place in (0, 1)),
        },
        {
            "task": "T5: accuracy on real test digits of a classifier trained on 200 synthetic ones labelled by rule",
            "runs": len(by_hand),
            "measured": percent([line["accuracy"] for line in by_hand]),
            "beside it": "200 real digits "
            + percent([line["accuracy of as many real digits"] for line in by_hand]),
        },
        {
            "task": "T6: the digit that the public set lacks, among synthetic digits that it finds unlikely",
            "runs": len(bias),
            "measured": percent([line["share of the missing digit"]["unlike"] for line in bias]),
            "beside it": "among all synthetic digits "
            + percent([line["share of the missing digit"]["everyone"] for line in bias]),
        },
    ]
    write_rows(HERE / "results" / "tasks", [row for row in rows if row["runs"]])


if __name__ == "__main__":
    firing()
    bugs_in_a_table()
    sensitivity()
    tasks()
