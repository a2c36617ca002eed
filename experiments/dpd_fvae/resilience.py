"""Section 5.3: how long updates of fvae and dpd_fvae are, and what clipping and noise do to each.

    python experiments/dpd_fvae/resilience.py norms|clipping|noise [--device cuda] [--rounds 50] [--out FOLDER]

    norms     the median L2 norm of the clients' updates in each of 50 rounds, Fashion-MNIST, both sizes of the network,
              1 and 10 local epochs (Figure 2)
    clipping  the global update clipped at S = 0.2 and no noise (Figure 3a), MNIST
    noise     Gaussian noise of sigma = 0.05 on the sum of the updates and no clipping (Figure 3b), MNIST

Clipping and noise are looked at one without the other, which protects nobody: runs are seeded and nothing is claimed.
Figure 6, both in the same setting under local DP, is the rows mnist_fvae_record_10 and mnist_dpd_fvae_record_10.
"""

import argparse
import itertools
import json
from pathlib import Path

import numpy as np
import torch

from fedsynth.assess.report.picture import write_grid
from fedsynth.assess.scores.image_utility import image_performance
from fedsynth.data.clients import encode_clients, image_clients_from
from fedsynth.federation.loop import learn_balance, run
from fedsynth.recipes.registry import recipe_named
from fedsynth.research.datasets import fashion_mnist, mnist
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.generator import Generator

BATCH = {"batch_size": 32, "optimizer": "adam", "learning_rate": 1e-3, "encoder_learning_rate": 1e-3}
HUGE = 50.0  # a clip that no update reaches
SETTINGS = {
    "clipping": {**BATCH, "epochs": 10, "rate": 0.05, "momentum": 0.5, "clip": 0.2, "noise_multiplier": 1e-4},
    "noise": {
        **BATCH, "epochs": 10, "rate": 0.05, "momentum": 0.5, "clip": HUGE, "noise_multiplier": 0.05 / HUGE
    },
}  # fmt: skip


class Listening(InProcess):
    """The simulator's link, which also writes down how long each message is."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.norms = {}

    def next(self):
        arrival = super().next()
        self.norms.setdefault(arrival.version, []).append(arrival.messages[:, :-1].norm(dim=1).cpu())
        return arrival


def data_of(name, clients, rows=None):
    images, labels, schema = {"mnist": mnist, "fashion_mnist": fashion_mnist}[name]("train")
    dealt = image_clients_from(images[:rows], labels[:rows], clients=clients, rng=Rng(1).at("split"))
    return encode_clients(dealt, schema), schema


def algorithm_of(recipe, schema, clients, rounds, settings):
    made = recipe_named(recipe)
    known = made.arguments()
    values = made.values({name: value for name, value in settings.items() if name in known})
    private = "noise_multiplier" in settings
    task = made.task(schema, clients, private=private, unit=None, trust=None, transport=None)
    return made.build(task, {**values, "rounds": rounds}), values


def trained(algorithm, clients, device):
    rng = Rng(1)
    link = Listening(clients, rng, device=device)
    state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None)
    link.norms = {}
    state = run(algorithm, link, state, rng, lambda *_: None, lambda *_: None, algorithm.rounds)
    return state, [float(torch.cat(each).median()) for _, each in sorted(link.norms.items())]


def norms(device, rounds, rows, sizes, most_epochs, keep):
    """Median norms by network, local epochs and system; kept after each."""
    clients, schema = data_of("fashion_mnist", 100, rows)
    found = {}
    for size, epochs, recipe in itertools.product(sizes, (1, 10), ("fvae", "dpd_fvae")):
        if epochs <= most_epochs:
            asked = {**BATCH, "size": size, "epochs": epochs, "rate": 0.1, "momentum": 0.5}
            algorithm, _ = algorithm_of(recipe, schema, 100, rounds, asked)
            medians = trained(algorithm, clients, device)[1]
            found[f"{size}, {epochs} local epochs, {recipe}"] = medians
            keep(found)
            print(size, epochs, recipe, np.round(medians[-1], 3), flush=True)


def resilience(kind, device, rounds, rows, out, keep):
    """Accuracy of a CNN on the test split and a picture, of each system in the same setting; kept after each."""
    clients, schema = data_of("mnist", 500, rows)
    real, labels, _ = mnist("test")
    test = torch.tensor(real)[:, None].to(device), torch.tensor(labels.astype(int)).to(device)
    found = {}
    for recipe in ("fvae", "dpd_fvae"):
        algorithm, values = algorithm_of(recipe, schema, 500, rounds, {**SETTINGS[kind], "size": "small"})
        state, _ = trained(algorithm, clients, device)
        parts = {name: state.parts[name] for name in algorithm.model.generative}
        generator = Generator(schema, recipe, {**values, "rounds": rounds}, parts, state.balance)
        images, drawn = generator.sample(rows or 60_000, Rng(2))
        shown = np.concatenate([images[drawn == name][:10] for name in schema.classes])
        write_grid(shown, out / f"{kind}_{recipe}.png")
        made = torch.tensor(images)[:, None].to(device), torch.tensor(drawn.astype(int)).to(device)
        found[recipe] = image_performance(made, test, 10, "cnn", 0, 10).accuracy
        keep(found)
        print(kind, recipe, found[recipe], flush=True)


def draw_norms(found, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sizes = [size for size in ("small", "large") if any(name.startswith(size) for name in found)]
    figure, axes = pyplot.subplots(1, len(sizes), figsize=(4.5 * len(sizes), 3.2), squeeze=False)
    for axis, size in zip(axes[0], sizes, strict=True):
        for name, medians in found.items():
            if name.startswith(size):
                system = name.removeprefix(f"{size}, ")
                style = "-" if system.endswith("dpd_fvae") else "--"
                axis.plot(range(1, len(medians) + 1), medians, style, label=system)
        axis.set(xlabel="round", ylabel="median L2 norm of an update", title=f"{size} network")
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("norms", "clipping", "noise"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--sizes", nargs="+", choices=("small", "large"), default=("small", "large"))
    parser.add_argument("--most-epochs", type=int, default=10)
    parser.add_argument("--rows", type=int, help="train on the first so many images, for a quick look")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "figures")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)

    def keep(found):
        told = {"what": asked.what, "rounds": asked.rounds, "found": found}
        (asked.out / f"{asked.what}.json").write_text(json.dumps(told, indent=1) + "\n")
        if asked.what == "norms":
            draw_norms(found, asked.out / "norms.png")

    if asked.what == "norms":
        norms(asked.device, asked.rounds, asked.rows, asked.sizes, asked.most_epochs, keep)
    else:
        resilience(asked.what, asked.device, asked.rounds, asked.rows, asked.out, keep)


if __name__ == "__main__":
    main()
