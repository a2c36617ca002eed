"""The table of experiments/README.md that takes recipes apart: the question before the rounds, the rounds, the wobble.

Each line has one recipe on one data set at one epsilon: with its question and its rounds, with the question alone
(which then has the budget of both), with the rounds alone, and drawn without wobble.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tables import ROOT, protected

HERE = ROOT / "experiments"
HEADS = (
    "recipe, data",
    "protected",
    "score",
    "question and rounds",
    "the question alone",
    "what the rounds add",
)
HEADS += ("rounds alone", "no wobble")
FID = "FID in features of a LeNet"
CNN = "cnn: accuracy"
NONE, NOT_RUN = "", "not run"


@dataclass(frozen=True)
class Line:
    """The files of a recipe as it comes, of its question alone, its rounds alone, and without wobble."""

    what: str
    whole: str
    alone: str
    rounds: str = ""
    still: str = ""
    score: str = CNN

    def cells(self) -> list[str]:
        """The cells of the table, as HEADS names them."""
        whole, alone = read(self.whole), read(self.alone)
        who = protected((whole or alone or {"privacy": {"private": False}})["privacy"])
        others = [told(read(file), self.score) if file else NONE for file in (self.rounds, self.still)]
        parts = [told(whole, self.score), told(alone, self.score), gained(whole, alone, self.score)]
        return [self.what, who, self.score, *parts, *others]


def read(file: str) -> dict | None:
    """A result, None where the row has none."""
    path = HERE / Path(file)
    return json.loads(path.read_text()) if path.exists() else None


def scored(result: dict, name: str) -> dict | None:
    """A score of a result by its name."""
    return next((each for each in result["scores"] if each["name"] == name), None)


def told(result: dict | None, name: str) -> str:
    """A score with its spread and its trainings, and how far the images are from real ones."""
    if result is None:
        return NOT_RUN
    score, distance = scored(result, name), scored(result, FID)
    assert score is not None
    around = "" if score["spread"] is None else f" ± {score['spread']:.3f}"
    beside = "" if distance is None else f", FID {distance['value']:.1f}"
    return f"{score['value']:.3f}{around} ({result['runs']} x {result['sets']}){beside}"


def gained(whole: dict | None, alone: dict | None, name: str) -> str:
    """The difference of the means in points, and the standard error of that difference."""
    if whole is None or alone is None:
        return NONE
    both = [score["detail"] for score in (scored(whole, name), scored(alone, name)) if score]
    if both[0].get("passes") != both[1].get("passes"):
        return "judged differently"
    first, second = (np.array(detail["runs"]) for detail in both)
    return difference(first, second)


def difference(first: np.ndarray, second: np.ndarray) -> str:
    """Of two means in points, with its standard error."""
    if not len(first) or not len(second):
        return NONE
    points = 100 * (first.mean() - second.mean())
    if min(len(first), len(second)) < 2:
        return f"{points:+.1f}"
    error = np.sqrt(sum(each.var(ddof=1) / len(each) for each in (first, second)))
    return f"{points:+.1f} ± {100 * error:.1f}"


@dataclass(frozen=True)
class Drawn:
    """The same of PP-FedGAN, whose trainings are lines of files of their own: one set each, seeded."""

    what: str
    data: str
    epsilon: float = 8.0

    def cells(self) -> list[str]:
        """The cells of the table, as HEADS names them."""
        whole, alone, rounds = (self.lines(system) for system in ("opening", "opening alone", "published"))
        least = min((result["delta"] for result in self.files()), default=None)
        told = {"private": True, "unit": "record", "trust": "local", "delta": least, "epsilon": self.epsilon}
        parts = [self.told(whole), self.told(alone), difference(accuracies(whole), accuracies(alone))]
        return [self.what, protected(told), CNN, *parts, self.told(rounds), NONE]

    def files(self) -> list[dict]:
        """Results of this data set, all clients and all images."""
        found = sorted((HERE / "pp_fedgan" / "results" / "measured").glob("*.json"))
        results = [json.loads(path.read_text()) for path in found]
        kept = [each for each in results if (each["what"], each.get("data")) == ("quality", self.data)]
        return [each for each in kept if each["train_rows"] == 60_000 and each.get("clients", 10) == 10]

    def lines(self, system: str) -> list[dict]:
        """Trainings of a system at this epsilon."""
        lines = [line for result in self.files() for line in result["lines"] if line["system"] == system]
        return [line for line in lines if abs(line["epsilon"] - self.epsilon) < 0.01]

    def told(self, lines: list[dict]) -> str:
        """Means and spreads."""
        if not lines:
            return NOT_RUN
        parts = [spread([line["cnn"] for line in lines], 3), spread([line["fid"] for line in lines], 1)]
        return f"{parts[0]} ({len(lines)} x 1), FID {parts[1]}"


def accuracies(lines: list[dict]) -> np.ndarray:
    """Of the CNN, one a training."""
    return np.array([line["cnn"] for line in lines])


def spread(values: list[float], digits: int) -> str:
    """The mean, and the standard deviation of several."""
    around = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{around}"


def openings(lines: tuple[Line | Drawn, ...]) -> str:
    """The table; without a row of the question alone there is nothing to tell."""
    cells = [line.cells() for line in lines]
    told = [each for each in cells if each[HEADS.index("the question alone")] != NOT_RUN]
    rows = [list(HEADS), ["---"] * 3 + ["---:"] * 5, *told]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def _digits(unit: str, epsilon: int) -> Line:
    stem = f"dpd_fvae/results/mnist_{unit}"
    return Line(
        f"`moment_vae`, digits, each {unit}",
        f"{stem}_{epsilon}.json",
        f"{stem}_opening_alone_{epsilon}.json",
        still=f"{stem}_no_wobble_{epsilon}.json",
    )


def _garments(unit: str, epsilon: int) -> Line:
    stem = f"dpd_fvae/results/fashion/fashion_{unit}"
    return Line(
        f"`moment_vae`, garments, each {unit}",
        f"{stem}_{epsilon}.json",
        f"{stem}_opening_alone_{epsilon}.json",
    )


def _answers(which: str, epsilon: int) -> Line:
    stem = f"dp_fed_wae/results/{which}"
    return Line(
        f"`dp_fed_wae`, a9a {'resampled' if which == 'resampled' else 'with each person once'}",
        f"{stem}_ours_{epsilon}.json",
        f"{stem}_opening_alone_{epsilon}.json",
        "dp_fed_wae/results/without_opening.json" if (which, epsilon) == ("resampled", 8) else "",
        score="neural network: accuracy",
    )


GAN = "dp_fedavg_gan/results"
LINES = (
    *(_digits(unit, epsilon) for unit in ("client", "record") for epsilon in (10, 1)),
    *(_garments(unit, epsilon) for unit in ("client", "record") for epsilon in (10, 1)),
    Line(
        "`dp_fedavg_gan`, digits by writer",
        f"{GAN}/writers_epsilon_10.json",
        f"{GAN}/writers_opening_alone_10.json",
        f"{GAN}/writers_no_opening_10.json",
    ),
    Line(
        "`dp_fedavg_gan`, garments",
        f"{GAN}/others/fashion_epsilon_10.json",
        f"{GAN}/others/fashion_opening_alone_10.json",
    ),
    Line(
        "`dp_fedavg_gan`, Adult",
        f"{GAN}/adult/adult_epsilon_8.json",
        f"{GAN}/adult/adult_opening_alone_8.json",
        f"{GAN}/adult/adult_no_opening_8.json",
        score="gradient boosting: auc",
    ),
    Drawn("`pp_fedgan`, digits", "mnist"),
    Drawn("`pp_fedgan`, garments", "fashion_mnist"),
    *(_answers(which, epsilon) for which in ("resampled", "once") for epsilon in (8, 4)),
)
