"""Measure rows of the DP-Fed-WAE tables: many trainings side by side, scored as the paper scores them.

    python experiments/dp_fed_wae/measure.py [ROW ...] [--jobs 4] [--runs 3] [--trials FOLDER] [--out FOLDER]

ROW is a file, or the name of one in this folder; results go beside it unless `--out` is given.

Like `fedsynth experiment run`, but with the paper's scores alone: accuracy of a neural network and of a random forest
trained on synthetic rows, the variation distance of 2- to 6-way marginals over 100 random sets of attributes, and the
distance of the correlation matrices. (The general scores compare all pairs of 124 columns, which takes minutes.)
A training gives as many synthetic tables as the row says (`sets`), each with classifiers of its own; its scores are
their means.

Each finished training leaves a file ROW.NUMBER.json under `--trials`, and one whose file is there is not repeated: so a
long table can be measured in pieces, on several machines, and put together at the end.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch

from fedsynth.assess.scores.marginals import correlation_matrix_distance, marginals
from fedsynth.assess.scores.score import Score
from fedsynth.assess.scores.tables import Tables
from fedsynth.assess.scores.utility import majority, performance
from fedsynth.data.atomic import replacing
from fedsynth.data.clients import clients_from
from fedsynth.research.across_runs import across_runs
from fedsynth.research.experiment import Experiment, machine
from fedsynth.research.experiment_data import DATA
from fedsynth.rng import Rng

HERE = Path(__file__).parent
ROWS = 20_000
COMPARED = 100_000  # real rows that marginals are compared with, at most
CLASSIFIERS = {"neural network: accuracy": "mlp", "random forest: accuracy": "random forest"}


def trained(experiment, seed, train, schema):
    """Synthetic tables, the settings that ran, what they cost and how long they took."""
    request = replace(experiment.request, seed=seed)
    raw = clients_from(train, clients=request.clients, split=request.split, rng=Rng(seed).at("split"))
    began = time.perf_counter()
    fitted = experiment.fit(request, raw, schema, None)
    seconds = time.perf_counter() - began
    seeds = [None if seed is None else seed + 1000 * place for place in range(experiment.sets)]
    return [fitted.draw(ROWS, each) for each in seeds], fitted.settings, fitted.privacy, seconds


def scored(train, made, test, schema, number):
    """The scores of one synthetic table."""
    one_class = made[schema.label].nunique() < 2  # a classifier can then only name it, always
    learned = [
        (majority(made, test, schema) if one_class else performance(made, test, schema, classifier, number))
        for classifier in CLASSIFIERS.values()
    ]
    named = zip(CLASSIFIERS, learned, strict=True)
    tables = Tables.of(train.iloc[:COMPARED], made, schema)
    accuracies = [Score(name, found.accuracy, "max") for name, found in named]
    return [*accuracies, *marginals(tables)[0], correlation_matrix_distance(tables)]


def file_of(row):
    """The TOML file of a row."""
    return Path(row) if row.endswith(".toml") else HERE / f"{row}.toml"


def trial(row, number, kept, device):
    """One training and the means of its tables' scores: from the file that it left, if it has run before."""
    file = kept / f"{file_of(row).stem}.{number}.json"
    if file.exists():
        return json.loads(file.read_text())
    torch.set_num_threads(1)
    experiment = Experiment.load(file_of(row)).changed({}, device, None)
    train, test, schema = DATA[experiment.data]()
    if experiment.train_rows:
        train = train.iloc[: experiment.train_rows]
    made, settings, privacy, seconds = trained(experiment, experiment.each[number], train, schema)
    scores = across_runs([scored(train, table, test, schema, place) for place, table in enumerate(made)])
    found = {
        "scores": [score.to_dict() for score in scores],
        "settings": settings,
        "privacy": privacy,
        "seconds": seconds,
        "rows": [len(train), len(test)],
        "machine": machine(device),
    }
    with replacing(file) as temporary:
        temporary.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")
    return found


def result(row, trials):
    """The row's file."""
    experiment = Experiment.load(file_of(row))
    found = [[Score.from_dict(score) for score in each["scores"]] for each in trials]
    return {
        "row": experiment.row,
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
        "sets": min(len(each["scores"][0]["detail"]["runs"]) for each in trials),
        "scores": [score.to_dict() for score in across_runs(found, experiment.seeds)],
        "privacy": trials[0]["privacy"],
        "claim": experiment.claim,
        "deviations": list(experiment.deviations),
        "machine": trials[0]["machine"],
        "seconds_training": [round(each["seconds"], 1) for each in trials],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=99)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the trainings to do, from 0")
    parser.add_argument("--trials", type=Path, default=HERE / "trials")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--device", default="cpu", help="for training; classifiers are trained on the processor"
    )
    given = parser.parse_args()
    rows = given.rows or [path.stem for path in sorted(HERE.glob("*.toml"))]
    given.trials.mkdir(parents=True, exist_ok=True)
    each = {row: min(given.runs, len(Experiment.load(file_of(row)).each)) for row in rows}
    order = [
        (number, place)
        for number in (range(max(each.values())) if given.only is None else given.only)
        for place, row in enumerate(rows)
        if number < each[row]
    ]
    with ProcessPoolExecutor(given.jobs) as pool:  # every row once before any row twice
        waiting = [
            (rows[place], pool.submit(trial, rows[place], number, given.trials, given.device))
            for number, place in order
        ]
        done = {}
        for row, future in waiting:
            done.setdefault(row, []).append(future.result())
            out = given.out or file_of(row).parent / "results"
            out.mkdir(parents=True, exist_ok=True)
            with replacing(out / f"{file_of(row).stem}.json") as temporary:
                temporary.write_text(json.dumps(result(row, done[row]), indent=1, allow_nan=False) + "\n")
            last = done[row][-1]
            print(row, len(done[row]), last["scores"][0]["value"], round(last["seconds"]), flush=True)


if __name__ == "__main__":
    main()
