"""Moments of linked tables as they are learned: the time since another moment that is known when a row is drawn."""

from __future__ import annotations

from collections.abc import Sequence

from fedsynth.data.column import Column
from fedsynth.data.encode import DAYS, Anchor, whole_numbers
from fedsynth.data.linked import LinkedSchema, LinkedTable


def anchor_of(schema: LinkedSchema, table: LinkedTable, name: str) -> Anchor | None:
    """Return what a column's moments are counted from; None if they are learned as they are."""
    if table.schema.column(name).type not in DAYS:
        return None
    for one in (table, *reversed(schema.ancestors(table))):
        if one.order is None or (one.name, one.order) == (table.name, name):
            continue
        if one.schema.column(one.order).type in DAYS:
            return Anchor(f"{one.name}.{one.order}", one.schema.column(one.order))
    return _start_above(schema, table, name)


def _start_above(schema: LinkedSchema, table: LinkedTable, name: str) -> Anchor | None:
    """A moment of a row above, such as a person's first day, that constraints say the column never lies before."""
    column = table.schema.column(name)
    for one in reversed(schema.ancestors(table)):
        for start in one.schema.columns:
            anchor = Anchor(f"{one.name}.{start.name}", start)
            if start.type not in DAYS or start.missing or start.name not in one.schema.names:
                continue
            later = _says_later(table.across, name, anchor.name) and not anchor_of(schema, one, start.name)
            if later and anchor.near(column):
                return anchor
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
    return whole_numbers(Column(f"{table.name} gap", "integer", min=0, max=1), 0, span, log=True)


def _says_later(constraints: Sequence[str], one: str, other: str) -> bool:
    plain = {text.replace(" ", "") for text in constraints}
    said = (f"{one}>={other}", f"{one}>{other}", f"{other}<={one}", f"{other}<{one}")
    return any(text.replace(" ", "") in plain for text in said)
