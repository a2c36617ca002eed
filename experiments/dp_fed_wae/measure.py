"""Measure rows of the DP-Fed-WAE tables: many trainings side by side, scored as the paper scores them.

    python experiments/dp_fed_wae/measure.py [ROW ...] [--jobs 4] [--out results]

Like `fedsynth experiment run`, but with the paper's scores alone: accuracy of a neural network and of a random forest
trained on synthetic rows, the variation distance of 2- to 6-way marginals over 100 random sets of attributes, and the
distance of the correlation matrices. (The general scores compare all pairs of 124 columns, which takes minutes.)
A training gives `ROWS` synthetic rows; classifiers are trained once on each.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch

from fedsynth.data.clients import clients_from, encode_clients
from fedsynth.evaluation.experiment import DATA, Experiment, _plain, machine
from fedsynth.evaluation.marginals import correlation_matrix_distance, marginals
from fedsynth.evaluation.score import Score, across_runs
from fedsynth.evaluation.tables import Tables
from fedsynth.evaluation.utility import performance
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.statement import statement
from fedsynth.rng import Rng
from fedsynth.synthesis.synthesizer import Synthesizer

HERE = Path(__file__).parent
ROWS = 20_000
CLASSIFIERS = {"neural network: accuracy": "mlp", "random forest: accuracy": "random forest"}


def trained(experiment, seed, train, schema):
    """How to draw rows, the settings that ran, what they cost and how long they took."""
    request = replace(experiment.request, seed=seed)
    raw = clients_from(train, clients=request.clients, split=request.split, rng=Rng(seed).at("split"))
    began = time.perf_counter()
    if experiment.baseline:
        ledger, system = Ledger(None), experiment.other()
        clients = encode_clients(raw, schema)
        learned = system.fit(clients, schema, request.epsilon, Rng(seed), ledger)
        told = statement(
            ledger, delta=1e-9, adjacency=system.adjacency, unit=system.unit, seeded=seed is not None
        )
        made = learned.sample(ROWS, Rng(seed))
        settings, epsilon = dict(experiment.baseline), request.epsilon
    else:
        synthesizer = Synthesizer.of(request, schema).fit(raw)
        told, made = synthesizer.privacy, synthesizer.sample(ROWS, seed=seed)
        settings = _plain(synthesizer.request.arguments)
        epsilon = told.epsilon if seed is None else request.epsilon
    seconds = time.perf_counter() - began
    privacy = {
        "private": request.private,
        "unit": told.unit,
        "trust": told.trust,
        "adjacency": told.adjacency,
        "sampling": told.sampling,
        "epsilon": epsilon,
        "delta": request.delta,
        "simulation": told.simulation,
    }
    return made, settings, privacy, seconds


def trial(row, number):
    """One training and its scores."""
    torch.set_num_threads(1)
    experiment = Experiment.load(HERE / f"{row}.toml")
    train, test, schema = DATA[experiment.data]()
    if experiment.train_rows:
        train = train.iloc[: experiment.train_rows]
    made, settings, privacy, seconds = trained(experiment, experiment.each[number], train, schema)
    scores = [
        Score(name, performance(made, test, schema, classifier, number).accuracy, "max")
        for name, classifier in CLASSIFIERS.items()
    ]
    tables = Tables.of(train, made, schema)
    scores += [*marginals(tables)[0], correlation_matrix_distance(tables)]
    return {
        "scores": [score.to_dict() for score in scores],
        "settings": settings,
        "privacy": privacy,
        "seconds": seconds,
        "rows": [len(train), len(test)],
    }


def result(row, trials):
    """The row's file."""
    experiment = Experiment.load(HERE / f"{row}.toml")
    found = [[Score.from_dict(score) for score in each["scores"]] for each in trials]
    return {
        "row": row,
        "title": experiment.title,
        "order": experiment.order,
        "layout": "local",
        "recipe": experiment.system,
        "data": {
            "name": experiment.data,
            "train_rows": trials[0]["rows"][0],
            "test_rows": trials[0]["rows"][1],
            "synthetic_rows": ROWS,
        },
        "clients": {"count": experiment.request.clients, "split": experiment.request.split},
        "settings": trials[0]["settings"],
        "seeds": list(experiment.seeds),
        "runs": len(trials),
        "scores": [score.to_dict() for score in across_runs(found, experiment.seeds)],
        "privacy": trials[0]["privacy"],
        "claim": experiment.claim,
        "deviations": list(experiment.deviations),
        "machine": machine("cpu"),
        "seconds_training": [round(each["seconds"], 1) for each in trials],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=99)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    given = parser.parse_args()
    rows = given.rows or [path.stem for path in sorted(HERE.glob("*.toml"))]
    given.out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(given.jobs) as pool:
        waiting = {}
        longest = max(len(Experiment.load(HERE / f"{row}.toml").each) for row in rows)
        for number in range(min(given.runs, longest)):  # every row once before any row twice
            for row in rows:
                if number < len(Experiment.load(HERE / f"{row}.toml").each):
                    waiting.setdefault(row, []).append(pool.submit(trial, row, number))
        for number in range(min(given.runs, longest)):
            for row in rows:
                done = [future.result() for future in waiting[row][: number + 1]]
                text = json.dumps(result(row, done), indent=1, allow_nan=False)
                (given.out / f"{row}.json").write_text(text + "\n")
                print(row, len(done), done[-1]["scores"][0]["value"], round(done[-1]["seconds"]), flush=True)


if __name__ == "__main__":
    main()
