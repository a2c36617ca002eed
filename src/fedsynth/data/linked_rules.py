"""Rules that linked tables keep, read from the rows: moments in order, also across tables, and numbered rows.

Whatever holds by accident is left out: it would have to break often if rows belonged to each other by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from fedsynth.data.column import Column
from fedsynth.data.draft_rules import ENOUGH, keeps_order, readable, seconds_of
from fedsynth.data.encode import DAYS
from fedsynth.data.linked import LinkedTable
from fedsynth.data.schema import Schema
from fedsynth.data.values import read_values

Frames = Mapping[str, pd.DataFrame]


def numbered_by(schema: Schema, frame: pd.DataFrame, key: str) -> str | None:
    """The first column of whole numbers that no two rows of one parent share, such as a year or a visit's number."""
    parent = pd.factorize(frame[key])[0]
    rng = np.random.default_rng(0)
    for column in schema.columns:
        if column.type != "integer" or column.missing:
            continue
        values = read_values(column, frame[column.name]).numbers
        if not _shared(parent, values) and _shared(parent, rng.permutation(values)) >= ENOUGH:
            return column.name
    return None


def _shared(parent: np.ndarray, values: np.ndarray) -> int:
    """How many rows have a value that an earlier row of the same parent has."""
    return int(pd.DataFrame({"parent": parent, "value": values}).duplicated().sum())


def with_rules(tables: Mapping[str, LinkedTable], frames: Frames) -> dict[str, LinkedTable]:
    """The tables with constraints that all of their rows keep, marked as inferred."""
    ruled: dict[str, LinkedTable] = {}
    for name, table in tables.items():
        own = tuple(_own_rules(table, frames[name]))
        across = tuple(_rules_across(tables, table, frames, own))
        provenance = dict(table.schema.provenance)
        if own or across:
            provenance["constraints"] = "inferred"
        schema = replace(table.schema, inside=True, constraints=own, provenance=provenance)
        ruled[name] = replace(table, schema=schema, across=across)
    return ruled


def _own_rules(table: LinkedTable, frame: pd.DataFrame) -> Iterator[str]:
    """Which moments never come before the one that orders rows."""
    if table.order is None or table.schema.column(table.order).type not in DAYS:
        return
    start = _seconds(table.schema.column(table.order), frame)
    for column in _moments(table):
        end = _seconds(column, frame)
        text = f"{column.name} >= {table.order}"
        if column.name != table.order and not (end < start).any() and (end >= start).any():
            yield from readable(text, table.schema.columns)


def _rules_across(
    tables: Mapping[str, LinkedTable], table: LinkedTable, frames: Frames, rules: tuple[str, ...]
) -> Iterator[str]:
    """Which moments never come before, or after, one of a row above: no visit after death.

    Those that follow from others, and from the table's own rules, are left out.
    """
    own = sorted(_moments(table), key=lambda column: column.name != table.order)
    seconds = {column.name: _seconds(column, frames[table.name]) for column in own}
    at = np.arange(len(frames[table.name]))
    one, started = table, False
    while one.parent is not None:
        above, key = tables[one.parent], one.key
        rows = pd.Index(frames[above.name][above.id]).get_indexer(frames[one.name][key])
        at = np.where(at < 0, -1, rows[at])
        for other in _moments(above):
            known = np.append(_seconds(other, frames[above.name]), np.nan)
            named = replace(other, name=f"{above.name}.{other.name}")
            after = [c for c in own if _keeps(seconds[c.name], known, at)]
            before = [c for c in own if _keeps(-seconds[c.name], -known, at)]
            if after and not started:
                started = after[0].name == table.order  # the others follow from it
                for column in after[: 1 if started else None]:
                    yield from readable(f"{column.name} >= {named.name}", (*table.schema.columns, named))
            ends = {c.name for c in before if not c.missing and f"{c.name} >= {table.order}" in rules}
            for column in (c for c in before if c.name != table.order or not ends):
                yield from readable(f"{column.name} <= {named.name}", (*table.schema.columns, named))
        one = above


def _keeps(values: np.ndarray, above: np.ndarray, at: np.ndarray) -> bool:
    """Whether no value lies below that of its row above, where many would by chance."""
    return keeps_order(values, above[at], above[np.random.default_rng(0).permutation(at)])


def _moments(table: LinkedTable) -> list[Column]:
    return [column for column in table.schema.columns if column.type in DAYS]


def _seconds(column: Column, frame: pd.DataFrame) -> np.ndarray:
    """A column's moments in seconds; NaN where missing."""
    return seconds_of(column, read_values(column, frame[column.name]).numbers)
