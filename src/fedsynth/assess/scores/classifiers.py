"""Classifiers by name, and how rows of a table are encoded for them: by the public schema, nothing is fitted.

The further ones are those of the thesis on federated VAEs, section 4.5 (its XGBoost is scikit-learn's gradient
boosting here), and its student network for the Epilepsy data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from fedsynth.data.encode import TableEncoding
from fedsynth.data.schema import Schema
from fedsynth.data.values import read_values
from fedsynth.errors import BadInput, nearest

_LARGEST_CATEGORIES = 255  # that gradient boosting keeps apart; columns with more are split by their order
_FEWEST_FOR_STOPPING = 10  # rows of the rarest class without which a validation split cannot be drawn


@dataclass(frozen=True)
class Task:
    """Rows as a classifier takes them: features [rows, width], classes [rows]."""

    features: np.ndarray
    classes: np.ndarray


@dataclass(frozen=True)
class Classifier:
    """A classifier by name: how rows are encoded for it, and how it is made for a schema, rows and a seed."""

    encode: Callable[[pd.DataFrame, Schema], Task]
    make: Callable[[Schema, np.ndarray, int], Any]


@contextmanager
def calmly() -> Iterator[None]:
    """One thread and no warnings: threads that wait for one another on a busy machine are many times slower.

    A fixed number of passes, not convergence, is what is compared, so warnings of the latter say nothing.
    """
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def as_codes(frame: pd.DataFrame, schema: Schema) -> Task:
    """One number a column, for trees: values or places of categories, NaN where missing."""
    read = [read_values(column, frame[column.name]) for column in schema.feature_columns]
    return Task(np.stack([values.numbers for values in read], axis=1), _classes(frame, schema))


def as_positions(frame: pd.DataFrame, schema: Schema) -> Task:
    """Zeros and ones for categories and missing values, a position in [0, 1] for what is ordered.

    The bins of ordered columns are left out, except the one that says that the value is missing.
    """
    encoding = TableEncoding(schema)
    x, y = encoding.encode(frame[list(schema.names)])
    kept: list[int] = []
    for block in encoding.blocks:
        entries = range(block.start, block.start + block.size)
        kept += [block.place, *entries[block.bins :]] if block.ordered else entries
    return Task(x.numpy()[:, kept].astype(np.float64), y.numpy())


def _classes(frame: pd.DataFrame, schema: Schema) -> np.ndarray:
    label = schema.label_column
    assert label is not None
    return (read_values(label, frame[label.name]).numbers - (label.min or 0)).astype(np.int64)


def _logistic_regression(schema: Schema, classes: np.ndarray, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=300, random_state=seed)


def _random_forest(schema: Schema, classes: np.ndarray, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(100, min_samples_leaf=2, random_state=seed)


def _gradient_boosting(schema: Schema, classes: np.ndarray, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    named = [not c.ordered and len(c.labels) <= _LARGEST_CATEGORIES for c in schema.feature_columns]
    rarest = np.unique(classes, return_counts=True)[1].min()
    stopping = "auto" if rarest >= _FEWEST_FOR_STOPPING else False
    return HistGradientBoostingClassifier(
        categorical_features=named, early_stopping=stopping, random_state=seed
    )


def _mlp(schema: Schema, classes: np.ndarray, seed: int) -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier((64,), batch_size=min(256, len(classes)), max_iter=20, random_state=seed)


CLASSIFIERS: dict[str, Classifier] = {
    "logistic regression": Classifier(as_positions, _logistic_regression),
    "random forest": Classifier(as_codes, _random_forest),
    "gradient boosting": Classifier(as_codes, _gradient_boosting),
    "mlp": Classifier(as_positions, _mlp),
}


def _plain(
    make: Callable[[int], Any], encode: Callable[[pd.DataFrame, Schema], Task] = as_positions
) -> Classifier:
    """A classifier that needs to know neither the schema nor the classes."""
    return Classifier(encode, lambda schema, classes, seed: make(seed))


def _decision_tree(seed: int) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(min_samples_leaf=5, random_state=seed)


def _nearest_neighbors(seed: int) -> Any:
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(15)


def _linear_svc(seed: int) -> Any:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import LinearSVC

    return CalibratedClassifierCV(LinearSVC(random_state=seed), cv=2)


def _svc(seed: int) -> Any:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import SVC

    return CalibratedClassifierCV(SVC(random_state=seed), cv=2)


def _ada_boost(seed: int) -> Any:
    from sklearn.ensemble import AdaBoostClassifier

    return AdaBoostClassifier(random_state=seed)


def _naive_bayes(seed: int) -> Any:
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB()


def _linear_discriminant(seed: int) -> Any:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    return LinearDiscriminantAnalysis()


def _quadratic_discriminant(seed: int) -> Any:
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

    # scikit-learn refuses classes whose columns are dependent, as zeros and ones are, without shrinkage
    return QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.1)


def _student(seed: int) -> Any:
    from fedsynth.assess.scores.student import StudentNetwork

    return StudentNetwork(seed)


FURTHER: dict[str, Classifier] = {
    "decision tree": _plain(_decision_tree, as_positions),
    "nearest neighbors": _plain(_nearest_neighbors),
    "linear svc": _plain(_linear_svc),
    "svc": _plain(_svc),
    "ada boost": _plain(_ada_boost),
    "naive bayes": _plain(_naive_bayes),
    "linear discriminant analysis": _plain(_linear_discriminant),
    "quadratic discriminant analysis": _plain(_quadratic_discriminant),
    "student network": _plain(_student),
}
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
