"""Which rows to look at: criteria as data, evaluated at the client that holds the rows.

A criterion marks rows. What is done with the marks (take the rows, or all rows of clients with many of them) is the
selection's business. A new criterion is a function that marks rows, and a line in `_KINDS`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedsynth.data.clients import RawClients
from fedsynth.data.conditions import read_conditions
from fedsynth.data.modality import modality_of
from fedsynth.data.schema import Schema
from fedsynth.data.text import Text, words_of
from fedsynth.data.values import is_missing, places, read_values
from fedsynth.errors import BadInput, nearest
from fedsynth.inspection.primary import Primary, class_scores, row_scores


@dataclass(frozen=True)
class Criterion:
    """Marks rows of one client, by name and arguments.

    `classes` are the classes that `weak_slices` means: the clients are asked for them first.
    """

    name: str
    arguments: tuple[tuple[str, Any], ...] = ()
    classes: tuple[int, ...] = ()

    def __getitem__(self, key: str) -> Any:
        return dict(self.arguments)[key]

    @property
    def needs_model(self) -> bool:
        """Whether a primary model judges the rows."""
        return _KINDS[self.name].needs_model

    @property
    def by_class(self) -> bool:
        """Whether the clients are asked which classes are meant."""
        return self.name == "weak_slices"

    @property
    def words(self) -> str:
        """Describe the rows that meet it, for a page and for the ledger."""
        return _KINDS[self.name].words.format(**dict(self.arguments))

    @property
    def table(self) -> dict[str, Any]:
        """Return the keys that `criterion_named` makes it from, with the name as `criterion`."""
        return {"criterion": self.name, **dict(self.arguments)}

    def marks(self, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
        """Tell which rows meet it, [rows] bool."""
        return _KINDS[self.name].marks(self, rows, schema, model)


def _everyone(criterion: Criterion, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
    """Mark every row: random examples, to check that the data are what they should be (T1)."""
    return np.ones(rows.rows, dtype=bool)


def _classified(criterion: Criterion, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
    """Mark rows that the primary model gets right, or wrong (T2); a row without a label is neither."""
    assert model is not None
    truth = label_places(rows, schema)
    guess = class_scores(model, rows, len(schema.classes)).argmax(1)
    return (truth >= 0) & ((guess == truth) == (criterion.name == "correct"))


def _unknown_word(
    criterion: Criterion, rows: RawClients, schema: Schema, model: Primary | None
) -> np.ndarray:
    """Mark texts with a word that the public vocabulary does not have (T3)."""
    if not schema.vocabulary:
        raise BadInput("criterion 'out_of_vocabulary' is for texts; the data are something else")
    known = frozenset(Text(schema).words)
    if not known:
        raise BadInput(
            "criterion 'out_of_vocabulary' needs a vocabulary of words; the schema's symbols are bytes"
        )
    return np.array([any(word not in known for word in words_of(text)) for text in rows.data], dtype=bool)


def _unlabelled(criterion: Criterion, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
    """Mark rows whose label is missing or none of the classes, to be labelled by hand in synthetic form (T5)."""
    return label_places(rows, schema) < 0


def _scored(criterion: Criterion, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
    """Mark rows that are unlikely under a public model, or told apart from public rows, by a public threshold (T6)."""
    assert model is not None
    scores, threshold = row_scores(model, rows), criterion["threshold"]
    return scores < threshold if criterion.name == "unlikely" else scores > threshold


def _rule(criterion: Criterion, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
    """Mark rows of a table whose value compares like that; a missing value never does."""
    if not isinstance(rows.data, pd.DataFrame):
        raise BadInput("criterion 'rule' is for tables; the data are something else")
    name, value = criterion["column"], criterion["value"]
    column = schema.column(name)
    if column.moment:
        (condition,) = read_conditions([f"{name}{criterion['is']}{value}"], schema)
        return condition.holds(read_values(column, rows.data[name]).numbers)
    if column.numeric != isinstance(value, (int, float)):
        expected = "a number" if column.numeric else "a text"
        raise BadInput(f"value={value!r}: the column {name!r} needs {expected} to compare with")
    values = rows.data[name]
    there = ~is_missing(column, values)
    plain = values.astype("float64") if column.numeric else values.astype("string")
    return there & np.asarray(_COMPARE[criterion["is"]](plain, value).fillna(False), dtype=bool)


def _weak(criterion: Criterion, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
    """Mark rows of the classes that the primary model is weakest on (T4 by slice)."""
    return np.isin(label_places(rows, schema), criterion.classes)


def label_places(rows: RawClients, schema: Schema) -> np.ndarray:
    """Return the class number of each row's label, -1 where there is none."""
    if schema.label is None:
        return np.full(rows.rows, -1)
    labels = modality_of(schema).labels(rows.data)
    if labels is None:
        return np.full(rows.rows, -1)
    return places(labels, schema.classes)


class _Kind(NamedTuple):
    words: str  # with the arguments in braces
    marks: Callable[[Criterion, RawClients, Schema, Primary | None], np.ndarray]
    keys: tuple[str, ...] = ()
    needs_model: bool = False


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_KINDS = {
    "everyone": _Kind("all rows", _everyone),
    "misclassified": _Kind("classified wrong", _classified, needs_model=True),
    "correct": _Kind("classified right", _classified, needs_model=True),
    "out_of_vocabulary": _Kind("a word out of the vocabulary", _unknown_word),
    "unlabelled": _Kind("no label", _unlabelled),
    "unlikely": _Kind("score below {threshold:g}", _scored, ("threshold",), needs_model=True),
    "told_apart": _Kind("score above {threshold:g}", _scored, ("threshold",), needs_model=True),
    "rule": _Kind("{column} {is} {value}", _rule, ("column", "is", "value")),
    "weak_slices": _Kind(
        "a class with accuracy below {accuracy_below:g}", _weak, ("accuracy_below",), needs_model=True
    ),
}
CRITERIA = tuple(_KINDS)


def criterion_named(name: str, arguments: Mapping[str, Any]) -> Criterion:
    """Return the criterion of a configuration, with the arguments that it needs and no others.

    >>> criterion_named("rule", {"column": "age", "is": ">", "value": 65}).words
    'age > 65'
    """
    if name not in _KINDS:
        raise BadInput(f"criterion={name!r}: unknown; {nearest(name, CRITERIA)}")
    expected = _KINDS[name].keys
    problems = [f"{key} is missing" for key in expected if key not in arguments]
    problems += [f"{key} is not one of its keys" for key in arguments if key not in expected]
    if problems:
        raise BadInput(
            f"criterion {name!r}: {'; '.join(problems)}; it takes {', '.join(expected) or 'no arguments'}"
        )
    for key in ("threshold", "accuracy_below"):
        value = arguments.get(key, 0.0)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadInput(f"{key}={value!r}: expected a number")
    if "accuracy_below" in arguments and not 0 < arguments["accuracy_below"] <= 1:
        raise BadInput(f"accuracy_below={arguments['accuracy_below']}: an accuracy lies in (0, 1]")
    if "is" in arguments and arguments["is"] not in _COMPARE:
        raise BadInput(f"is={arguments['is']!r}: unknown comparison; expected one of {' '.join(_COMPARE)}")
    return Criterion(name, tuple((key, arguments[key]) for key in expected))
