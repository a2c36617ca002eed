"""Few sites, many records: what four sites reach together without pooling, beside pooled data and each site alone.

    python experiments/record_distributed/measure.py adult|heart [--seeds 0 1]

All systems train the same VAE by DP-SGD for each record, with as many steps, the same sampling rate and the same budget
(so with the same noise multiplier, which is calibrated once):
    pooled       central_vae on all rows in one place: who holds them is trusted
    sites        site_vae over four sites; every step is a masked sum, keys and masks included
    one helps    the same, but one of the four sites may help the server: the noise of three must do
    local        the same, but any three sites may: each site's own noise must do, as if it published by itself
    alone        central_vae on the rows of one site; the mean over the four sites (Adult: one random quarter)
Runs are seeded: simulations that are private for nobody. The classifier learns from synthetic rows (as many as the
training rows, at most 4,000) and is judged by real rows that nobody trained on.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np
import torch

from fedsynth.data.clients import RawClients, encode_clients
from fedsynth.data.datasets import adult, heart_disease
from fedsynth.engines.inprocess import InProcess
from fedsynth.evaluation.utility import performance
from fedsynth.federation.loop import learn_balance, run
from fedsynth.recipes.budget import Target, fit_budget
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.synthesis.generator import Generator

RESULTS = Path(__file__).parent / "results"
EPSILONS = (1.0, 3.0, 8.0)
CLASSIFIERS = ("gradient boosting", "logistic regression")
SETTINGS = {
    "adult": {"hidden": (16,), "latent": 8, "batch": 128, "steps": 254, "delta": 1e-5, "learning_rate": 0.01},
    "heart": {"hidden": (32,), "latent": 4, "batch": 69, "steps": 200, "delta": 1e-4, "learning_rate": 0.01},
}
SYSTEMS = {"sites": 0, "one helps": 1, "local": 3}  # how many of the four sites may help the server


def read(name, seed):
    """Training rows with their site, test rows, and the schema."""
    if name == "adult":
        train, schema = adult("train")
        test, _ = adult("test")
        return train, np.random.default_rng(seed).integers(0, 4, len(train)), test, schema
    frame, schema = heart_disease()
    site = np.unique(frame["site"].to_numpy(), return_inverse=True)[1]
    rows = frame.drop(columns="site")
    held = np.zeros(len(frame), dtype=bool)
    held[np.random.default_rng(seed).permutation(len(frame))[: len(frame) // 4]] = True
    return rows[~held].reset_index(drop=True), site[~held], rows[held], schema.with_client(None)


def arguments(settings, records, **more):
    """The settings that all systems share."""
    shared = {key: settings[key] for key in ("hidden", "latent", "learning_rate")}
    return {**shared, "records": records, "batch_size": settings["batch"], **more}


def steps_of(settings, records):
    """Whole passes, so that pooled data and sites take as many steps."""
    each = max(1, round(records / settings["batch"]))
    return each, max(1, round(settings["steps"] / each)) * each


def calibrated(schema, settings, records, epsilon):
    """The noise multiplier of all systems, from what site_vae releases."""
    recipe = recipe_named("site_vae")
    values = recipe.values(arguments(settings, records, threshold=4))
    target = Target(epsilon, settings["delta"], steps_of(settings, records)[1])
    return fit_budget(recipe, recipe.task(schema, 4), values, target)[1]["noise_multiplier"]


def trained(name, frame, site, schema, seed, values):
    """A generator, trained by this recipe over these owners."""
    recipe, count = recipe_named(name), int(site.max()) + 1
    values = recipe.values(values)
    algorithm = recipe.build(recipe.task(schema, count), values)
    raw = RawClients(site.astype(np.int64), count, tuple(map(str, range(count))), frame=frame)
    rng = Rng(seed)
    link = InProcess(encode_clients(raw, schema), rng)
    state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None)
    state = run(algorithm, link, state, rng, lambda *_: None, lambda *_: None, algorithm.rounds)
    return Generator(schema, name, values, {"decoder": state.parts["decoder"]}, state.balance)


def judged(generator, rows, test, schema):
    """AUC and accuracy of classifiers trained on synthetic rows."""
    synthetic = generator.sample(rows, Rng(1))
    found = {}
    for name in CLASSIFIERS:
        try:
            scored = performance(synthetic, test, schema, name, 0)
            found[name] = {"auc": scored.auc, "accuracy": scored.accuracy}
        except ValueError as error:  # one class only: nothing can be learned
            found[name] = {"auc": 0.5, "accuracy": None, "failed": str(error)}
    return found


def mean(results):
    """The mean over sites that were alone."""
    return {
        name: {
            key: float(np.mean([one[name][key] for one in results if one[name][key] is not None]))
            for key in ("auc", "accuracy")
        }
        for name in CLASSIFIERS
    }


def measure(name, seed, epsilon, noise):
    """All systems at one epsilon."""
    settings = SETTINGS[name]
    train, site, test, schema = read(name, seed)
    rows, records = min(len(train), 4_000), len(train)
    each, steps = steps_of(settings, records)
    given = arguments(settings, records, noise_multiplier=noise)

    def pooled(frame, **changes):
        one = np.zeros(len(frame), dtype=np.int64)
        made = trained("central_vae", frame, one, schema, seed, {**given, "rounds": steps // each, **changes})
        return judged(made, rows, test, schema)

    found = {"pooled": pooled(train)}
    for system, colluders in SYSTEMS.items():
        if system == "one helps" and name == "adult":
            continue
        sharing = {"rounds": steps, "threshold": 4, "colluders": colluders}
        made = trained("site_vae", train, site, schema, seed, {**given, **sharing})
        found[system] = judged(made, rows, test, schema)
    alone = []
    for one in range(1 if name == "adult" else 4):
        own = train[site == one].reset_index(drop=True)
        share = max(1, round(settings["batch"] * len(own) / records))
        alone.append(pooled(own, records=len(own), batch_size=share))
    return {**found, "alone": mean(alone)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", choices=sorted(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, help="fewer, to try it out: nothing is written then")
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = SETTINGS[given.data] | ({"steps": given.steps} if given.steps else {})
    SETTINGS[given.data] = settings
    runs, path = [], RESULTS / f"{given.data}.json"
    train, _, _, schema = read(given.data, 0)
    noises = {epsilon: calibrated(schema, settings, len(train), epsilon) for epsilon in EPSILONS}
    for seed in given.seeds:
        train, _, test, schema = read(given.data, seed)
        real = {name: performance(train, test, schema, name, 0) for name in CLASSIFIERS}
        for epsilon, noise in noises.items():
            began = time.perf_counter()
            found = measure(given.data, seed, epsilon, noise)
            found["real"] = {name: {"auc": one.auc, "accuracy": one.accuracy} for name, one in real.items()}
            seconds = time.perf_counter() - began
            runs.append(
                {"seed": seed, "epsilon": epsilon, "noise_multiplier": noise, "seconds": seconds, **found}
            )
            print(
                seed,
                epsilon,
                {k: round(v["gradient boosting"]["auc"], 3) for k, v in found.items()},
                flush=True,
            )
            if not given.steps:
                written = {"layout": "sites", "order": 0 if given.data == "adult" else 1}
                written |= {"data": given.data, "settings": settings, "runs": runs}
                written["machine"] = f"Python {platform.python_version()}, torch {torch.__version__}, CPU"
                path.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
