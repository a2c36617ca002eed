"""A measured row of a table: a recipe on a public data set, run several times, scored, with its setting beside it.

An experiment is a TOML file: what to run (the keys of `fedsynth run --config` under [run]), on which data set, how
often, and what a paper claims for it. A baseline stands under [baseline], with its name as `system`, in place of a
recipe. The result is a JSON file from which tables are generated.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedsynth.assess.scores.classifiers import KNOWN
from fedsynth.assess.scores.fidelity import column_pairs, column_shapes, missing_values
from fedsynth.assess.scores.image_utility import IMAGE_CLASSIFIERS
from fedsynth.assess.scores.score import Score, failure
from fedsynth.assess.scores.tables import Tables
from fedsynth.assess.scores.utility import ALL_MEASURES, baseline, utility
from fedsynth.data.clients import RawClients, clients_from
from fedsynth.data.configuration import Key, build, check, keys_of, read_file
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest
from fedsynth.recipes.registry import recipe_named
from fedsynth.research.across_runs import across_runs
from fedsynth.research.baselines.registry import Baseline as System
from fedsynth.research.baselines.registry import baseline_named
from fedsynth.research.experiment_data import DATA
from fedsynth.research.experiment_fit import Fit, FitBaseline, fit_recipe
from fedsynth.research.image_experiment import IMAGE_DATA, ImageJudge
from fedsynth.rng import Rng
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.training import Watch


@dataclass(frozen=True)
class Experiment:
    """One row: `seeds` for simulations that can be repeated, or a number of `runs` without a seed."""

    row: str
    data: str
    request: Request
    title: str = ""
    order: int = 0
    seeds: tuple[int, ...] = ()
    runs: int = 0
    sets: int = 1  # synthetic tables drawn from each training
    faithful: bool = True  # compare columns with the real ones too, which takes long where there are many
    train_rows: int | None = None
    classifiers: tuple[str, ...] = ("gradient boosting",)
    passes: int = 6  # of a network that learns from images
    lenet: str = ""  # weights of a LeNet, a path from the TOML file: images are compared in its features
    layout: str = ""  # how tables show the row; "claims": one measure beside what a paper claims
    measure: str = ""
    claim: str = ""
    deviations: tuple[str, ...] = ()
    baseline: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = [*DATA, *IMAGE_DATA]
        if self.data not in known:
            raise BadInput(f"{self.row}: data={self.data!r}: unknown; {nearest(self.data, known)}")
        if bool(self.seeds) == bool(self.runs):
            raise BadInput(
                f"{self.row}: give seeds = [1, 2, 3], or runs = 3 for runs without a seed; not both"
            )
        if self.sets < 1:
            raise BadInput(f"{self.row}: sets={self.sets}: at least one synthetic table is needed")
        if self.passes < 1:
            raise BadInput(f"{self.row}: passes={self.passes}: a classifier sees its images at least once")
        judges = IMAGE_CLASSIFIERS if self.data in IMAGE_DATA else tuple(KNOWN)
        wrong = [name for name in self.classifiers if name not in judges]
        if wrong:  # told before hours of training, not after
            raise BadInput(f"{self.row}: classifier {wrong[0]!r}: unknown; {nearest(wrong[0], judges)}")
        if self.baseline:
            self.other()
        else:
            recipe_named(self.request.recipe).values(self.request.arguments)

    @property
    def system(self) -> str:
        """The name of what runs."""
        return self.baseline.get("system", self.request.recipe)

    def other(self) -> System:
        """The baseline that runs instead of a recipe."""
        return baseline_named(self.system, {k: v for k, v in self.baseline.items() if k != "system"})

    @property
    def fit(self) -> Fit:
        """How a training is done: the recipe's, or the baseline's."""
        return FitBaseline(self.other(), self.baseline) if self.baseline else fit_recipe

    @property
    def each(self) -> tuple[int | None, ...]:
        """The seed of every run, None without."""
        return self.seeds or (None,) * self.runs

    @classmethod
    def load(cls, path: Path) -> Experiment:
        """Read the TOML file; the row is called like the file."""
        keys = read_file(path)
        known = {name: key for name, key in keys_of(cls).items() if name not in ("row", "request")}
        check(keys, {**known, "run": Key(Mapping[str, Any], needed=True)}, path)
        request = Request.from_toml({"recipe": "dpd_fvae", **keys.pop("run")})
        row = build(cls, keys, row=path.stem, request=request)
        return replace(row, lenet=str(path.parent / row.lenet)) if row.lenet else row

    def changed(self, arguments: Mapping[str, Any], device: str | None, runs: int | None) -> Experiment:
        """The experiment with what the command line gives: for a smoke test, or another device."""
        request = self.request.changed(arguments=dict(arguments), device=device)
        if runs is None:
            return replace(self, request=request)
        return replace(self, request=request, seeds=self.seeds[:runs], runs=min(self.runs, runs))


@dataclass
class _Trial:
    """One finished run."""

    scores: list[Score]
    settings: dict[str, Any]
    privacy: dict[str, Any]
    seconds: float
    shown: np.ndarray | None = None  # the first synthetic images of each class


def run_experiment(experiment: Experiment, watch: Callable[[int], Watch] | None = None) -> dict[str, Any]:
    """Run, score and describe; `watch` makes the observer of each run."""
    began = time.perf_counter()
    make = _image_trials if experiment.data in IMAGE_DATA else _table_trials
    trials, rows, test_rows = make(experiment, watch)
    return {
        "row": experiment.row,
        "title": experiment.title or experiment.row,
        "order": experiment.order,
        "layout": experiment.layout,
        "measure": experiment.measure,
        "recipe": experiment.system,
        "data": {"name": experiment.data, "train_rows": rows, "test_rows": test_rows},
        "clients": {"count": experiment.request.clients, "split": experiment.request.split},
        "settings": trials[0].settings,
        "seeds": list(experiment.seeds),
        "runs": len(trials),
        "sets": experiment.sets,
        "scores": [score.to_dict() for score in across_runs([t.scores for t in trials], experiment.seeds)],
        "privacy": _worst([trial.privacy for trial in trials]),
        "claim": experiment.claim,
        "deviations": list(experiment.deviations),
        "machine": machine(experiment.request.device),
        "seconds_training": [round(trial.seconds, 1) for trial in trials],
        "seconds": round(time.perf_counter() - began, 1),
        **({} if trials[0].shown is None else {"shown": trials[0].shown}),
    }


Watches = Callable[[int], Watch] | None


def _table_trials(experiment: Experiment, watch: Watches) -> tuple[list[_Trial], int, int]:
    """The finished runs on a table, and how many rows they were trained and tested on."""
    train, test, schema = DATA[experiment.data]()
    if experiment.train_rows:
        train = train.iloc[: experiment.train_rows]
    real = train.drop(columns=schema.client) if schema.client else train
    judge = _Judge(experiment, real, test, schema)
    trials = [
        judge.trial(replace(experiment.request, seed=seed), train, watch(number) if watch else None)
        for number, seed in enumerate(experiment.each)
    ]
    return trials, len(train), len(test)


def _image_trials(experiment: Experiment, watch: Watches) -> tuple[list[_Trial], int, int]:
    """The finished runs on images, and how many they were trained and tested on."""
    judge = ImageJudge(
        experiment.data,
        experiment.classifiers,
        experiment.sets,
        experiment.train_rows,
        experiment.passes,
        Path(experiment.lenet) if experiment.lenet else None,
        experiment.request.device,
    )
    trained = [
        judge.trial(replace(experiment.request, seed=seed), watch(number) if watch else None, experiment.fit)
        for number, seed in enumerate(experiment.each)
    ]
    trials = [
        _Trial(scores, each.fitted.settings, each.fitted.privacy, each.seconds, judge.shown(each))
        for each, scores in zip(trained, judge.scores(trained), strict=True)
    ]
    return trials, judge.rows, judge.test_rows


class _Judge:
    """Trains what an experiment asks for and scores the tables that come out."""

    def __init__(
        self, experiment: Experiment, real: pd.DataFrame, test: pd.DataFrame, schema: Schema
    ) -> None:
        self._experiment, self._real, self._test, self._schema = experiment, real, test, schema
        self._beside = baseline(real, test, schema, classifiers=experiment.classifiers)

    def trial(self, request: Request, train: pd.DataFrame, watch: Watch | None) -> _Trial:
        """One training, and the mean of the scores of its tables."""
        began = time.perf_counter()
        clients = self._clients(request, train)
        fitted = self._experiment.fit(request, clients, self._schema, watch)
        seconds = time.perf_counter() - began
        tables = [self._draw(fitted.draw, request, number) for number in range(self._experiment.sets)]
        learned = [self._learned(table, number) for number, table in enumerate(tables)]
        useful = learned[0] if len(learned) == 1 else across_runs(learned)
        alike = _fidelity(self._real, tables[0], self._schema) if self._experiment.faithful else []
        scores = [*useful, *alike]
        return _Trial(scores, fitted.settings, fitted.privacy, seconds)

    def _draw(self, draw: Callable[..., Any], request: Request, number: int) -> pd.DataFrame:
        """One of the tables of a training; each has a seed of its own."""
        return draw(len(self._real), None if request.seed is None else request.seed + 1000 * number)

    def _learned(self, table: pd.DataFrame, number: int) -> list[Score]:
        """Score the classifiers trained on a table; where there are several tables, each has classifiers of its own."""
        beside = replace(self._beside, seeds=(number,)) if self._experiment.sets > 1 else self._beside
        return utility(table, self._test, self._schema, beside, ALL_MEASURES)

    def _clients(self, request: Request, train: pd.DataFrame) -> RawClients:
        schema = self._schema
        column = request.client_column or (schema.client if request.clients is None else None)
        rows = train.drop(columns=schema.client) if schema.client and column is None else train
        rng = Rng(request.seed).at("split")
        return clients_from(
            rows,
            client_column=column,
            clients=request.clients,
            split=request.split,
            label=schema.label,
            rng=rng,
        )


def _worst(costs: list[dict[str, Any]]) -> dict[str, Any]:
    """The cost of the run that spent most."""
    spent = [cost["epsilon"] for cost in costs if cost["epsilon"] is not None]
    return {**costs[0], "epsilon": max(spent, default=None)}


def machine(device: str) -> dict[str, Any]:
    """Describe the machine that times are measured on: the processor and the versions that matter, no names."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _fidelity(real: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema) -> list[Score]:
    """Return column shapes, column pairs and missing values, or three failures where a table does not fit."""
    try:
        tables = Tables.of(real, synthetic, schema)
    except BadInput as error:
        return [failure(name, str(error)) for name in ("column shapes", "column pairs", "missing values")]
    return [column_shapes(tables), column_pairs(tables), missing_values(tables)]
