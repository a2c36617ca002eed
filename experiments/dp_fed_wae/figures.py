"""The figures of the README from the result files: accuracy over epsilon, and marginals over their number of ways.

python experiments/dp_fed_wae/figures.py
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
NN = "neural network: accuracy"
CURVES = {  # rows by the start of their name, and where the paper's own numbers lie (Table 5, pre-trained)
    "resampled_ours_": ("with an opening, resampled", "C0", "o-"),
    "once_ours_": ("with an opening, each person once", "C0", "o--"),
    "resampled_calm_": ("CALM, resampled", "C1", "s-"),
    "once_calm_": ("CALM, each person once", "C1", "s--"),
    "resampled_paper_cold_": ("as published, not pre-trained", "C3", "v:"),
    "resampled_paper_": ("as published, pre-trained", "C3", "^-"),
    "resampled_lopub_": ("LoPub", "C4", "x:"),
    "resampled_locop_": ("LoCop", "C5", "+:"),
}
PAPER = {4.0: 0.798, 8.0: 0.815}
MAJORITY = 0.764
LOWEST = 0.55  # what lies below it, less than guessing the majority, is cut off


def results():
    """Each result with the start of its name."""
    for path in sorted((HERE / "results").glob("*.json")):
        start = next((start for start in CURVES if path.stem.startswith(start)), None)
        if start:
            yield start, json.loads(path.read_text())


def score(result, name):
    """A score's mean and spread."""
    found = next(entry for entry in result["scores"] if entry["name"] == name)
    return found["value"], found["spread"] or 0.0


def accuracy(found):
    """What a neural network learns, over epsilon (Figure 8)."""
    figure, axes = plt.subplots(figsize=(7, 4.2))
    for place, (start, (title, color, style)) in enumerate(CURVES.items()):
        points = sorted((r["privacy"]["epsilon"], *score(r, NN)) for begun, r in found if begun == start)
        if points:
            epsilons, values, spreads = zip(*points, strict=True)
            beside = [
                epsilon * (0.93 + 0.02 * place) for epsilon in epsilons
            ]  # so that bars do not hide others
            axes.errorbar(
                beside, values, spreads, fmt=style, color=color, label=title, capsize=3, markersize=4
            )
    axes.plot(list(PAPER), list(PAPER.values()), "k*", markersize=10, label="the paper, pre-trained")
    axes.axhline(MAJORITY, color="gray", linewidth=0.8, label="always the majority class")
    axes.set(xscale="log", xlabel="epsilon of a client, nobody trusted", ylabel="accuracy on real rows")
    axes.set_ylim(LOWEST, None)
    axes.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    axes.minorticks_off()
    axes.legend(fontsize=7)
    return figure


def marginals(found, epsilon=4.0):
    """The variation distance of marginals over their number of ways at one epsilon (Figure 5)."""
    figure, axes = plt.subplots(figsize=(7, 4.2))
    for start, (title, color, style) in CURVES.items():
        for begun, result in found:
            if begun == start and round(result["privacy"]["epsilon"], 3) == epsilon:
                name = "{}-way marginals: average variation distance"
                values = [score(result, name.format(ways))[0] for ways in range(2, 7)]
                axes.plot(range(2, 7), values, style, color=color, label=title)
    axes.set(
        xlabel="columns in a marginal",
        ylabel="average variation distance",
        xticks=range(2, 7),
        ylim=(0, None),
    )
    axes.legend(fontsize=7, loc=(0.02, 0.5))
    return figure


def main():
    found = list(results())
    for name, figure in {"accuracy": accuracy(found), "marginals": marginals(found)}.items():
        figure.tight_layout()
        figure.savefig(HERE / "results" / "figures" / f"{name}.png", dpi=110)


if __name__ == "__main__":
    main()
