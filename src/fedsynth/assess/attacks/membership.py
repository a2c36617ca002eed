"""Membership inference with shadow generators, after Stadler, Oprisanu and Troncoso (2020).

The attacker knows the recipe and has rows of the population. They train many generators, each on other rows and with
each target in or out by the toss of a coin, look at the synthetic tables, and learn to tell the two apart for each
target (DP-Fed-WAE, Jiang et al. 2022, section 4.3, does the same). Several attackers try; the one that does best
on runs set aside for the choice is judged on runs that nobody has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.assess.attacks.attack import area, attack_failures, attack_scores
from fedsynth.assess.attacks.attribute import read_codes
from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.assess.attacks.distance import as_points, nearest_distances
from fedsynth.assess.scores.score import Score
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

NAME = "membership inference"
# Trains a generator on each table and draws `rows` synthetic rows from each: Shadows, or any generator.
Make = Callable[[Sequence[pd.DataFrame], int, Rng], list[pd.DataFrame]]
_NEIGHBORS = (1, 3, 10)
_LEAST_RUNS = 16
_TREES = 25


@dataclass(frozen=True)
class MembershipGame:
    """Many runs: which targets were in which [runs, targets], and what their synthetic tables look like.

    `tables` are features of a whole table by name, [runs, features]; `near` is how near a table comes to each
    target, [runs, targets, features].
    """

    inside: np.ndarray
    tables: Mapping[str, np.ndarray]
    near: np.ndarray

    @property
    def parts(self) -> tuple[slice, slice, slice]:
        """The runs to learn from, to choose the attacker on, and to judge it on."""
        runs = len(self.inside)
        return slice(0, runs // 2), slice(runs // 2, 3 * runs // 4), slice(3 * runs // 4, runs)


def membership_attack(
    population: pd.DataFrame,
    schema: Schema,
    make: Make,
    *,
    runs: int = 100,
    size: int = 1000,
    rows: int | None = None,
    targets: int = 20,
    ceiling: Ceiling | None = None,
    seed: int = 0,
) -> list[Score]:
    """Play the game on `runs` shadow generators of `size` rows and `targets` rows of the population.

    Half of the targets are the rows that lie farthest from all others, which are the easiest to recognise. `rows`
    synthetic rows are drawn from each generator (default: `size`). The detail has every attacker's area on the
    runs for the choice, and how often the chosen one is right when it must say in or out.
    """
    try:
        game = play(population, schema, make, runs, size, rows or size, targets, Rng(seed))
    except BadInput as error:
        return attack_failures(NAME, str(error))
    guesses = {**_table_attackers(game, seed), "nearness of the target": _nearness_attacker(game)}
    _, choose, judge = game.parts
    areas = {name: _area(guess[choose], game.inside[choose]) for name, guess in guesses.items()}
    best = max(areas, key=lambda name: areas[name])
    answers, inside = guesses[best][judge], game.inside[judge]
    detail: dict[str, Any] = {
        "attacker": best,
        "attackers": areas,
        "accuracy": float(((answers > 0.5) == inside).mean()),
        "runs": runs,
        "targets": targets,
        "size": size,
    }
    return attack_scores(NAME, answers[inside], answers[~inside], ceiling, detail)


def play(
    population: pd.DataFrame,
    schema: Schema,
    make: Make,
    runs: int,
    size: int,
    rows: int,
    targets: int,
    rng: Rng,
) -> MembershipGame:
    """Draw the tables, train on them, and look at what comes out."""
    if runs < _LEAST_RUNS or targets < 2:
        raise BadInput(f"runs={runs}, targets={targets}: expected at least {_LEAST_RUNS} runs and 2 targets")
    if len(population) < size + targets:
        raise BadInput(
            f"{len(population)} rows: {size} a run and {targets} targets need at least {size + targets}"
        )
    chosen = choose_targets(population, schema, targets, rng.at("targets"))
    others = np.setdiff1d(np.arange(len(population)), chosen)
    inside = rng.at("coins").uniforms(runs * targets).reshape(runs, targets) > 0.5
    tables = []
    for run in range(runs):
        drawn = rng.at("rows", run).numpy().permutation(others)[:size]
        tables.append(population.iloc[np.concatenate([drawn, chosen[inside[run]]])])
    synthetic = make(tables, rows, rng.at("make"))
    points = as_points(population.iloc[chosen], schema)
    near = [
        nearest_distances(points, as_points(table, schema), max(_NEIGHBORS)).numpy() for table in synthetic
    ]
    places = [count - 1 for count in _NEIGHBORS if count <= near[0].shape[1]]
    described = [describe(table, schema) for table in synthetic]
    features = {name: np.stack([each[name] for each in described]) for name in described[0]}
    return MembershipGame(inside, features, np.stack([np.log(each[:, places] + 1e-3) for each in near]))


def choose_targets(population: pd.DataFrame, schema: Schema, count: int, rng: Rng) -> np.ndarray:
    """Half of them the rows farthest from their nearest neighbor, the others at random."""
    order = rng.numpy().permutation(len(population))[:5000]
    points = as_points(population.iloc[order], schema)
    alone = nearest_distances(points, points, 2)[:, -1].numpy()
    ranked = order[np.argsort(-alone, kind="stable")]
    far = ranked[: count // 2]
    return np.concatenate(
        [far, rng.at("random").numpy().permutation(ranked[count // 2 :])[: count - len(far)]]
    )


def describe(table: pd.DataFrame, schema: Schema) -> dict[str, np.ndarray]:
    """The features of Stadler et al.: naive (mean, median, spread of columns), histogram, correlations."""
    x, y = Table(schema).encode(table[list(schema.names)])
    codes = read_codes(table, schema)
    absent = np.isnan(codes)
    means = np.where(absent, 0.0, codes).sum(0) / np.maximum(1, (~absent).sum(0))
    filled = np.where(absent, means, codes)
    centered = filled - means
    spread = np.sqrt((centered**2).mean(0))
    scaled = centered / np.where(spread > 0, spread, 1.0)
    pairs = np.triu_indices(codes.shape[1], 1)
    classes = np.bincount(y.numpy(), minlength=max(1, len(schema.classes))) / len(table)
    return {
        "naive": np.concatenate([means, np.median(filled, axis=0), spread]),
        "histogram": np.concatenate([x.double().mean(0).numpy(), classes]),
        "correlation": (scaled.T @ scaled / len(table))[pairs],
    }


def _table_attackers(game: MembershipGame, seed: int) -> dict[str, np.ndarray]:
    """Each kind of features with each kind of classifier, one for each target: chances of being in [runs, targets]."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    learn = game.parts[0]
    guesses: dict[str, np.ndarray] = {}
    for kind, features in game.tables.items():
        makers = {
            "logistic regression": lambda: make_pipeline(
                StandardScaler(), LogisticRegression(C=0.1, max_iter=500)
            ),
            "random forest": lambda: RandomForestClassifier(_TREES, random_state=seed),
        }
        for classifier, make in makers.items():
            chances = np.full(game.inside.shape, 0.5)
            for target in range(game.inside.shape[1]):
                truth = game.inside[learn, target]
                if truth.any() and not truth.all():
                    chances[:, target] = make().fit(features[learn], truth).predict_proba(features)[:, 1]
            guesses[f"{kind}, {classifier}"] = chances
    return guesses


def _nearness_attacker(game: MembershipGame) -> np.ndarray:
    """One logistic regression for all targets on how near, for this target, the synthetic rows come."""
    from sklearn.linear_model import LogisticRegression

    learn = game.parts[0]
    usual, spread = game.near[learn].mean(0), game.near[learn].std(0)
    scaled = (game.near - usual) / np.where(spread > 1e-9, spread, 1.0)
    truth = game.inside[learn].ravel()
    if truth.all() or not truth.any():
        return np.full(game.inside.shape, 0.5)
    flat = scaled.reshape(-1, scaled.shape[-1])
    model = LogisticRegression().fit(scaled[learn].reshape(-1, scaled.shape[-1]), truth)
    return np.asarray(model.predict_proba(flat)[:, 1].reshape(game.inside.shape))


def _area(chances: np.ndarray, inside: np.ndarray) -> float:
    if inside.all() or not inside.any():
        return 0.5
    return area(chances[inside], chances[~inside])
