"""PP-FedGAN's Figures 3 and 4 and Table 5, and how much sooner a buffer is good than rounds of all.

    python experiments/pp_fedgan/measure.py quality mnist --systems published --noise 0.5 0.7 1 --out FILE
    python experiments/pp_fedgan/measure.py quality mnist --systems opening moments --epsilon 8 --seeds 1 2 3 --out FILE
    python experiments/pp_fedgan/measure.py time mnist --systems "every step" --no-privacy --out FILE

Clients (ten, unless asked otherwise) hold all training images. Scores are of 10,000 synthetic images against the test
split, in the features of a LeNet that was trained once on real training images (results/lenets; its hash
stands in every result). The runs are seeded simulations; epsilon is what the client that was used most would have
paid, the class balance not
counted where nothing else is asked for: it is even. `quality`:
    opening        pp_fedgan's defaults, ten rounds of all: one noisy answer buys what the generator starts from
    opening alone  the same question with all of the budget but a thousandth; the one round changes nothing
    published      PP-FedGAN's settings: 94 steps of the discriminator, then 94 of the generator, ten rounds of all
    every step     the two sides take turns at every step, and steps are five times as large
    large batches  the same with 30 steps on a tenth of the records each, at the noise that epsilon allows
    in turn        Priv-FedGAN's order: one client after another
    pooled         DP-GAN: all rows in one place, batches ten times as large
    moments        moment_vae, which is no GAN, at the same epsilon
`time` trains under stragglers, in rounds of all and with buffers, and scores each version at its simulated time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from fedsynth.assess.scores.features import (
    FeatureNetwork,
    LeNet,
    extract,
    lenet_features,
    trained_lenet,
)
from fedsynth.assess.scores.image_fidelity import frechet_distance, inception_score, kernel_distance
from fedsynth.assess.scores.image_utility import image_performance
from fedsynth.data.clients import encode_clients, image_clients_from
from fedsynth.federation.client_uses import ClientUses
from fedsynth.federation.loop import learn_balance, run
from fedsynth.privacy import account
from fedsynth.recipes.budget import Target, cost, each_round, fit_budget, once
from fedsynth.recipes.registry import recipe_named
from fedsynth.research.datasets import fashion_mnist, mnist, svhn
from fedsynth.research.experiment import machine
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.simulator.speeds import Speeds
from fedsynth.simulator.virtual_clock import VirtualClock

LENETS = Path(__file__).parent / "results" / "lenets"
CLIENTS, DELTA, PASSES, MADE = 10, 1e-4, 20, 10_000
STEPS, BATCH = 94, 128  # of a client's use: two passes over 6,000 images
PAPER = {"start_share": 0.0, "batch_rate": BATCH / 6000, "steps": STEPS, "generator_batch": BATCH}
DATA = {"mnist": mnist, "fashion_mnist": fashion_mnist, "svhn": svhn}
FAST = {**PAPER, "alternations": STEPS, "learning_rate": 0.001, "generator_learning_rate": 0.001}
LARGE = {**FAST, "batch_rate": 0.1, "steps": 30, "alternations": 30}
TOGETHER = {"order": "together", "rounds": 10}
ALONE = {"start_share": 0.999, "rounds": 1, "learning_rate": 1e-12, "generator_learning_rate": 1e-12}
SYSTEMS = {
    "opening": ("pp_fedgan", TOGETHER),
    "opening alone": ("pp_fedgan", {**TOGETHER, **ALONE}),
    "published": (
        "pp_fedgan",
        {**PAPER, **TOGETHER, "alternations": 1, "learning_rate": 0.0002, "generator_learning_rate": 0.0002},
    ),
    "every step": ("pp_fedgan", {**TOGETHER, **FAST}),
    "large batches": ("pp_fedgan", {**TOGETHER, **LARGE}),
    "in turn": ("pp_fedgan", {**FAST, "order": "in turn", "rounds": 100}),
    "pooled": ("dp_gan", {**FAST, "rounds": 20, "generator_batch": BATCH * CLIENTS}),
}


class Judge:
    """A data set, its clients and its LeNet."""

    def __init__(self, data: str, device: str, rows: int | None = None, clients: int = CLIENTS) -> None:
        self.device, self.count = device, clients
        self.images, self.labels, self.schema = _square(*DATA[data]("train"), rows)
        self.test, self.truth, _ = _square(*DATA[data]("test"), rows)
        self.classes = len(self.schema.classes)
        self.network = self.kept_lenet(data)
        self.real = extract(self.network, self.pixels(self.test))
        self.records = len(self.images) // clients
        raw = image_clients_from(
            self.images, self.labels, clients=clients, split="uniform", rng=Rng(0).at("split")
        )
        self.clients = encode_clients(raw, self.schema)

    def kept_lenet(self, data: str) -> FeatureNetwork:
        """The LeNet of this data set: as it was kept, or trained on real training images and kept from now on."""
        path = LENETS / f"{data}.safetensors"
        if path.exists():
            network = LeNet(self.schema.channels, self.classes)
            network.load_state_dict(load_file(path))
            return lenet_features(network)
        images, labels, _ = _square(*DATA[data]("train"), None)
        passes = 4 if len(images) > 10_000 else 20
        network = trained_lenet(self.pixels(images), self.codes(labels), self.classes, passes=passes)
        path.parent.mkdir(exist_ok=True)
        save_file(network.state_dict(), path)
        return lenet_features(network)

    def pixels(self, images: np.ndarray) -> torch.Tensor:
        """Bytes with the channel axis first."""
        whole = torch.from_numpy(np.ascontiguousarray(images))
        return whole[:, None] if whole.dim() == 3 else whole.permute(0, 3, 1, 2).contiguous()

    def codes(self, labels: np.ndarray) -> torch.Tensor:
        """Class numbers in the order of the schema."""
        order = {name: code for code, name in enumerate(self.schema.classes)}
        return torch.tensor([order[name] for name in labels])

    def drawn(self, algorithm, state, count=MADE):
        """Synthetic images, the classes in turn."""
        labels = torch.arange(count) % self.classes
        params = {
            part: algorithm.layouts[part].split(state.parts[part]) for part in algorithm.model.generative
        }
        with torch.no_grad():
            made = algorithm.model.sample(params, labels, Rng(2))
        return (made.clamp(0, 1) * 255).round().to(torch.uint8), labels

    def likeness(self, made: torch.Tensor) -> dict[str, float]:
        """IS, FID and KID."""
        found = extract(self.network, made)
        return {
            "fid": frechet_distance(self.real.values, found.values),
            "kid": kernel_distance(self.real.values, found.values)[0],
            "is": inception_score(found.chances)[0],
        }

    def accuracy(self, made: torch.Tensor, labels: torch.Tensor) -> float:
        """Of a CNN that learns from the synthetic images alone, on the test split."""
        learn = made.to(self.device), labels.to(self.device)
        judge = self.pixels(self.test).to(self.device), self.codes(self.truth).to(self.device)
        return image_performance(learn, judge, self.classes, "cnn", 0, PASSES).accuracy

    def built(self, system: str, noise: float | None, **changes):
        """The algorithm of a system; clients with fewer records take fewer steps on a larger share of them."""
        name, settings = SYSTEMS[system]
        recipe = recipe_named(name)
        shared = dict(settings)
        if self.records < 6000 and "alternations" in settings:
            shared |= {"batch_rate": 0.1, "steps": 20, "alternations": min(20, settings["alternations"])}
        shared |= {
            "usual_records": self.records,
            "records": len(self.images),
            "noise_multiplier": noise or 0.0,
        }
        asked = {**shared, **changes}
        values = recipe.values({key: value for key, value in asked.items() if key in recipe.arguments()})
        count = 1 if recipe.pooled else self.count
        task = recipe.task(self.schema, count, private=noise is not None, transport="clear")
        built = recipe.build(task, values)
        return built if values["start_share"] else replace(built, opening=None)

    def calibrated(self, system: str, epsilon: float) -> float:
        """The noise at which a whole run costs this."""
        return account.calibrate(lambda noise: cost(self.built(system, noise)), epsilon, DELTA)

    def trained(self, algorithm, seed: int, speeds: Speeds, seen=lambda *_: None):
        """The last state, and how often the client used most was used."""
        rng = Rng(seed)
        held = self.clients if algorithm.schedule.clients > 1 else self.clients.pooled()
        link = VirtualClock(InProcess(held, rng, device=self.device), speeds, rng)
        start = algorithm.init(rng.at("init"))
        start = learn_balance(algorithm, link, start, rng, lambda *_: None)
        state = run(algorithm, link, start, rng, lambda *_: None, seen, algorithm.rounds, tell=print)
        return state, most_used(algorithm, state)


def most_used(algorithm, state) -> int:
    """The uses of the client that was used most."""
    schedule = algorithm.schedule
    if schedule.buffered:
        return int(ClientUses.from_tensors(state.standing, schedule.clients).uses.max())
    return schedule.participations(state.version)


def _square(images, labels, schema, rows):
    """The first rows, cropped to the 28x28 that PP-FedGAN's layers are for."""
    cut = (images.shape[1] - 28) // 2
    kept = images[:rows, cut : cut + 28, cut : cut + 28]
    return kept, labels[:rows], replace(schema, height=28, width=28)


def spent(algorithm, uses: int) -> float | None:
    """Epsilon of a client that was used so often."""
    if not algorithm.charges():
        return None
    return account.epsilon(
        account.compose([*once(algorithm), account.repeat(each_round(algorithm), uses)]), DELTA
    )


def moments(judge: Judge, epsilon: float):
    """moment_vae for each record, calibrated to this epsilon."""
    recipe = recipe_named("moment_vae")
    task = recipe.task(judge.schema, judge.count, unit="record", trust="local")
    values = recipe.values({"usual_records": judge.records})
    return fit_budget(recipe, task, values, Target(epsilon, DELTA))[0]


def quality(judge: Judge, systems, noises, epsilons, seeds, pictures: Path | None):
    """Scores of each system at each noise, as lines."""
    plan = [(system, noise, None) for noise in noises for system in systems]
    plan += [(system, None, epsilon) for epsilon in epsilons for system in systems]
    for (system, noise, epsilon), seed in itertools.product(plan, seeds):
        if epsilon is not None and system != "moments":
            noise = judge.calibrated(system, epsilon)
        algorithm = moments(judge, epsilon) if system == "moments" else judge.built(system, noise)
        began = time.perf_counter()
        state, uses = judge.trained(algorithm, seed, Speeds(spread=0.2))
        seconds = time.perf_counter() - began
        made, labels = judge.drawn(algorithm, state)
        if system != "moments":
            epsilon = spent(algorithm, uses)
        line = {"system": system, "noise": noise, "epsilon": epsilon, "uses": uses, "versions": state.version}
        line |= {"seed": seed, "clients": judge.count}
        line |= {**judge.likeness(made), "cnn": judge.accuracy(made, labels), "seconds": round(seconds, 1)}
        if pictures:
            save_grid(
                made, pictures / f"{system.replace(' ', '-')}-{noise if noise is not None else epsilon}.png"
            )
        print(json.dumps(line), flush=True)
        yield line


def save_grid(made: torch.Tensor, path: Path) -> None:
    """Ten images of each class, a row a class; the classes come in turn."""
    from matplotlib import image

    grid = made[:100].reshape(10, 10, *made.shape[1:]).permute(1, 3, 0, 4, 2).reshape(280, 280, -1)
    image.imsave(path, grid.numpy().squeeze() if grid.shape[2] == 1 else grid.numpy(), cmap="gray")


def over_time(judge: Judge, system: str, noise: float | None, seed: int, speeds: Speeds):
    """FID and IS of every version at its simulated time: rounds of all, and buffers."""
    buffers = {"order": "buffered", "buffer": 5, "concurrency": 10, "turns": 10, "rounds": 40}
    for name, changes in (("buffered", buffers), ("together", TOGETHER)):
        algorithm = judge.built(system, noise, **changes)
        points = []

        def seen(state, done, algorithm=algorithm, points=points):
            made, _ = judge.drawn(algorithm, state, 2000)
            uses = most_used(algorithm, state)
            points.append({"at_s": done.simulated_s, "uses": uses, **judge.likeness(made)})
            print(json.dumps(points[-1]), flush=True)

        state, uses = judge.trained(algorithm, seed, speeds, seen)
        made, labels = judge.drawn(algorithm, state)
        yield {
            "order": name, "system": system, "noise": noise, "epsilon": spent(algorithm, uses), "points": points,
            "cnn": judge.accuracy(made, labels), **judge.likeness(made),
        }  # fmt: skip


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("quality", "time"))
    parser.add_argument("data", choices=tuple(DATA))
    parser.add_argument("--systems", nargs="+", default=["published"])
    parser.add_argument("--noise", nargs="*", type=float, default=[])
    parser.add_argument("--epsilon", nargs="*", type=float, default=[])
    parser.add_argument("--no-privacy", action="store_true")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pictures", type=Path)
    asked = parser.parse_args()
    judge = Judge(asked.data, asked.device, asked.rows, asked.clients)
    result = {
        "what": asked.what, "data": asked.data, "train_rows": len(judge.images), "test_rows": len(judge.test),
        "delta": DELTA, "clients": asked.clients, "network": judge.network.setting(), "machine": machine(asked.device),
        "lines": [],
    }  # fmt: skip
    if asked.what == "quality":
        noises = [None] if asked.no_privacy else asked.noise
        lines = quality(judge, asked.systems, noises, asked.epsilon, asked.seeds, asked.pictures)
    else:
        speeds = Speeds(spread=0.3, stragglers=0.2, factor=10.0)
        noise = None if asked.no_privacy else asked.noise[0]
        lines = over_time(judge, asked.systems[0], noise, asked.seeds[0], speeds)
    for line in lines:
        result["lines"].append(line)
        asked.out.write_text(json.dumps(result, indent=1) + "\n")  # a run that is stopped keeps what it has


if __name__ == "__main__":
    main()
