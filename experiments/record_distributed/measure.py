"""Few sites, many records: what four sites reach together without pooling, beside pooled data and each site alone.

    python experiments/record_distributed/measure.py adult|heart [--seeds 0 1] [--masked] [--out FILE]
    python experiments/record_distributed/measure.py adult|heart --merge FILE...

All systems train the same VAE by DP-SGD for each record, with as many steps, the same sampling rate and the same budget
(so with the same noise multiplier, which is calibrated once):
    pooled       central_vae on all rows in one place: who holds them is trusted
    sites        site_vae over four sites; every step is a sum over them in the ring
    one helps    the same, but one of the four sites may help the server: the noise of three must do
    local        the same, but any three sites may: each site's own noise must do, as if it published by itself
    alone        central_vae on the rows of one site; the mean over the four sites (Adult: one random quarter)
A masked sum is the sum in the ring to the last bit (tests/recipes/test_every_transport.py), so masks are left out
unless --masked asks for them. Runs are seeded: simulations that are private for nobody. The classifier learns from
4,000 synthetic rows and is judged by real rows that nobody trained on; a seed decides the split, the sites (Adult),
the first parameters and all noise, so that systems of one seed are compared on the same test rows.
"""

import argparse
import json
import platform
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedsynth.assess.scores.utility import performance
from fedsynth.data.clients import RawClients, encode_clients
from fedsynth.federation.loop import learn_balance, run
from fedsynth.recipes.budget import Target, fit_budget
from fedsynth.recipes.registry import recipe_named
from fedsynth.research.datasets import adult, heart_disease
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess
from fedsynth.synthesis.generator import Generator
from fedsynth.transport.clear import Clear

RESULTS = Path(__file__).parent / "results"
EPSILONS = (1.0, 3.0, 8.0)
ROWS = 4_000
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
    return fit_budget(recipe, replace(recipe.task(schema, 4), largest=0), values, target)[1][
        "noise_multiplier"
    ]


def unmasked(algorithm):
    """The same sums without masks."""
    ring = Clear(carries=("real", "ring"))
    opening = None if algorithm.opening is None else replace(algorithm.opening, transport=ring)
    return replace(algorithm, transport=ring, opening=opening)


def trained(name, frame, site, schema, seed, values, masked=False):
    """A generator, trained by this recipe over these owners."""
    recipe, count = recipe_named(name), int(site.max()) + 1
    values = recipe.values(values)
    algorithm = recipe.build(replace(recipe.task(schema, count), largest=0), values)
    algorithm = algorithm if masked else unmasked(algorithm)
    raw = RawClients(site.astype(np.int64), count, tuple(map(str, range(count))), data=frame)
    rng = Rng(seed)
    link = InProcess(encode_clients(raw, schema), rng)
    state = learn_balance(algorithm, link, algorithm.init(rng.at("init")), rng, lambda *_: None)
    state = run(algorithm, link, state, rng, lambda *_: None, lambda *_: None, algorithm.rounds)
    return Generator(schema, name, values, {"decoder": state.parts["decoder"]}, state.balance)


def judged(generator, test, schema):
    """AUC and accuracy of classifiers trained on synthetic rows."""
    synthetic = generator.sample(ROWS, Rng(1))
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


def measure(name, seed, noise, masked, wanted):
    """The wanted systems with one noise multiplier."""
    settings = SETTINGS[name]
    train, site, test, schema = read(name, seed)
    records = len(train)
    each, steps = steps_of(settings, records)
    given = arguments(settings, records, noise_multiplier=noise)

    def pooled(frame, **changes):
        one = np.zeros(len(frame), dtype=np.int64)
        made = trained("central_vae", frame, one, schema, seed, {**given, "rounds": steps // each, **changes})
        return judged(made, test, schema)

    found = {"pooled": pooled(train)}
    for system, colluders in SYSTEMS.items():
        if system not in wanted or (system == "one helps" and name == "adult"):
            continue
        sharing = {"rounds": steps, "threshold": 4, "colluders": colluders}
        made = trained("site_vae", train, site, schema, seed, {**given, **sharing}, masked)
        found[system] = judged(made, test, schema)
    if "alone" not in wanted:
        return found
    alone = []
    for one in range(1 if name == "adult" else 4):
        own = train[site == one].reset_index(drop=True)
        share = max(1, round(settings["batch"] * len(own) / records))
        alone.append(pooled(own, records=len(own), batch_size=share))
    return {**found, "alone": mean(alone)}


def runs_of(name, settings, seeds, masked, wanted):
    """One seed and epsilon after the other."""
    train, _, _, schema = read(name, 0)
    noises = {epsilon: calibrated(schema, settings, len(train), epsilon) for epsilon in EPSILONS}
    for seed in seeds:
        train, _, test, schema = read(name, seed)
        real = {kind: performance(train, test, schema, kind, 0) for kind in CLASSIFIERS}
        for epsilon, noise in noises.items():
            began = time.perf_counter()
            found = measure(name, seed, noise, masked, wanted)
            found["real"] = {kind: {"auc": one.auc, "accuracy": one.accuracy} for kind, one in real.items()}
            seconds = time.perf_counter() - began
            print(
                seed,
                epsilon,
                {k: round(v["gradient boosting"]["auc"], 3) for k, v in found.items()},
                flush=True,
            )
            yield {"seed": seed, "epsilon": epsilon, "noise_multiplier": noise, "seconds": seconds, **found}


def write(path, name, settings, runs):
    """The results so far, by epsilon and seed."""
    written = {"layout": "sites", "order": 0 if name == "adult" else 1, "data": name, "settings": settings}
    written["machine"] = f"Python {platform.python_version()}, torch {torch.__version__}, CPU"
    written["runs"] = sorted(runs, key=lambda run: (run["epsilon"], run["seed"]))
    path.write_text(json.dumps(written, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", choices=sorted(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, help="fewer, to try it out")
    parser.add_argument("--masked", action="store_true", help="with keys, shares and masks: the same numbers")
    everything = ["pooled", *SYSTEMS, "alone"]
    parser.add_argument(
        "--systems", nargs="+", choices=everything, default=everything, help="pooled always is"
    )
    parser.add_argument("--out", type=Path, help="where results go, if not to results/")
    parser.add_argument("--merge", type=Path, nargs="+", help="files of other seeds, to be joined")
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = SETTINGS[given.data] | ({"steps": given.steps} if given.steps else {})
    SETTINGS[given.data] = settings
    path, runs = given.out or RESULTS / f"{given.data}.json", []
    if given.merge:
        read_files = [json.loads(file.read_text()) for file in given.merge]
        assert all(one["settings"] == json.loads(json.dumps(settings)) for one in read_files), (
            "other settings"
        )
        write(path, given.data, settings, [run for one in read_files for run in one["runs"]])
        return
    for run_done in runs_of(given.data, settings, given.seeds, given.masked, given.systems):
        runs.append(run_done)
        write(path, given.data, settings, runs)


if __name__ == "__main__":
    main()
