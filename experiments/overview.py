"""Write the table of experiments/README.md (`make tables`): the main number of each paper beside what was run here.

A line names the recipe that made our number, what that recipe asked before its rounds, and what the paper's own
system gives here at the same epsilon, so that nobody takes another recipe's number for the paper's.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from openings import FID, openings, spread
from openings import LINES as OPENINGS
from tables import ROOT, fill, protected

HERE = ROOT / "experiments"
HEADS = (
    "experiment",
    "the paper",
    "recipe here",
    "asked before the rounds",
    "here",
    "the paper's own system, same ε",
)
HEADS += ("protected here", "all rows")
NOT_RUN = "not run"
ELSEWHERE = ("inspection",)  # folders whose results are not a file for each row


@dataclass(frozen=True)
class Line:
    """What a paper reports, the files and score that answer it, and the files of the paper's own system."""

    what: str
    paper: str
    opening: str
    files: tuple[str, ...]
    score: str
    published: tuple[str, ...] = ()
    system: str = "opening"  # of files that hold several
    published_system: str = "published"

    def cells(self) -> list[str]:
        """The cells of the table, as HEADS names them."""
        results = [json.loads((HERE / file).read_text()) for file in self.files]
        theirs = [json.loads((HERE / file).read_text()) for file in self.published]
        folder = self.files[0].partition("/")[0]
        if "lines" in results[0]:
            ours, who = _quality(results, self.system)
            beside = _quality(theirs, self.published_system, results[0]["delta"])[0] if theirs else NOT_RUN
            recipe = folder
        else:
            ours, who = _row(results[0], self.score), protected(results[0]["privacy"])
            beside = _row(theirs[0], self.score) if theirs else NOT_RUN
            recipe = results[0]["recipe"]
        link = f"[{folder}]({folder}/README.md)"
        return [self.what, self.paper, f"`{recipe}`", self.opening, f"**{ours}**", beside, who, link]


def _row(result: dict, name: str) -> str:
    score = next(each for each in result["scores"] if each["name"] == name)
    spread = "" if score["spread"] is None else f" ± {score['spread']:.3f}"
    distance = next((f", FID {each['value']:.1f}" for each in result["scores"] if each["name"] == FID), "")
    return f"{score['value']:.3f}{spread} ({result['runs']} x {result['sets']}){distance}"


def _quality(results: list[dict], system: str, delta: float | None = None) -> tuple[str, str]:
    """Scores of a GAN's images over its trainings, of the lines nearest to epsilon 8, and who is protected."""
    lines = [line for result in results for line in result["lines"] if line["system"] == system]
    nearest = min(abs(line["epsilon"] - 8) for line in lines)
    lines = [line for line in lines if abs(line["epsilon"] - 8) <= nearest + 1e-6]
    told = {"private": True, "unit": "record", "trust": "local", "delta": delta or results[0]["delta"]}
    who = protected({**told, "epsilon": max(line["epsilon"] for line in lines)})
    fid, cnn = (spread([line[name] for line in lines], digits) for name, digits in (("fid", 1), ("cnn", 3)))
    return f"FID {fid}, CNN {cnn} ({len(lines)} x 1)", who


CNN, FIRST, F1 = "cnn: accuracy", "neural network: accuracy", "student network: rare_f1"
MOMENTS = "moments and brightness of each class, 90% of the budget"
WOBBLING = f"{MOMENTS}; drawn digits wobble"
COLUMNS = "a few columns of half of the clients, who do not train"
SHARES = "shares of labels"
LINES = (
    Line(
        "DPD-fVAE, digits, clients",
        "CNN .881 at ε 10",
        WOBBLING,
        ("dpd_fvae/results/mnist_client_10.json",),
        CNN,
        ("dpd_fvae/results/mnist_dpd_fvae_10.json",),
    ),
    Line(
        "the same",
        "no working model at ε 1",
        WOBBLING,
        ("dpd_fvae/results/mnist_client_1.json",),
        CNN,
        ("dpd_fvae/results/mnist_dpd_fvae_1.json",),
    ),
    Line(
        "DPD-fVAE, digits, records",
        "CNN .913 at ε 10 (no guarantee)",
        WOBBLING,
        ("dpd_fvae/results/mnist_record_10.json",),
        CNN,
        ("dpd_fvae/results/mnist_dpd_fvae_record_10.json",),
    ),
    Line(
        "DPD-fVAE, garments, records",
        "CNN .800 at ε 10 (no guarantee)",
        MOMENTS,
        ("dpd_fvae/results/fashion/fashion_record_10.json",),
        CNN,
    ),
    Line(
        "FedVAE thesis, seizures in EEG",
        "F1 .849 at ε 29,200",
        f"{SHARES}; the decoder has 75 numbers",
        ("fedvae_thesis/results/recordings_epsilon_10.json",),
        F1,
        ("fedvae_thesis/results/recordings_dense.json",),
    ),
    Line(
        "FedVAE thesis, digits",
        ".882 at ε 599,000 (EMNIST)",
        f"{SHARES}; a smooth decoder",
        ("fedvae_thesis_images/results/writers_smooth_10.json",),
        "mlp: accuracy",
        ("fedvae_thesis_images/results/writers_unified_10.json",),
    ),
    Line(
        "DP-Fed-WAE, a9a resampled",
        "NN .815 at ε 8",
        COLUMNS,
        ("dp_fed_wae/results/resampled_ours_8.json",),
        FIRST,
        ("dp_fed_wae/results/resampled_paper_8.json",),
    ),
    Line(
        "the same",
        "NN .798 at ε 4",
        COLUMNS,
        ("dp_fed_wae/results/resampled_ours_4.json",),
        FIRST,
        ("dp_fed_wae/results/resampled_paper_4.json",),
    ),
    Line(
        "the same, by CALM",
        "NN .815 at ε 8 (DP-Fed-WAE)",
        "nothing: all of it is counts",
        ("dp_fed_wae/results/resampled_calm_8.json",),
        FIRST,
    ),
    Line(
        "the same, each person once",
        "NN .815 at ε 8, resampled",
        COLUMNS,
        ("dp_fed_wae/results/once_ours_8.json",),
        FIRST,
    ),
    Line(
        "DP-FedAvg-GAN, digits by writer",
        "pictures, ε 10 million",
        MOMENTS,
        ("dp_fedavg_gan/results/writers_epsilon_10.json",),
        CNN,
        ("dp_fedavg_gan/results/writers_no_opening_10.json",),
    ),
    Line(
        "PP-FedGAN, digits",
        "FID in features of its own",
        MOMENTS,
        (
            "pp_fedgan/results/measured/mnist_opening.json",
            "pp_fedgan/results/measured/mnist_opening_more.json",
        ),
        "",
        (
            "pp_fedgan/results/measured/mnist_published.json",
            "pp_fedgan/results/measured/mnist_published_2.json",
        ),
    ),
    Line(
        "PP-FedGAN, garments",
        "the same",
        MOMENTS,
        ("pp_fedgan/results/measured/fashion_opening.json",),
        "",
    ),
)


def overview(lines: tuple[Line, ...]) -> str:
    """The table."""
    rows = [list(HEADS), ["---"] * len(HEADS), *(line.cells() for line in lines)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def unmeasured() -> str:
    """The rows whose TOML file has no result, by folder: what is written down and was not run."""
    rows: dict[str, list[str]] = {}
    for path in sorted(HERE.glob("*/*.toml")):
        if path.parent.name in ELSEWHERE or list((path.parent / "results").rglob(f"{path.stem}.json")):
            continue
        rows.setdefault(path.parent.name, []).append(f"`{path.stem}`")
    return "\n".join(f"- {folder}: {', '.join(names)}" for folder, names in rows.items())


def main() -> int:
    """Fill the markers of experiments/README.md."""
    page = HERE / "README.md"
    text = fill(page.read_text(encoding="utf-8"), "overview", overview(LINES))
    text = fill(text, "openings", openings(OPENINGS))
    page.write_text(fill(text, "unmeasured", unmeasured()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
