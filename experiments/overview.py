"""Write the table of experiments/README.md (`make tables`): the main number of each paper beside ours."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import numpy as np
from tables import ROOT, fill, protected

HERE = ROOT / "experiments"


@dataclass(frozen=True)
class Line:
    """What a paper reports, and the file and score that answer it."""

    what: str
    paper: str
    file: str
    score: str

    def cells(self) -> list[str]:
        """What, the paper's number, ours, who is protected there, and the page that tells all."""
        held = json.loads((HERE / self.file).read_text())
        ours, who = _quality(held, self.score) if "lines" in held else _row(held, self.score)
        folder = self.file.partition("/")[0]
        return [self.what, self.paper, ours, who, f"[{folder}]({folder}/README.md)"]


def _row(held: dict, name: str) -> tuple[str, str]:
    score = next(each for each in held["scores"] if each["name"] == name)
    spread = "" if score["spread"] is None else f" ± {score['spread']:.3f}"
    return f"**{score['value']:.3f}**{spread} ({held['runs']} x {held['sets']})", protected(held["privacy"])


def _quality(held: dict, system: str) -> tuple[str, str]:
    """Scores of a GAN's images: means over its trainings."""
    lines = [line for line in held["lines"] if line["system"] == system]
    fid, accuracy = (np.mean([line[name] for line in lines]) for name in ("fid", "cnn"))
    told = {"private": True, "unit": "record", "trust": "local", "delta": held["delta"]}
    worst = max(line["epsilon"] for line in lines)
    return f"FID **{fid:.1f}**, CNN **{accuracy:.3f}** ({len(lines)} x 1)", protected(
        {**told, "epsilon": worst}
    )


CNN, FIRST, F1 = "cnn: accuracy", "neural network: accuracy", "student network: rare_f1"
LINES = (
    Line("DPD-fVAE, digits, clients", "CNN .881 at ε 10", "dpd_fvae/results/mnist_client_10.json", CNN),
    Line("the same", "no working model at ε 1", "dpd_fvae/results/mnist_client_1.json", CNN),
    Line(
        "DPD-fVAE, digits, records",
        "CNN .913 at ε 10 (no guarantee)",
        "dpd_fvae/results/mnist_record_10.json",
        CNN,
    ),
    Line(
        "DPD-fVAE, garments, records",
        "CNN .800 at ε 10 (no guarantee)",
        "dpd_fvae/results_fashion/fashion_record_10.json",
        CNN,
    ),
    Line(
        "FedVAE thesis, seizures in EEG",
        "F1 .849 at ε 29,200",
        "fedvae_thesis/results/recordings_epsilon_10.json",
        F1,
    ),
    Line(
        "FedVAE thesis, digits",
        ".882 at ε 599,000 (EMNIST)",
        "fedvae_thesis_images/results/writers_smooth_10.json",
        "mlp: accuracy",
    ),
    Line("DP-Fed-WAE, a9a resampled", "NN .815 at ε 8", "dp_fed_wae/results/resampled_ours_8.json", FIRST),
    Line("the same", "NN .798 at ε 4", "dp_fed_wae/results/resampled_ours_4.json", FIRST),
    Line(
        "the same, each person once",
        "NN .815 at ε 8, resampled",
        "dp_fed_wae/results/once_ours_8.json",
        FIRST,
    ),
    Line(
        "DP-FedAvg-GAN, digits by writer",
        "pictures, ε 10 million",
        "dp_fedavg_gan/results/writers_epsilon_10.json",
        CNN,
    ),
    Line(
        "PP-FedGAN, digits", "FID in features of its own", "pp_fedgan/measured/mnist_opening.json", "opening"
    ),
    Line("PP-FedGAN, garments", "the same", "pp_fedgan/measured/fashion_opening.json", "opening"),
)


def overview(lines: tuple[Line, ...]) -> str:
    """The table."""
    rows = [["experiment", "the paper", "here", "protected here", "all rows"], ["---"] * 5]
    rows += [line.cells() for line in lines]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def main() -> int:
    """Fill the marker of experiments/README.md."""
    page = HERE / "README.md"
    page.write_text(fill(page.read_text(encoding="utf-8"), "overview", overview(LINES)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
