"""Which rows to look at: criteria as data, evaluated at the client that holds the rows.

A criterion marks rows. What is done with the marks (take the rows, or all rows of clients with many of them) is the
selection's business.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from fedsynth.data.clients import RawClients
from fedsynth.data.schema import Schema
from fedsynth.data.text import TextEncoding, words_of
from fedsynth.data.values import places
from fedsynth.errors import BadInput, nearest
from fedsynth.inspection.primary import Primary, class_scores, row_scores


class Criterion(Protocol):
    """Marks rows of one client. `by_class`: which classes are meant is found out by asking the clients first."""

    needs_model: ClassVar[bool]
    by_class: ClassVar[bool]

    @property
    def words(self) -> str:
        """What it asks for, for a page and for the ledger."""
        ...

    @property
    def table(self) -> dict[str, Any]:
        """The keys that `criterion_named` makes it from, with the name as `criterion`."""
        ...

    def marks(self, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
        """Which rows meet it, [rows] bool."""
        ...


@dataclass(frozen=True)
class Everyone:
    """Every row: random examples, to check that the data are what they should be (T1)."""

    needs_model: ClassVar[bool] = False
    by_class: ClassVar[bool] = False

    @property
    def words(self) -> str:
        """What it asks for."""
        return "all rows"

    @property
    def table(self) -> dict[str, Any]:
        """Its keys."""
        return {"criterion": "everyone"}

    def marks(self, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
        """All of them."""
        return np.ones(rows.rows, dtype=bool)


@dataclass(frozen=True)
class Classified:
    """Rows that the primary model gets wrong (T2) or right; a row without a label is neither."""

    right: bool
    needs_model: ClassVar[bool] = True
    by_class: ClassVar[bool] = False

    @property
    def words(self) -> str:
        """What it asks for."""
        return "classified right" if self.right else "classified wrong"

    @property
    def table(self) -> dict[str, Any]:
        """Its keys."""
        return {"criterion": "correct" if self.right else "misclassified"}

    def marks(self, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
        """Those whose best score is (not) that of their label."""
        assert model is not None
        truth = label_places(rows, schema)
        guess = class_scores(model, rows, len(schema.classes)).argmax(1)
        return (truth >= 0) & ((guess == truth) == self.right)


@dataclass(frozen=True)
class OutOfVocabulary:
    """Texts with a word that the public vocabulary does not have (T3)."""

    needs_model: ClassVar[bool] = False
    by_class: ClassVar[bool] = False

    @property
    def words(self) -> str:
        """What it asks for."""
        return "a word out of the vocabulary"

    @property
    def table(self) -> dict[str, Any]:
        """Its keys."""
        return {"criterion": "out_of_vocabulary"}

    def marks(self, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
        """Those with at least one unknown word."""
        if rows.texts is None:
            raise BadInput("criterion 'out_of_vocabulary' is for texts; the data are something else")
        known = frozenset(TextEncoding(schema).words)
        if not known:
            raise BadInput(
                "criterion 'out_of_vocabulary' needs a vocabulary of words; the schema's symbols are bytes"
            )
        return np.array(
            [any(word not in known for word in words_of(text)) for text in rows.texts], dtype=bool
        )


@dataclass(frozen=True)
class Unlabelled:
    """Rows without a label, to be labelled by hand in synthetic form (T5)."""

    needs_model: ClassVar[bool] = False
    by_class: ClassVar[bool] = False

    @property
    def words(self) -> str:
        """What it asks for."""
        return "no label"

    @property
    def table(self) -> dict[str, Any]:
        """Its keys."""
        return {"criterion": "unlabelled"}

    def marks(self, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
        """Those whose label is missing or none of the classes."""
        return label_places(rows, schema) < 0


@dataclass(frozen=True)
class Scored:
    """Rows whose score is below `threshold` (unlikely under a public model) or above it (told apart from public rows).

    The threshold is a public number, for example a quantile of the scores of public rows (T6).
    """

    threshold: float
    below: bool
    needs_model: ClassVar[bool] = True
    by_class: ClassVar[bool] = False

    @property
    def words(self) -> str:
        """What it asks for."""
        return f"score {'below' if self.below else 'above'} {self.threshold:g}"

    @property
    def table(self) -> dict[str, Any]:
        """Its keys."""
        return {"criterion": "unlikely" if self.below else "told_apart", "threshold": self.threshold}

    def marks(self, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
        """Those on the asked side."""
        assert model is not None
        scores = row_scores(model, rows)
        return scores < self.threshold if self.below else scores > self.threshold


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """Rows of a table with a value: `column` `is_` `value`, where `is_` is one of == != < <= > >=."""

    column: str
    is_: str
    value: str | float
    needs_model: ClassVar[bool] = False
    by_class: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.is_ not in _COMPARE:
            raise BadInput(f"is={self.is_!r}: unknown comparison; expected one of {' '.join(_COMPARE)}")

    @property
    def words(self) -> str:
        """What it asks for."""
        return f"{self.column} {self.is_} {self.value}"

    @property
    def table(self) -> dict[str, Any]:
        """Its keys."""
        return {"criterion": "rule", "column": self.column, "is": self.is_, "value": self.value}

    def marks(self, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
        """Those whose value compares like that; a missing value never does."""
        if rows.frame is None:
            raise BadInput("criterion 'rule' is for tables; the data are something else")
        column = schema.column(self.column)
        if column.numeric != isinstance(self.value, (int, float)):
            expected = "a number" if column.numeric else "a text"
            raise BadInput(
                f"value={self.value!r}: the column {self.column!r} needs {expected} to compare with"
            )
        values = rows.frame[self.column]
        there = values.notna().to_numpy(dtype=bool)
        plain = values.astype("float64") if column.numeric else values.astype("string")
        return there & np.asarray(_COMPARE[self.is_](plain, self.value).fillna(False), dtype=bool)


@dataclass(frozen=True)
class WeakSlices:
    """Rows of the classes that the primary model is weakest on (T4 by slice); which these are is asked under DP."""

    below: float
    classes: tuple[int, ...] = ()  # filled in by the survey
    needs_model: ClassVar[bool] = True
    by_class: ClassVar[bool] = True

    @property
    def words(self) -> str:
        """What it asks for."""
        return f"a class with accuracy below {self.below:g}"

    @property
    def table(self) -> dict[str, Any]:
        """Its keys."""
        return {"criterion": "weak_slices", "accuracy_below": self.below}

    def marks(self, rows: RawClients, schema: Schema, model: Primary | None) -> np.ndarray:
        """Those with such a label."""
        return np.isin(label_places(rows, schema), self.classes)


def label_places(rows: RawClients, schema: Schema) -> np.ndarray:
    """The class number of each row's label, -1 where there is none."""
    if schema.label is None:
        return np.full(rows.rows, -1)
    if rows.frame is not None:
        values = rows.frame[schema.label]
        found = values.astype("string").fillna("").to_numpy()
    elif rows.labels is not None:
        found = np.asarray(rows.labels).astype(str)
    else:
        return np.full(rows.rows, -1)
    return places(found, schema.classes)


_BUILDERS: dict[str, tuple[Callable[..., Criterion], tuple[str, ...]]] = {
    "everyone": (lambda: Everyone(), ()),
    "misclassified": (lambda: Classified(right=False), ()),
    "correct": (lambda: Classified(right=True), ()),
    "out_of_vocabulary": (lambda: OutOfVocabulary(), ()),
    "unlabelled": (lambda: Unlabelled(), ()),
    "unlikely": (lambda threshold: Scored(threshold, below=True), ("threshold",)),
    "told_apart": (lambda threshold: Scored(threshold, below=False), ("threshold",)),
    "rule": (lambda column, value, **rest: Rule(column, rest["is"], value), ("column", "is", "value")),
    "weak_slices": (lambda accuracy_below: WeakSlices(accuracy_below), ("accuracy_below",)),
}
CRITERIA = tuple(_BUILDERS)


def criterion_named(name: str, arguments: Mapping[str, Any]) -> Criterion:
    """The criterion of a configuration, with the arguments that it needs and no others.

    >>> criterion_named("rule", {"column": "age", "is": ">", "value": 65})
    Rule(column='age', is_='>', value=65)
    """
    if name not in _BUILDERS:
        raise BadInput(f"criterion={name!r}: unknown; {nearest(name, CRITERIA)}")
    build, expected = _BUILDERS[name]
    missing = [key for key in expected if key not in arguments]
    unknown = [key for key in arguments if key not in expected]
    if missing or unknown:
        told = [f"{key} is missing" for key in missing] + [f"{key} is not one of its keys" for key in unknown]
        raise BadInput(
            f"criterion {name!r}: {'; '.join(told)}; it takes {', '.join(expected) or 'no arguments'}"
        )
    for key in ("threshold", "accuracy_below"):
        if key in arguments and (
            isinstance(arguments[key], bool) or not isinstance(arguments[key], (int, float))
        ):
            raise BadInput(f"{key}={arguments[key]!r}: expected a number")
    if "accuracy_below" in arguments and not 0 < arguments["accuracy_below"] <= 1:
        raise BadInput(f"accuracy_below={arguments['accuracy_below']}: an accuracy lies in (0, 1]")
    return build(**arguments)
