"""Is it useful: train a classifier on synthetic rows, test it on real ones, beside one that was trained on real rows.

Rows are encoded by the public schema, nothing is fitted; missing values stay missing. The test rows must be real
rows that no generator saw. Like every comparison with real rows, the result is internal.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.data.encode import TableEncoding
from fedsynth.data.schema import Schema
from fedsynth.data.values import read_values
from fedsynth.errors import BadInput, nearest
from fedsynth.evaluation.score import Score, failure, over_seeds

MEASURES = ("accuracy", "f1", "auc")
_LARGEST_CATEGORIES = 255  # that gradient boosting keeps apart; columns with more are split by their order
_FEWEST_FOR_STOPPING = 10  # rows of the rarest class without which a validation split cannot be drawn


@dataclass(frozen=True)
class Performance:
    """How well a classifier does on test rows. F1 and AUC are means over the classes that the test rows have."""

    accuracy: float
    f1: float
    auc: float


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


def performance(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, classifier: str, seed: int
) -> Performance:
    """Train on `train`, measure on `test`; refused with the reason if `train` cannot teach anything."""
    if classifier not in CLASSIFIERS:
        raise BadInput(f"classifier {classifier!r}: unknown; {nearest(classifier, CLASSIFIERS)}")
    chosen = CLASSIFIERS[classifier]
    learn, judge = (_task(chosen, frame, schema) for frame in (train, test))
    present = np.unique(learn.classes)
    if len(present) < 2:
        only = schema.classes[int(present[0])]
        raise BadInput(f"the training rows have one class, {only!r}, so nothing can be learned from them")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fixed number of passes, not convergence, is what is compared
        model = chosen.make(schema, learn.classes, seed).fit(learn.features, learn.classes)
    chances = np.zeros((len(judge.classes), len(schema.classes)))
    chances[:, model.classes_] = model.predict_proba(judge.features)
    return _measure(judge.classes, chances)


def majority(train: pd.DataFrame, test: pd.DataFrame, schema: Schema) -> Performance:
    """What always naming the most frequent class of `train` gives: the least that a classifier must beat."""
    classes = len(schema.classes)
    frequent = np.bincount(_checked(train, schema), minlength=classes).argmax()
    judged = _checked(test, schema)
    return _measure(judged, np.tile(np.eye(classes)[frequent], (len(judged), 1)))


@dataclass(frozen=True)
class Baseline:
    """What real training rows give on the test rows: measured once, set beside every synthetic table."""

    majority: Performance
    real: Mapping[str, tuple[Performance, ...]]  # by classifier, one for each seed
    seeds: tuple[int, ...]

    def beside(self, classifier: str, measure: str) -> dict[str, Any]:
        """The detail of a score: train on real (mean and spread), and the majority class."""
        values = [getattr(found, measure) for found in self.real[classifier]]
        return {
            "train_on_real": float(np.mean(values)),
            "train_on_real_spread": float(np.std(values, ddof=1)) if len(values) > 1 else None,
            "majority": getattr(self.majority, measure),
        }


def baseline(
    real: pd.DataFrame,
    test: pd.DataFrame,
    schema: Schema,
    *,
    classifiers: Sequence[str] = tuple(CLASSIFIERS),
    seeds: Sequence[int] = (0, 1, 2),
) -> Baseline:
    """Train every classifier on the real training rows and test it on the held-out real ones."""
    _require_label(schema)
    found = {
        name: tuple(performance(real, test, schema, name, seed) for seed in seeds) for name in classifiers
    }
    return Baseline(majority(real, test, schema), found, tuple(seeds))


def utility(synthetic: pd.DataFrame, test: pd.DataFrame, schema: Schema, beside: Baseline) -> list[Score]:
    """Accuracy, F1 and AUC of each classifier trained on synthetic rows and tested on real ones.

    Each score's detail holds the same for real training rows and for the majority class. The spread is over the
    classifiers' own randomness: logistic regression has none.
    """
    scores: list[Score] = []
    for classifier in beside.real:
        reason, found = None, []
        try:
            found = [asdict(performance(synthetic, test, schema, classifier, seed)) for seed in beside.seeds]
        except BadInput as error:
            reason = str(error)
        for measure in MEASURES:
            name, detail = f"{classifier}: {measure}", beside.beside(classifier, measure)
            if reason is None:
                scores.append(
                    over_seeds(name, [each[measure] for each in found], beside.seeds, detail=detail)
                )
            else:
                scores.append(failure(name, reason, beside.seeds, detail=detail))
    return scores


def _require_label(schema: Schema) -> None:
    if schema.kind != "table" or len(schema.classes) < 2:
        raise BadInput(
            "usefulness is measured by predicting the label; expected a table with a label of 2 classes"
        )


def _checked(frame: pd.DataFrame, schema: Schema) -> np.ndarray:
    """The classes of the rows, after checking that the table fits its schema."""
    return TableEncoding(schema).encode(frame[list(schema.names)])[1].numpy()


def _task(classifier: Classifier, frame: pd.DataFrame, schema: Schema) -> Task:
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise BadInput(f"column {missing[0]!r} is missing; expected the columns of the schema")
    if not len(frame):
        raise BadInput("there are no rows; expected at least one")
    for column in schema.columns:
        if column.name in schema.names:
            problems = read_values(column, frame[column.name]).problems
            if problems:
                raise BadInput(problems[0])
    return classifier.encode(frame, schema)


def _measure(classes: np.ndarray, chances: np.ndarray) -> Performance:
    from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

    guessed = chances.argmax(axis=1)
    present = np.unique(classes)
    if len(present) < 2:
        raise BadInput("the test rows have one class, so nothing can be told apart on them")
    areas = [roc_auc_score(classes == each, chances[:, each]) for each in present]
    return Performance(
        float(accuracy_score(classes, guessed)),
        float(f1_score(classes, guessed, average="macro", labels=present, zero_division=0)),
        float(np.mean(areas)),
    )
