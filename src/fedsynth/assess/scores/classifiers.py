"""Classifiers by name, and how rows of a table are encoded for them: by the public schema, nothing is fitted.

The further ones are those of the thesis on federated VAEs, section 4.5 (its XGBoost is scikit-learn's gradient
boosting here), and its student network for the Epilepsy data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.data.values import read_values
from fedsynth.errors import BadInput, nearest

_LARGEST_CATEGORIES = 255  # that gradient boosting keeps apart; columns with more are split by their order
_FEWEST_FOR_STOPPING = 10  # rows of the rarest class without which a validation split cannot be drawn


@dataclass(frozen=True)
class ClassifierTask:
    """Rows as a classifier takes them: features [rows, width], classes [rows]."""

    features: np.ndarray
    classes: np.ndarray


@dataclass(frozen=True)
class Classifier:
    """A classifier by name: how rows are encoded for it, and how it is made for a schema, rows and a seed."""

    encode: Callable[[pd.DataFrame, Schema], ClassifierTask]
    make: Callable[[Schema, np.ndarray, int], Any]


@contextmanager
def calmly() -> Iterator[None]:
    """One thread and no warnings: threads that wait for one another on a busy machine are many times slower.

    A fixed number of passes, not convergence, is what is compared, so warnings of the latter say nothing.
    """
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def as_codes(frame: pd.DataFrame, schema: Schema) -> ClassifierTask:
    """One number a column, for trees: values or places of categories, NaN where missing."""
    read = [read_values(column, frame[column.name]) for column in schema.feature_columns]
    return ClassifierTask(np.stack([values.numbers for values in read], axis=1), _classes(frame, schema))


def as_positions(frame: pd.DataFrame, schema: Schema) -> ClassifierTask:
    """Zeros and ones for categories and missing values, a position in [0, 1] for what is ordered.

    The bins of ordered columns are left out, except the one that says that the value is missing.
    """
    encoding = Table(schema)
    x, y = encoding.encode(frame[list(schema.names)])
    kept: list[int] = []
    for block in encoding.blocks:
        entries = range(block.start, block.start + block.size)
        kept += [block.place, *entries[block.bins :]] if block.ordered else entries
    return ClassifierTask(x.numpy()[:, kept].astype(np.float64), y.numpy())


def _classes(frame: pd.DataFrame, schema: Schema) -> np.ndarray:
    label = schema.label_column
    assert label is not None
    return (read_values(label, frame[label.name]).numbers - label.lowest).astype(np.int64)


def sklearn(place: str, *arguments: Any, **settings: Any) -> Any:
    """Make an estimator by its module and name in scikit-learn, which is imported when one is needed."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"sklearn.{module}"), name)(*arguments, **settings)


def plain(
    encode: Callable[[pd.DataFrame, Schema], ClassifierTask],
    place: str,
    *arguments: Any,
    seeded: bool = True,
    **settings: Any,
) -> Classifier:
    """Return a classifier of scikit-learn that needs to know neither the schema nor the classes."""

    def make(schema: Schema, classes: np.ndarray, seed: int) -> Any:
        return sklearn(place, *arguments, **settings, **({"random_state": seed} if seeded else {}))

    return Classifier(encode, make)


def _calibrated(name: str) -> Classifier:
    def make(schema: Schema, classes: np.ndarray, seed: int) -> Any:
        return sklearn("calibration:CalibratedClassifierCV", sklearn(f"svm:{name}", random_state=seed), cv=2)

    return Classifier(as_positions, make)


def _gradient_boosting(schema: Schema, classes: np.ndarray, seed: int) -> Any:
    named = [not c.ordered and len(c.labels) <= _LARGEST_CATEGORIES for c in schema.feature_columns]
    rarest = np.unique(classes, return_counts=True)[1].min()
    stopping = "auto" if rarest >= _FEWEST_FOR_STOPPING else False
    settings = {"categorical_features": named, "early_stopping": stopping, "random_state": seed}
    return sklearn("ensemble:HistGradientBoostingClassifier", **settings)


def _mlp(schema: Schema, classes: np.ndarray, seed: int) -> Any:
    settings = {"batch_size": min(256, len(classes)), "max_iter": 20, "random_state": seed}
    return sklearn("neural_network:MLPClassifier", (64,), **settings)


def _student(schema: Schema, classes: np.ndarray, seed: int) -> Any:
    from fedsynth.assess.scores.student import StudentNetwork

    return StudentNetwork(seed)


CLASSIFIERS: dict[str, Classifier] = {
    "logistic regression": plain(as_positions, "linear_model:LogisticRegression", max_iter=300),
    "random forest": plain(as_codes, "ensemble:RandomForestClassifier", 100, min_samples_leaf=2),
    "gradient boosting": Classifier(as_codes, _gradient_boosting),
    "mlp": Classifier(as_positions, _mlp),
}
_DISCRIMINANT = "discriminant_analysis"
FURTHER: dict[str, Classifier] = {
    "decision tree": plain(as_positions, "tree:DecisionTreeClassifier", min_samples_leaf=5),
    "nearest neighbors": plain(as_positions, "neighbors:KNeighborsClassifier", 15, seeded=False),
    "linear svc": _calibrated("LinearSVC"),
    "svc": _calibrated("SVC"),
    "ada boost": plain(as_positions, "ensemble:AdaBoostClassifier"),
    "naive bayes": plain(as_positions, "naive_bayes:GaussianNB", seeded=False),
    "linear discriminant analysis": plain(as_positions, f"{_DISCRIMINANT}:LinearDiscriminantAnalysis", seeded=False),
    "quadratic discriminant analysis": plain(
        # scikit-learn refuses classes whose columns are dependent, as zeros and ones are, without shrinkage
        as_positions, f"{_DISCRIMINANT}:QuadraticDiscriminantAnalysis", seeded=False, solver="eigen", shrinkage=0.1
    ),
    "student network": Classifier(as_positions, _student),
}  # fmt: skip
KNOWN: dict[str, Classifier] = {**CLASSIFIERS, **FURTHER}
ALL = "all"


def chosen_classifiers(names: Sequence[str], usual: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """The classifiers of these names: the usual ones without any, every one for "all".

    >>> chosen_classifiers(["mlp"], ["cnn"], ["cnn", "mlp"]), chosen_classifiers([], ["cnn"], ["cnn", "mlp"])
    (('mlp',), ('cnn',))
    """
    every = tuple(known)
    if not names:
        return tuple(usual)
    if ALL in names:
        return every
    unknown = [name for name in names if name not in every]
    if unknown:
        raise BadInput(f"classifier {unknown[0]!r}: unknown; {nearest(unknown[0], every)}, or {ALL!r}")
    return tuple(names)
