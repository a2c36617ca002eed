"""Figure 4: the accuracy of a CNN over epsilon, for moment_vae with clients and with records protected.

python experiments/dpd_fvae/curve.py measure [--only CURVE] [--device cuda] [--out FOLDER]
python experiments/dpd_fvae/curve.py draw [--out FOLDER]

A point is one private training and one CNN, except for the rows of the table, whose means are taken. Points that were
measured are kept: a curve can be made in pieces.
"""

import argparse
import itertools
import json
from pathlib import Path

from fedsynth.research.image_experiment import ImageJudge
from fedsynth.synthesis.request import Request

EPSILONS = (3.0, 0.3, 0.1)
PROTECTED = {"each client, central": (None, None), "each record, local": ("record", "local")}
ROWS = {
    "each client, central": {1.0: "mnist_client_1", 10.0: "mnist_client_10"},
    "each record, local": {1.0: "mnist_record_1", 10.0: "mnist_record_10"},
}
PAPER = {  # at epsilon 10; Table 2 of Pfitzner and Arnrich (2022)
    "each client, central": 0.881,
    "each record, local": 0.913,
}


def request(unit, trust, epsilon, device):
    return Request(
        recipe="moment_vae",
        clients=500,
        split="uniform",
        epsilon=epsilon,
        delta=1e-5,
        unit=unit,
        trust=trust,
        device=device,
        arguments={"wobble": 1.0},
    )


def measure(device, rows, only, file):
    """One training and one CNN a point; the file is written after each."""
    judge = ImageJudge("mnist", ("cnn",), 1, rows, passes=6)
    found = json.loads(file.read_text()) if file.exists() else {}
    for name, epsilon in itertools.product(only or PROTECTED, EPSILONS):
        points = found.setdefault(name, {})
        if f"{epsilon:g}" not in points:
            made = judge.trial(request(*PROTECTED[name], epsilon, device), None)
            points[f"{epsilon:g}"] = judge.scores([made])[0][0].value
            file.write_text(json.dumps(found, indent=1) + "\n")
            print(name, epsilon, points[f"{epsilon:g}"], flush=True)


def of_row(row):
    """The CNN's accuracy in the table's row of this name."""
    held = json.loads((Path(__file__).parent / "results" / f"{row}.json").read_text())
    return next(score["value"] for score in held["scores"] if score["name"] == "cnn: accuracy")


def draw(found, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 3.4))
    for name in PROTECTED:
        at = [(float(epsilon), accuracy) for epsilon, accuracy in found.get(name, {}).items()]
        at = sorted(at + [(epsilon, of_row(row)) for epsilon, row in ROWS[name].items()])
        (line,) = axis.semilogx(*zip(*at, strict=True), "o-", label=f"moment_vae, {name}")
        axis.plot(10.0, PAPER[name], "x", color=line.get_color(), label=f"the paper, {name}")
    axis.set(xlabel="epsilon (delta = 1e-5)", ylabel="accuracy of a CNN", ylim=(0, 1))
    axis.legend(fontsize=7)
    axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("measure", "draw"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="+", choices=PROTECTED)
    parser.add_argument("--rows", type=int, help="train on the first so many images, for a quick look")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "figures")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / "curve.json"
    if asked.what == "measure":
        measure(asked.device, asked.rows, asked.only, file)
    draw(json.loads(file.read_text()), asked.out / "curve.png")


if __name__ == "__main__":
    main()
