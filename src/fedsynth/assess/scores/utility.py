"""Is it useful: train a classifier on synthetic rows, test it on real ones, beside one that was trained on real rows.

Rows are encoded by the public schema, nothing is fitted; missing values stay missing. The test rows must be real
rows that no generator saw. Like every comparison with real rows, the result is internal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.assess.scores.classifiers import CLASSIFIERS, KNOWN, Classifier, ClassifierTask, calmly
from fedsynth.assess.scores.score import Score, failure, over_seeds
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.data.values import read_values
from fedsynth.errors import BadInput, nearest

MEASURES = ("accuracy", "f1", "auc")
ALL_MEASURES = (*MEASURES, "rare_f1")


@dataclass(frozen=True)
class Performance:
    """How well a classifier does on test rows. F1 and AUC are means over the classes that the test rows have.

    `rare_f1` is the F1 of the class that the test rows have fewest of: the one that is looked for.
    """

    accuracy: float
    f1: float
    auc: float
    rare_f1: float = 0.0


def performance(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, classifier: str, seed: int
) -> Performance:
    """Train on `train`, measure on `test`; refused with the reason if `train` cannot teach anything."""
    if classifier not in KNOWN:
        raise BadInput(f"classifier {classifier!r}: unknown; {nearest(classifier, KNOWN)}")
    return performance_of(KNOWN[classifier], train, test, schema, seed)


def performance_of(
    chosen: Classifier, train: pd.DataFrame, test: pd.DataFrame, schema: Schema, seed: int
) -> Performance:
    """The same for a classifier that need not be among the named ones."""
    learn, judge = (_task(chosen, frame, schema) for frame in (train, test))
    present = np.unique(learn.classes)
    if len(present) < 2:
        only = schema.classes[int(present[0])]
        raise BadInput(f"the training rows have one class, {only!r}, so nothing can be learned from them")
    empty = np.isnan(learn.features).all(axis=0)  # trees refuse a column that has no value to split at
    learn.features[:, empty] = judge.features[:, empty] = 0.0
    chances = np.zeros((len(judge.classes), len(schema.classes)))
    with calmly():
        model = chosen.make(schema, learn.classes, seed).fit(learn.features, learn.classes)
        chances[:, model.classes_] = model.predict_proba(judge.features)
    return measure(judge.classes, chances)


def majority(train: pd.DataFrame, test: pd.DataFrame, schema: Schema) -> Performance:
    """Performance of always naming the most frequent class of `train`: the least that a classifier must beat."""
    classes = len(schema.classes)
    frequent = np.bincount(_checked(train, schema), minlength=classes).argmax()
    judged = _checked(test, schema)
    return measure(judged, np.tile(np.eye(classes)[frequent], (len(judged), 1)))


@dataclass(frozen=True)
class RealRowsBaseline:
    """Performance of real training rows on the test rows: measured once, set beside every synthetic table."""

    majority: Performance
    real: Mapping[str, tuple[Performance, ...]]  # by classifier, one for each seed
    seeds: tuple[int, ...]

    def beside(self, classifier: str, measure: str) -> dict[str, Any]:
        """The detail of a score: train on real (mean and spread), and the majority class."""
        values = [getattr(result, measure) for result in self.real[classifier]]
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
) -> RealRowsBaseline:
    """Train every classifier on the real training rows and test it on the held-out real ones."""
    _require_label(schema)
    on_real = {
        name: tuple(performance(real, test, schema, name, seed) for seed in seeds) for name in classifiers
    }
    return RealRowsBaseline(majority(real, test, schema), on_real, tuple(seeds))


def utility(
    synthetic: pd.DataFrame,
    test: pd.DataFrame,
    schema: Schema,
    beside: RealRowsBaseline,
    measures: Sequence[str] = MEASURES,
) -> list[Score]:
    """Accuracy, F1 and AUC of each classifier trained on synthetic rows and tested on real ones.

    Each score's detail holds the same for real training rows and for the majority class. The spread is over the
    classifiers' own randomness: logistic regression has none.
    """
    scores: list[Score] = []
    for classifier in beside.real:
        reason, on_synthetic = None, []
        try:
            on_synthetic = [
                asdict(performance(synthetic, test, schema, classifier, seed)) for seed in beside.seeds
            ]
        except BadInput as error:
            reason = str(error)
        for measure in measures:
            name, detail = f"{classifier}: {measure}", beside.beside(classifier, measure)
            if reason is None:
                scores.append(
                    over_seeds(name, [each[measure] for each in on_synthetic], beside.seeds, detail=detail)
                )
            else:
                scores.append(failure(name, reason, beside.seeds, detail=detail))
    return scores


def _require_label(schema: Schema) -> None:
    if not schema.feature_columns or len(schema.classes) < 2:
        raise BadInput(
            "usefulness is measured by predicting the label; expected a table with a label of 2 classes"
        )


def _checked(frame: pd.DataFrame, schema: Schema) -> np.ndarray:
    """The classes of the rows, after checking that the table fits its schema."""
    return Table(schema).encode(frame[list(schema.names)])[1].numpy()


def _task(classifier: Classifier, frame: pd.DataFrame, schema: Schema) -> ClassifierTask:
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


def measure(classes: np.ndarray, chances: np.ndarray) -> Performance:
    """Accuracy, F1 and AUC of chances [rows, classes] for the true classes [rows]."""
    from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

    guessed = chances.argmax(axis=1)
    present = np.unique(classes)
    if len(present) < 2:
        raise BadInput("the test rows have one class, so nothing can be told apart on them")
    rare = present[np.bincount(classes)[present].argmin()]
    areas = [roc_auc_score(classes == each, chances[:, each]) for each in present]
    return Performance(
        float(accuracy_score(classes, guessed)),
        float(f1_score(classes, guessed, average="macro", labels=present, zero_division=0)),
        float(np.mean(areas)),
        float(f1_score(classes == rare, guessed == rare, zero_division=0)),
    )
