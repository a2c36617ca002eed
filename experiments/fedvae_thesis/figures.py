"""The figure of the README from the result files: F1 of the student network over epsilon.

python experiments/fedvae_thesis/figures.py
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
MEASURE = "student network: rare_f1"
KINDS = {  # rows by the start of their name
    "recordings_epsilon": ("`fed_vae`, spectral, 400 recordings (client)", "C0", "o-"),
    "parameters_6_bands": ("the same with 6 bands (client)", "C0", "D"),
    "parameters_48_bands": ("the same with 48 bands (client)", "C0", "s"),
    "recordings_unified": ("one VAE for both classes (client)", "C2", "o"),
    "recordings_local": ("local noise (client, nobody trusted)", "C3", "v"),
    "central_epsilon": ("`central_vae`, pooled rows (record)", "C4", "P"),
    "twenty_": ("dense, 20 clients, the thesis's noise (client)", "C5", "^"),
    "privbayes_uniform": ("PrivBayes, 20 clients (record, nobody trusted)", "C1", "x-"),
}
THESIS = (29_200, 0.849)


def points(start):
    """Epsilon, mean and spread of each private row whose name starts so."""
    found = []
    for path in sorted((HERE / "results").glob(f"{start}*.json")):
        result = json.loads(path.read_text())
        score = next(entry for entry in result["scores"] if entry["name"] == MEASURE)
        if result["privacy"]["private"] and score["value"] is not None:
            found.append((result["privacy"]["epsilon"], score["value"], score["spread"] or 0.0))
    return sorted(found)


def main():
    figure, axes = plt.subplots(figsize=(7, 4.4))
    for start, (title, color, style) in KINDS.items():
        found = points(start)
        if found:
            epsilons, values, spreads = zip(*found, strict=True)
            axes.errorbar(epsilons, values, spreads, fmt=style, color=color, label=title, capsize=3)
    axes.plot(*THESIS, "k*", markersize=11, label="the thesis, its own account")
    axes.set(xscale="log", xlabel="epsilon that was spent", ylabel="F1 of seizures", ylim=(0, 1))
    axes.axvline(10, color="gray", linewidth=0.8)
    axes.legend(fontsize=7, loc=(0.235, 0.02))
    figure.tight_layout()
    figure.savefig(HERE / "results" / "figures" / "f1.png", dpi=110)


if __name__ == "__main__":
    main()
