"""Moments of linked tables as they are learned: the time since another moment that is known when a row is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsynth.data.column import LARGEST_RANGE, Column
from fedsynth.data.linked import LinkedSchema, LinkedTable

_DAYS = ("date", "timestamp")


@dataclass(frozen=True)
class Anchor:
    """The moment that others are counted from: the one that orders the row itself, or the nearest row above it."""

    name: str  # TABLE.COLUMN
    column: Column

    def grains(self, column: Column, numbers: np.ndarray | float) -> np.ndarray:
        """The anchor's moments as whole grains of another column, counted from that column's first moment.

        >>> anchor = Anchor("visit.at", Column("at", "date", min="2020-01-01", max="2020-12-31"))
        >>> anchor.grains(Column("taken", "timestamp", min="2020-01-02", max="2020-12-31", grain="hour"), 2.0)
        np.float64(24.0)
        """
        seconds = self.column.first_second - column.first_second + numbers * self.column.grain_seconds
        return np.floor(seconds / column.grain_seconds)

    def since(self, column: Column, later: bool) -> Column:
        """A column as the time since the anchor; `later` says that it never lies before."""
        first, last = (float(self.grains(column, end)) for end in self.column.bounds)
        high = column.bounds[1] - first
        return _whole(column, 0 if later else -last, high, log=later)


def anchor_of(schema: LinkedSchema, table: LinkedTable, name: str) -> Anchor | None:
    """What a column's moments are counted from; None if they are learned as they are."""
    if table.schema.column(name).type not in _DAYS:
        return None
    for one in (table, *reversed(schema.ancestors(table))):
        if one.order is None or (one.name, one.order) == (table.name, name):
            continue
        if one.schema.column(one.order).type in _DAYS:
            return Anchor(f"{one.name}.{one.order}", one.schema.column(one.order))
    return None


def learned_as(schema: LinkedSchema, table: LinkedTable, name: str) -> Column:
    """A column as it is learned: moments as the time since their anchor."""
    column, anchor = table.schema.column(name), anchor_of(schema, table, name)
    if anchor is None:
        return column
    other = anchor.name.removeprefix(f"{table.name}.")
    return anchor.since(column, _says_later((*table.schema.constraints, *table.across), name, other))


def gap_column(table: LinkedTable) -> Column:
    """The time from a row to the next."""
    order = table.schema.column(str(table.order))
    span = order.bounds[1] - order.bounds[0]
    if order.type == "continuous":
        decimals = order.decimals
        return Column(
            f"{table.name} gap", "continuous", min=0.0, max=float(span), decimals=decimals, scale="log"
        )
    return _whole(Column(f"{table.name} gap", "integer", min=0, max=1), 0, span, log=True)


def _whole(column: Column, low: float, high: float, log: bool) -> Column:
    """A column of whole numbers, however many there are."""
    scale = "log" if log else "linear"
    low, high = int(low), int(max(high, low + 1))
    many = high - low >= LARGEST_RANGE[scale]
    kind = {"type": "continuous", "decimals": 0} if many else {"type": "integer"}
    return Column(column.name, min=low, max=high, scale=scale, missing=column.missing, **kind)


def _says_later(constraints: Sequence[str], one: str, other: str) -> bool:
    plain = {text.replace(" ", "") for text in constraints}
    said = (f"{one}>={other}", f"{one}>{other}", f"{other}<={one}", f"{other}<{one}")
    return any(text.replace(" ", "") in plain for text in said)
