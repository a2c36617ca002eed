"""Can a classifier tell real from synthetic rows? The area under its ROC curve: 0.5 it cannot, 1 it always can."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedsynth.assess.scores.classifiers import calmly, sklearn
from fedsynth.assess.scores.score import Score, failure
from fedsynth.assess.scores.tables import Tables
from fedsynth.data.column import Column
from fedsynth.data.encode import positions
from fedsynth.rng import Rng

FOLDS = 3
ROWS = 20_000  # of each table at default depth
_FEWEST = 10  # rows of each table without which folds mean nothing
_BLAMED_ROWS = 2_000  # that columns are shuffled in, to see which give synthetic rows away
_LEAST_LOSS = 0.005  # of the area, below which no column is blamed
_LARGEST_ONE_HOT = 100  # categories of a column that logistic regression sees apart


def detection_name(classifier: str) -> str:
    """The name of the score.

    >>> detection_name("gradient boosting")
    'detection by gradient boosting: AUC'
    """
    return f"detection by {classifier}: AUC"


def detection(tables: Tables, *, rows: int = ROWS, seed: int = 0) -> list[Score]:
    """A score for each classifier, over three folds, on equally many real and synthetic rows.

    Less than one half counts as one half: it happens when synthetic rows are copies of real ones. All columns
    take part, the label as well, and values that do not fit the schema as missing. The detail of gradient boosting
    has `blamed`: the columns without which it would know less.
    """
    return [_detected(name, tables, rows, seed) for name in DETECTORS]


def _detected(name: str, tables: Tables, rows: int, seed: int) -> Score:
    count = min(*tables.rows, rows)
    detail: dict[str, Any] = {"rows_of_each": count, "folds": FOLDS, "spread_of": "folds"}
    bounds: tuple[float, float] = (0.5, 1.0)
    if count < _FEWEST:
        reason = (
            f"{tables.rows[0]} real and {tables.rows[1]} synthetic rows; expected at least {_FEWEST} of each"
        )
        return failure(detection_name(name), reason, (seed,), goal="min", range=bounds, detail=detail)
    drawn = tables.sampled(count, seed)
    encode, place, settings = DETECTORS[name]
    features = np.concatenate([encode(drawn.columns, drawn.real), encode(drawn.columns, drawn.synthetic)])
    features[:, np.isnan(features).all(axis=0)] = 0.0  # trees refuse a column that has no value to split at
    names = [column.name for column in drawn.columns] if encode is as_numbers else []
    areas, blamed = _areas(
        features, np.repeat([0, 1], count), lambda: sklearn(place, random_state=seed, **settings), seed, names
    )
    detail["auc"] = float(np.mean(areas))
    if names:
        detail["blamed"] = blamed
    spread = float(np.std(areas, ddof=1))
    return Score(detection_name(name), max(0.5, detail["auc"]), "min", bounds, spread, (seed,), detail)


def _areas(
    features: np.ndarray, origin: np.ndarray, make: Callable[[], Any], seed: int, names: Sequence[str]
) -> tuple[list[float], dict[str, float]]:
    """The area of each fold, and of the columns `names` how much area the last fold loses without each of them."""
    from sklearn.metrics import roc_auc_score

    fold = np.concatenate(
        [Rng(seed).at("folds", side).numpy().permutation(len(origin) // 2) % FOLDS for side in (0, 1)]
    )
    areas = []
    for tested in range(FOLDS):
        with calmly():
            model = make().fit(features[fold != tested], origin[fold != tested])
            chances = model.predict_proba(features[fold == tested])[:, 1]
        areas.append(float(roc_auc_score(origin[fold == tested], chances)))
    chosen_rows = np.flatnonzero(fold == FOLDS - 1)
    chosen_rows = chosen_rows[Rng(seed).at("blamed").numpy().permutation(len(chosen_rows))[:_BLAMED_ROWS]]
    return areas, _blamed(model, features[chosen_rows], origin[chosen_rows], names, seed)


def _blamed(
    model: Any, features: np.ndarray, origin: np.ndarray, names: Sequence[str], seed: int
) -> dict[str, float]:
    """How much area is lost if a column's values are shuffled, by column, most first; small losses are left out."""
    from sklearn.metrics import roc_auc_score

    if len(np.unique(origin)) < 2 or not names:
        return {}
    whole = float(roc_auc_score(origin, model.predict_proba(features)[:, 1]))
    losses = {}
    for place, name in enumerate(names):
        shuffled = features.copy()
        shuffled[:, place] = Rng(seed).at("shuffled", place).numpy().permutation(features[:, place])
        losses[name] = whole - float(roc_auc_score(origin, model.predict_proba(shuffled)[:, 1]))
    ordered = sorted(losses.items(), key=lambda item: -item[1])
    return {name: loss for name, loss in ordered if loss >= _LEAST_LOSS}


def as_numbers(columns: tuple[Column, ...], table: Mapping[str, np.ndarray]) -> np.ndarray:
    """One number per column, NaN where missing."""
    return np.stack([table[column.name] for column in columns], axis=1)


def as_features(columns: tuple[Column, ...], table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Positions of ordered columns with their square, zeros and ones for categories and for missing values."""
    parts: list[np.ndarray] = []
    for column in columns:
        numbers = table[column.name]
        missing = np.isnan(numbers)
        parts.append(missing[:, None])
        if column.ordered:
            at = np.where(missing, 0.5, positions(column, np.where(missing, column.lowest, numbers))) - 0.5
            parts += [at[:, None], at[:, None] ** 2]
        else:
            places = np.where(missing, -1, numbers)[:, None]
            parts.append(places == np.arange(min(len(column.labels), _LARGEST_ONE_HOT)))
    return np.concatenate(parts, axis=1).astype(np.float64)


Encode = Callable[[tuple[Column, ...], Mapping[str, np.ndarray]], np.ndarray]
DETECTORS: dict[str, tuple[Encode, str, dict[str, Any]]] = {
    "logistic regression": (as_features, "linear_model:LogisticRegression", {"max_iter": 200}),
    "gradient boosting": (as_numbers, "ensemble:HistGradientBoostingClassifier", {}),
}
