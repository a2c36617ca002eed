"""Write the tables of this experiment's README and draw its figures from results/measured/. No number is typed.

python experiments/pp_fedgan/show.py
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from statistics import mean, stdev

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import tables  # noqa: E402 - of all experiments, one folder up

NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "svhn": "SVHN"}
TEN = 10  # clients, where a result does not say
GOALS = (50, 20, 10, 5)  # FIDs whose time is told
PAPER = {  # epsilon that PP-FedGAN's Table 5 states, by data set and noise
    "mnist": {0.5: 8.49, 0.7: 2.47, 1.0: 1.39},
    "fashion_mnist": {0.5: 6.2, 0.7: 2.1, 1.0: 1.3},
}


def results(what: str) -> list[dict]:
    """The result files of one kind."""
    found = [json.loads(path.read_text()) for path in sorted((HERE / "results" / "measured").glob("*.json"))]
    return [result for result in found if result["what"] == what]


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; the first column is text."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def scored() -> list[tuple[str, dict, dict]]:
    """Data set, line and result of every training that was scored."""
    found = [(result["data"], line, result) for result in results("quality") for line in result["lines"]]
    order = list(NAMES)
    return sorted(found, key=lambda one: (order.index(one[0]), one[1]["system"], one[1]["epsilon"] or 0))


def quality() -> str:
    """Scores of all systems, with our epsilon beside the paper's; trainings that differ in their seed are one row."""
    groups: dict[tuple, list[dict]] = {}
    for data, line, result in scored():
        noise, epsilon = line["noise"], line["epsilon"]
        setting = (
            result["train_rows"],
            line.get("clients", TEN),
            None if epsilon is None else round(epsilon, 2),
        )
        features = result["network"]["weights"]
        groups.setdefault((data, line["system"], *setting, noise, features), []).append(line)
    if not groups:
        return "*Not measured yet.*"
    hashes = sorted(
        {(key[0], key[-1]) for key in groups}, key=lambda one: (list(NAMES).index(one[0]), one[1])
    )
    letters = dict(zip(hashes, "abcdefghij", strict=False))
    rows = []
    for (data, system, images, clients, epsilon, noise, features), lines in groups.items():
        claimed = PAPER.get(data, {}).get(round(noise, 2)) if system == "published" else None
        rows.append(
            [
                f"{NAMES[data]}: {system}",
                f"{images:,}",
                f"{clients}",
                "" if noise is None else f"{noise:.2f}",
                "none" if epsilon is None else f"{epsilon:,.2f}",
                "" if claimed is None else f"{claimed:.2f}",
                *(
                    spread([line[name] for line in lines], digits)
                    for name, digits in (("fid", 1), ("kid", 2), ("is", 2), ("cnn", 3))
                ),
                f"{mean([line['seconds'] for line in lines]):.0f}",
                letters[data, features],
            ]
        )
    heads = [
        "system",
        "images",
        "clients",
        "noise",
        "ε, composed",
        "ε, paper",
        "FID ↓",
        "KID ↓",
        "IS ↑",
        "CNN ↑",
    ]
    told = "; ".join(f"{letter}: {NAMES[data]} {weights}" for (data, weights), letter in letters.items())
    delta = scored()[0][2]["delta"]
    made = table([*heads, "seconds", "LeNet"], rows)
    return f"{made}\n\nδ = {delta:g}. Weights of the LeNets (scores of different ones cannot be compared): {told}."


def spread(values: list[float], digits: int) -> str:
    """The mean, and the standard deviation of several."""
    told = f"{mean(values):.{digits}f}"
    return told if len(values) < 2 else f"{told} ± {stdev(values):.{digits}f}"


def layers() -> str:
    """Seconds of a round with each layer of protection: every client on a machine of its own, or one after another."""
    trained, sealed = results("train"), results("seal")
    if not trained or not sealed:
        return "*Not measured yet.*"
    alone = {line["private"]: line["seconds"] for line in trained[0]["lines"] if line["clients"] == 1}
    rows = []
    for line in (one for one in sealed[0]["lines"] if one["scheme"] == "he"):
        sealing = line["seal"] + line["server"] + line["open"]
        both = alone[True] + sealing
        rows.append(
            [
                str(line["clients"]),
                *(f"{seconds:.2f}" for seconds in (alone[False], alone[False] + sealing, alone[True], both)),
                f"{100 * sealing / both:.1f}%",
                f"{line['clients'] * alone[True]:.1f}",
            ]
        )
    heads = ["clients", "FedGAN", "+ HE", "+ DP", "PP-FedGAN", "sealing's share", "DP, in turn"]
    told = f"Training on {trained[0]['machine']['device']}, sealing on one core of {sealed[0]['machine']['cpu']}."
    return f"{table(heads, rows)}\n\n{told}"


def over_noise() -> None:
    """Figure 4: scores over the noise."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
    for data in NAMES:
        found = (
            (line["noise"], line)
            for name, line, _ in scored()
            if name == data
            and line["system"] == "published"
            and line["noise"]
            and line.get("clients", TEN) == TEN
        )
        points = sorted(found, key=lambda point: point[0])
        for axis, measure in zip(axes, ("fid", "kid", "is"), strict=True):
            if points:
                axis.plot(
                    [noise for noise, _ in points],
                    [line[measure] for _, line in points],
                    "o-",
                    label=NAMES[data],
                )
            axis.set(xlabel="noise multiplier", title=measure.upper())
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(HERE / "results" / "figures" / "over_noise.png", dpi=110)


def over_time() -> str:
    """FID over simulated time, and when each order was first so good."""
    found = results("time")
    if not found:
        return "*Not measured yet.*"
    figure, axis = plt.subplots(figsize=(8.5, 3.4))
    rows = []
    for line in (line for result in found for line in result["lines"]):
        minutes = [point["at_s"] / 60 for point in line["points"]]
        fids = [point["fid"] for point in line["points"]]
        title = {"together": "rounds of all", "buffered": "buffers of five"}[line["order"]]
        spent = "none" if line["epsilon"] is None else f"{line['epsilon']:.2f}"
        named = line["system"] if line["epsilon"] is None else f"{line['system']}, ε = {spent}"
        axis.plot(minutes, fids, "o-", label=f"{title} ({named})")
        first = [
            next((m for m, fid in zip(minutes, fids, strict=True) if fid <= goal), None) for goal in GOALS
        ]
        reached = ["never" if minute is None else f"{minute:.0f}" for minute in first]
        ends = [f"{line['fid']:.1f}", f"{line['is']:.2f}", f"{line['cnn']:.3f}", spent]
        rows.append([title, line["system"], f"{len(minutes)}", f"{minutes[-1]:.0f}", *reached, *ends])
    axis.set(xlabel="simulated minutes", ylabel="FID", xscale="log", yscale="log")
    axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.tight_layout()
    figure.savefig(HERE / "results" / "figures" / "over_time.png", dpi=110)
    heads = ["order", "system", "versions", "minutes in all", *(f"to FID {goal}" for goal in GOALS)]
    return table([*heads, "last FID", "IS", "CNN", "ε"], rows)


def main() -> None:
    """Replace what stands between the marks in the README."""
    over_noise()
    text = (HERE / "README.md").read_text()
    rows = tables.table(tables.load(HERE / "results" / "measured_adult"))
    made_of = {"quality": quality(), "adult": rows, "layers": layers(), "time": over_time()}
    for name, made in made_of.items():
        marks = f"<!-- {name} -->", f"<!-- end of {name} -->"
        between = re.compile(f"(?<={re.escape(marks[0])}).*?(?={re.escape(marks[1])})", re.DOTALL)
        text = between.sub(lambda _, made=made: f"\n{made}\n", text)
    (HERE / "README.md").write_text(text)


if __name__ == "__main__":
    main()
