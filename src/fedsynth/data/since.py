"""Moments that are learned as the time since another moment: how long a stay was says more than its two dates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedsynth.data.column import LARGEST_RANGE, Column
from fedsynth.data.schema import Schema

DAYS = ("date", "timestamp")
_NEAR = 1.25  # times a column's own range: further from another moment it is learned as it is (a visit, from a birth)


@dataclass(frozen=True)
class Anchor:
    """The moment that others are counted from."""

    name: str
    column: Column

    def grains(self, column: Column, numbers: np.ndarray | float) -> np.ndarray:
        """The anchor's moments as whole grains of another column, counted from that column's first moment.

        >>> anchor = Anchor("at", Column("at", "date", min="2020-01-01", max="2020-12-31"))
        >>> anchor.grains(Column("taken", "timestamp", min="2020-01-02", max="2020-12-31", grain="hour"), 2.0)
        np.float64(24.0)
        """
        seconds = self.column.first_second - column.first_second + numbers * self.column.grain_seconds
        return np.floor(seconds / column.grain_seconds)

    def since(self, column: Column, later: bool) -> Column:
        """A column as the time since the anchor; `later` says that it never lies before."""
        first, last = (float(self.grains(column, end)) for end in self.column.bounds)
        high = column.bounds[1] - first
        return whole_numbers(column, 0 if later else -last, high, log=later)

    def near(self, column: Column) -> bool:
        """Whether the time since the anchor says more of a later moment than its date."""
        low, high = column.bounds
        return self.since(column, later=True).bounds[1] <= _NEAR * (high - low)


def whole_numbers(column: Column, low: float, high: float, log: bool) -> Column:
    """A column of whole numbers, however many there are."""
    scale = "log" if log else "linear"
    low, high = int(low), int(max(high, low + 1))
    many = high - low >= LARGEST_RANGE[scale]
    kind = {"type": "continuous", "decimals": 0} if many else {"type": "integer"}
    return Column(column.name, min=low, max=high, scale=scale, missing=column.missing, **kind)


def anchors_of(schema: Schema) -> dict[str, Anchor]:
    """The moments that a constraint puts after another of the same row, and that other, each before those that follow.

    An anchor is always there: from a missing one nothing can be counted. It is near: of a visit long after a birth the
    date says more than the age. Of several the one in the longest chain is
    taken: with `discharge >= admission` and `discharge >= transfer >= admission` discharge counts from transfer.

    >>> days = {"min": "2020-01-01", "max": "2020-12-31"}
    >>> stay = (Column("admission", "date", **days), Column("discharge", "date", **days))
    >>> anchor = anchors_of(Schema(columns=stay, constraints=("discharge >= admission",)))["discharge"]
    >>> anchor.name, anchor.since(stay[1], later=True).allowed()
    ('admission', '0 to 365')
    """
    moments = {column.name: column for column in schema.feature_columns if column.type in DAYS}
    earlier: dict[str, set[str]] = {name: set() for name in moments}
    for rule in schema.rules:
        if rule.order is not None and {*rule.order} <= {*moments}:
            later, before = rule.order
            anchor = Anchor(before, moments[before])
            if not anchor.column.missing and anchor.near(moments[later]):
                earlier[later].add(before)
    depth: dict[str, int] = {}
    anchors: dict[str, Anchor] = {}
    while True:
        ready = [name for name in moments if name not in depth and earlier[name] <= {*depth}]
        if not ready:
            return anchors  # what is left is in a circle, and learned as it is
        for name in ready:
            nearest = max(sorted(earlier[name]), key=lambda one: depth[one], default=None)
            depth[name] = 0 if nearest is None else 1 + depth[nearest]
            if nearest is not None:
                anchors[name] = Anchor(nearest, moments[nearest])


def counted_since(schema: Schema, numbers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The numbers of all columns, moments that have an anchor as the time since it."""
    counted = {
        name: numbers[name] - anchor.grains(schema.column(name), numbers[anchor.name])
        for name, anchor in anchors_of(schema).items()
    }
    return {**numbers, **counted}


def moments_again(schema: Schema, numbers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of `counted_since`; moments may lie beyond their bounds."""
    moments = dict(numbers)
    for name, anchor in anchors_of(schema).items():
        moments[name] = numbers[name] + anchor.grains(schema.column(name), moments[anchor.name])
    return moments
