"""Conditions on the rows of a sample: a column and a value or a range, such as `sex=F` or `age>=30`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsynth.data.clock import seconds_of
from fedsynth.data.column import Column
from fedsynth.data.modality import modality_of
from fedsynth.data.schema import Schema
from fedsynth.data.values import places
from fedsynth.errors import BadInput, nearest

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge, "<=": operator.le, "!=": operator.ne, "==": operator.eq,
    ">": operator.gt, "<": operator.lt, "=": operator.eq,
}  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """A column and the value that it must have; `number` is the value as `read_values` gives it."""

    text: str
    column: Column
    sign: str
    number: float

    def holds(self, numbers: np.ndarray) -> np.ndarray:
        """Which of a column's numbers meet it; a missing value never does."""
        return np.asarray(_COMPARE[self.sign](numbers, self.number)) & ~np.isnan(numbers)


def read_conditions(written: Iterable[str] | Mapping[str, Any], schema: Schema) -> tuple[Condition, ...]:
    """Conditions from texts, or from a mapping of columns to values; one error for the first that cannot be met.

    A name may have signs in it: the longest column that a text begins with is meant.

    >>> ages = Schema(columns=(Column("age", "integer", min=0, max=99),))
    >>> [condition.sign for condition in read_conditions(["age>30", "age <= 50"], ages)]
    ['>', '<=']
    """
    if isinstance(written, Mapping):
        return tuple(_condition(name, "=", str(value), schema) for name, value in written.items())
    conditions: list[Condition] = []
    for text in written:
        condition = _condition(*_split(text, schema), schema)
        equal = [
            other for other in conditions if other.column == condition.column and other.sign in ("=", "==")
        ]
        if equal and condition.sign in ("=", "=="):
            name = condition.column.name
            raise BadInput(
                f"--condition {text}: {name!r} has a condition already; give one value per column, or a range"
            )
        conditions.append(condition)
    return tuple(conditions)


def _split(text: str, schema: Schema) -> tuple[str, str, str]:
    known = sorted((name for name in schema.sampled_names if text.startswith(name)), key=len, reverse=True)
    for name in known:
        rest = text[len(name) :].lstrip()
        sign = next((sign for sign in _COMPARE if rest.startswith(sign)), None)
        if sign is not None:
            return name, sign, rest[len(sign) :].strip()
    places_of = {sign: text.find(sign) for sign in _COMPARE if sign in text}
    if not places_of:
        raise BadInput(
            f'--condition {text}: expected COLUMN=VALUE or COLUMN>VALUE, for example --condition income=">50K"'
        )
    sign = min(places_of, key=lambda sign: (places_of[sign], -len(sign)))
    return text[: places_of[sign]].strip(), sign, text[places_of[sign] + len(sign) :].strip()


def _condition(name: str, sign: str, value: str, schema: Schema) -> Condition:
    names = schema.sampled_names
    if name not in names or schema.column(name).type == "id":
        raise BadInput(f"condition on {name!r}: {modality_of(schema).unconditional}; {nearest(name, names)}")
    column = schema.column(name)
    text = f"{name}{sign}{value}"
    if column.numeric:
        return Condition(text, column, sign, _number(column, sign, value))
    if sign not in ("=", "==", "!=") and column.type != "ordinal":
        raise BadInput(f"condition {text}: {name!r} is {column.type} and has no order; use {name}=VALUE")
    place = int(places(np.array([value], dtype=object), column.labels, exact=column.type == "text-code")[0])
    if place < 0:
        raise BadInput(f"{name}={value!r}: no such category; {nearest(value, column.labels)}")
    return Condition(text, column, sign, place)


def _number(column: Column, sign: str, value: str) -> float:
    low, high = column.bounds
    number = _read_number(column, value)
    compare = _COMPARE[sign]
    if sign in ("=", "=="):
        met = number is not None and low <= number <= high
    else:
        met = number is not None and bool(compare(low, number) or compare(high, number))
    if number is None or not met:
        kind = column.type if column.moment else "number"
        expected = f"expected a {kind} between {column.text(low)} and {column.text(high)}"
        raise BadInput(f"{column.name}{sign}{value!r}: {expected}")
    return number


def _read_number(column: Column, value: str) -> float | None:
    if not column.moment:
        try:
            return float(value)
        except ValueError:
            return None
    seconds = seconds_of(column.type, value)
    if seconds is None and column.format is not None:
        seconds = seconds_of(column.type, value, column.format)
    return None if seconds is None else (seconds - column.first_second) / column.grain_seconds
