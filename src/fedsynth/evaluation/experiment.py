"""A measured row of a table: a recipe on a public data set, run several times, scored, with its setting beside it.

An experiment is a TOML file: what to run (the keys of `fedsynth run --config` under [run]), on which data set, how
often, and what a paper claims for it. Its result is a JSON file from which tables are generated.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedsynth.data.clients import clients_from
from fedsynth.data.datasets import adult, rand_health
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest
from fedsynth.evaluation.fidelity import fidelity
from fedsynth.evaluation.score import Score, across_runs
from fedsynth.evaluation.utility import Baseline, baseline, utility
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.synthesis.request import Request, read_toml
from fedsynth.synthesis.synthesizer import Synthesizer
from fedsynth.synthesis.training import Watch

TEST_SHARE = 0.2
Tables = tuple[pd.DataFrame, pd.DataFrame, Schema]  # training rows, test rows, schema


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
    train_rows: int | None = None
    classifiers: tuple[str, ...] = ("gradient boosting",)
    claim: str = ""
    deviations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.data not in DATA:
            raise BadInput(f"{self.row}: data={self.data!r}: unknown; {nearest(self.data, DATA)}")
        if bool(self.seeds) == bool(self.runs):
            raise BadInput(
                f"{self.row}: give seeds = [1, 2, 3], or runs = 3 for runs without a seed; not both"
            )
        recipe_named(self.request.recipe).values(self.request.arguments)

    @property
    def each(self) -> tuple[int | None, ...]:
        """The seed of every run, None without."""
        return self.seeds or (None,) * self.runs

    @classmethod
    def load(cls, path: Path) -> Experiment:
        """Read the TOML file; the row is called like the file."""
        keys = read_toml(path)
        known = [item.name for item in fields(cls) if item.name not in ("row", "request")] + ["run"]
        unknown = [f"{name}: no such key; {nearest(name, known)}" for name in keys if name not in known]
        missing = [f"{name}: missing" for name in ("data", "run") if name not in keys]
        if unknown or missing:
            raise BadInput(f"{path}: " + "; ".join(unknown + missing))
        request = Request.from_toml(keys.pop("run"))
        lists = {name: tuple(value) for name, value in keys.items() if isinstance(value, list)}
        return cls(row=path.stem, request=request, **{**keys, **lists})

    def changed(self, arguments: Mapping[str, Any], device: str | None, runs: int | None) -> Experiment:
        """The experiment with what the command line gives: for a smoke test, or another device."""
        request = self.request.changed(arguments=dict(arguments), device=device)
        if runs is None:
            return replace(self, request=request)
        return replace(self, request=request, seeds=self.seeds[:runs], runs=min(self.runs, runs))


def adult_tables() -> Tables:
    """The published training and test split."""
    train, schema = adult("train")
    return train, adult("test")[0], schema


def rand_tables() -> Tables:
    """A fifth of the people held out."""
    frame, schema = rand_health()
    return *hold_out(frame, "person"), schema


DATA: dict[str, Callable[[], Tables]] = {"adult": adult_tables, "rand_health": rand_tables}


def hold_out(
    frame: pd.DataFrame, client: str, clients: int | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and test rows of a table (of `clients` clients, or all); nobody has rows in both."""
    names = Rng(0).at("held out").numpy().permutation(frame[client].unique())[:clients]
    held = set(names[: max(1, round(len(names) * TEST_SHARE))])
    ours = frame[frame[client].isin(set(names))]
    tested = ours[client].isin(held)
    return ours[~tested].reset_index(drop=True), ours[tested].reset_index(drop=True)


@dataclass
class _Trial:
    """One finished run."""

    scores: list[Score]
    synthesizer: Synthesizer
    seconds: float = field(default=0.0)


def run_experiment(experiment: Experiment, watch: Callable[[int], Watch] | None = None) -> dict[str, Any]:
    """Run, score and describe; `watch` makes the observer of each run."""
    began = time.perf_counter()
    train, test, schema = DATA[experiment.data]()
    if experiment.train_rows:
        train = train.iloc[: experiment.train_rows]
    real = train.drop(columns=schema.client) if schema.client else train
    beside = baseline(real, test, schema, classifiers=experiment.classifiers)
    trials = [
        _trial(
            replace(experiment.request, seed=seed),
            train,
            test,
            schema,
            beside,
            watch(number) if watch else None,
        )
        for number, seed in enumerate(experiment.each)
    ]
    return {
        "row": experiment.row,
        "title": experiment.title or experiment.row,
        "order": experiment.order,
        "recipe": experiment.request.recipe,
        "data": {"name": experiment.data, "train_rows": len(train), "test_rows": len(test)},
        "clients": {"count": experiment.request.clients, "split": experiment.request.split},
        "settings": _plain(trials[0].synthesizer.request.arguments),
        "seeds": list(experiment.seeds),
        "runs": len(trials),
        "scores": [score.to_dict() for score in across_runs([t.scores for t in trials], experiment.seeds)],
        "privacy": _privacy([trial.synthesizer for trial in trials]),
        "claim": experiment.claim,
        "deviations": list(experiment.deviations),
        "machine": machine(experiment.request.device),
        "seconds_training": [round(trial.seconds, 1) for trial in trials],
        "seconds": round(time.perf_counter() - began, 1),
    }


def _trial(
    request: Request,
    train: pd.DataFrame,
    test: pd.DataFrame,
    schema: Schema,
    beside: Baseline,
    watch: Watch | None,
) -> _Trial:
    began = time.perf_counter()
    rng = Rng(request.seed).at("split")
    column = request.client_column or (schema.client if request.clients is None else None)
    rows = train.drop(columns=schema.client) if schema.client and column is None else train
    clients = clients_from(
        rows, client_column=column, clients=request.clients, split=request.split, label=schema.label, rng=rng
    )
    synthesizer = Synthesizer.of(request, schema).fit(clients, watch=watch)
    seconds = time.perf_counter() - began
    synthetic = synthesizer.sample(len(train), seed=request.seed)
    assert isinstance(synthetic, pd.DataFrame)
    real = rows.drop(columns=column) if column else rows
    scores = [*utility(synthetic, test, schema, beside), *fidelity(real, synthetic, schema)]
    return _Trial(scores, synthesizer, seconds)


def _privacy(made: list[Synthesizer]) -> dict[str, Any]:
    """What the runs cost, by the accountant: of seeded runs, what they would cost with system noise."""
    statement, request = made[0].privacy, made[0].request
    spent = [run.history[-1]["epsilon"] for run in made if run.history]
    return {
        "private": request.private,
        "unit": statement.unit,
        "adjacency": statement.adjacency,
        "sampling": statement.sampling,
        "epsilon": max(spent) if request.private else None,
        "delta": request.delta,
        "accountant": statement.accountant,
        "simulation": statement.simulation,
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def machine(device: str) -> dict[str, Any]:
    """What a time was measured on: the processor and the versions that matter, no names."""
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
