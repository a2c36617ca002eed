"""Rules between columns, such as "discharge >= admission": parsed without running text, checked and computed on rows.

A rule is evaluated on intervals of numbers: a row has intervals of one point, a cell of a model's table has those of
its bin, and a missing value may be anything. So one evaluation says which rows hold and which cells are possible.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsynth.data.clock import DAY, seconds_of
from fedsynth.data.column import CATEGORIES, Column
from fedsynth.errors import BadInput

Interval = tuple[np.ndarray, np.ndarray]  # the least and the largest value; NaN where it may be anything
Truth = tuple[np.ndarray, np.ndarray]  # whether it can be true, whether it can be false


@dataclass(frozen=True)
class Sum:
    """Columns times factors plus a constant, as a number: moments in days, times of day in hours."""

    terms: tuple[tuple[float, Column], ...]
    constant: float = 0.0

    def range(self, numbers: Mapping[str, Interval]) -> Interval:
        """The least and the largest value of the sum."""
        low = high = np.asarray(self.constant)
        for factor, column in self.terms:
            ends = [_absolute(column, end) * factor for end in numbers[column.name]]
            low, high = low + np.minimum(*ends), high + np.maximum(*ends)
        return low, high

    @property
    def tolerance(self) -> float:
        """How far sums may lie apart that are equal as far as their decimals show."""
        shown = [10.0**-column.decimals for _, column in self.terms if column.decimals is not None]
        return max(shown, default=0.0) / 2


@dataclass(frozen=True)
class RuleText:
    """A column of categories, or one category."""

    column: Column | None
    value: str = ""


def _seconds_each(column: Column) -> float:
    """The unit in which moments are compared and subtracted: days, or hours of a day."""
    return DAY / 24 if column.type == "time" else DAY


def _absolute(column: Column, numbers: np.ndarray) -> np.ndarray:
    """Numbers that can be compared across columns."""
    if not column.moment:
        return numbers
    return (column.first_second + numbers * column.grain_seconds) / _seconds_each(column)


def _relative(column: Column, values: np.ndarray) -> np.ndarray:
    """The inverse of `_absolute`, rounded as the column is."""
    if not column.moment:
        decimals = 0 if column.whole else column.decimals
        return values if decimals is None else np.round(values, decimals)
    return np.round((np.round(values * _seconds_each(column)) - column.first_second) / column.grain_seconds)


@dataclass(frozen=True)
class RuleComparison:
    """Two sums or two texts, compared."""

    left: Sum | RuleText
    sign: str
    right: Sum | RuleText

    def truth(self, numbers: Mapping[str, Interval]) -> Truth:
        """Whether the comparison can be true and can be false."""
        slack = 0.0
        if isinstance(self.left, RuleText) and isinstance(self.right, RuleText):
            one, other = _text_codes(self.left, self.right, numbers)
        else:
            assert isinstance(self.left, Sum) and isinstance(self.right, Sum)
            one, other = self.left.range(numbers), self.right.range(numbers)
            slack = max(self.left.tolerance, self.right.tolerance)
        low, high = one[0] - other[1], one[1] - other[0]
        unknown = np.isnan(low) | np.isnan(high)
        with np.errstate(invalid="ignore"):
            size = np.maximum(np.abs(one[0]), np.abs(other[0]))
            near = slack + 1e-9 * np.where(np.isfinite(size), 1 + size, 1)
            can, cannot = _SIGNS[self.sign](low, high, near)
        return can | unknown, cannot | unknown


def _more(low: np.ndarray, high: np.ndarray, near: np.ndarray) -> Truth:
    return high > near, low <= near


def _equal(low: np.ndarray, high: np.ndarray, near: np.ndarray) -> Truth:
    return (low <= near) & (high >= -near), ~((low >= -near) & (high <= near))


_SIGNS = {
    ">": _more,
    "<=": lambda low, high, near: _more(low, high, near)[::-1],
    "<": lambda low, high, near: _more(-high, -low, near),
    ">=": lambda low, high, near: _more(-high, -low, near)[::-1],
    "==": _equal,
    "!=": lambda low, high, near: _equal(low, high, near)[::-1],
}


def _text_codes(
    left: RuleText, right: RuleText, numbers: Mapping[str, Interval]
) -> tuple[Interval, Interval]:
    """Places of both sides in one list of texts, which keeps the order of the first column."""
    columns = [side.column for side in (left, right) if side.column is not None]
    listed = dict.fromkeys(label for column in columns for label in column.labels)
    place = {label: number for number, label in enumerate(listed)}

    def codes(side: RuleText) -> Interval:
        if side.column is None:
            point = np.float64(place[side.value])
            return np.asarray(point), np.asarray(point)
        own = np.array([*(place[label] for label in side.column.labels), np.nan])
        low, high = (np.where(np.isnan(end), -1, end).astype(int) for end in numbers[side.column.name])
        return own[low], own[high]

    return codes(left), codes(right)


@dataclass(frozen=True)
class Compound:
    """Conditions joined by and, or, implies; or one of them negated."""

    word: str
    parts: tuple[Condition, ...]

    def truth(self, numbers: Mapping[str, Interval]) -> Truth:
        """Whether the whole can be true and can be false."""
        truths = [part.truth(numbers) for part in self.parts]
        if self.word in ("not", "implies"):
            truths[0] = truths[0][::-1]
        both, either = (operator.and_, operator.or_) if self.word == "and" else (operator.or_, operator.and_)
        can, cannot = truths[0]
        for more, less in truths[1:]:
            can, cannot = both(can, more), either(cannot, less)
        return can, cannot


Condition = RuleComparison | Compound


@dataclass(frozen=True)
class Constraint:
    """One constraint of a schema."""

    text: str
    condition: Condition
    columns: tuple[str, ...]

    def holds(self, numbers: Mapping[str, np.ndarray]) -> np.ndarray:
        """Which rows hold, by the numbers that `read_values` gives; one with a missing value that matters does."""
        points = {name: (numbers[name], numbers[name]) for name in self.columns}
        rows = len(next(iter(points.values()))[0])
        return np.broadcast_to(self.condition.truth(points)[0], rows)

    def possible(self, numbers: Mapping[str, Interval]) -> np.ndarray:
        """Which cells of a table may hold rows, by the least and largest numbers of each cell.

        Arrays have the table's shape or broadcast to it; a column that is not there may be anything in its bounds.
        """
        columns = {column.name: column for column in _columns(self.condition)}
        ranges = {name: numbers.get(name, _anything(columns[name])) for name in self.columns}
        return self.condition.truth(ranges)[0]

    @property
    def derived(self) -> str | None:
        """The column that the rule computes out of others, as `total == a + b` does; None if it computes none."""
        rule = self.condition
        if not isinstance(rule, RuleComparison) or rule.sign != "==":
            return None
        if not (isinstance(rule.left, Sum) and isinstance(rule.right, Sum)) or not rule.right.terms:
            return None
        if rule.left.constant or [factor for factor, _ in rule.left.terms] != [1.0]:
            return None
        name = rule.left.terms[0][1].name
        return name if name not in [column.name for _, column in rule.right.terms] else None

    @property
    def order(self) -> tuple[str, str] | None:
        """The later and the earlier of two columns, if that is all that the rule says of them."""
        rule = self.condition
        if not isinstance(rule, RuleComparison) or rule.sign not in (">=", ">", "<=", "<"):
            return None
        names = []
        for side in (rule.left, rule.right):
            if not isinstance(side, Sum) or side.constant or [factor for factor, _ in side.terms] != [1.0]:
                return None
            names.append(side.terms[0][1].name)
        one, other = names
        return (one, other) if rule.sign in (">=", ">") else (other, one)

    def computed(self, numbers: Mapping[str, np.ndarray]) -> np.ndarray:
        """The numbers of the derived column; NaN where one of the others is missing."""
        rule = self.condition
        assert isinstance(rule, RuleComparison) and isinstance(rule.left, Sum) and isinstance(rule.right, Sum)
        points = {column.name: (numbers[column.name],) * 2 for _, column in rule.right.terms}
        return _relative(rule.left.terms[0][1], rule.right.range(points)[0])


def _columns(condition: Condition) -> list[Column]:
    if isinstance(condition, Compound):
        return [column for part in condition.parts for column in _columns(part)]
    sides = (condition.left, condition.right)
    sums = [column for side in sides if isinstance(side, Sum) for _, column in side.terms]
    return sums + [side.column for side in sides if isinstance(side, RuleText) and side.column is not None]


def _anything(column: Column) -> Interval:
    known = column.numeric and not column.missing
    low, high = column.bounds if known else (np.nan, np.nan)
    return np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)


def literal(column: Column, text: str) -> float:
    """A value that a column of numbers or moments is compared with, as `Sum` counts it.

    >>> literal(Column("day", "date", min="2020-01-01", max="2020-12-31"), "1970-01-03")
    2.0
    """
    if not column.moment:
        raise BadInput(f"column {column.name!r} is {column.type}; compare it with a number, not {text!r}")
    seconds = seconds_of(column.type, text)
    if seconds is None and column.format is not None:
        seconds = seconds_of(column.type, text, column.format)
    if seconds is None:
        example = column.text(column.bounds[0])
        raise BadInput(
            f"column {column.name!r} is a {column.type}, but {text!r} is none; write it as {example!r}"
        )
    return seconds / _seconds_each(column)


def is_text(column: Column) -> bool:
    """True if the column's values are categories."""
    return column.type in CATEGORIES


def independent(rules: Sequence[Constraint]) -> list[set[str]]:
    """Columns in groups that no rule ties to each other."""
    groups: list[set[str]] = []
    for rule in rules:
        tied = [group for group in groups if group & set(rule.columns)]
        groups = [group for group in groups if group not in tied]
        groups.append(set(rule.columns).union(*tied))
    return groups
