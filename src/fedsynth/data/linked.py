"""Tables that belong together: persons, their visits, the visits' measurements; checked, linked and put in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.data.axis import FINEST
from fedsynth.data.rule_parser import parse_rule
from fedsynth.data.rules import Constraint
from fedsynth.data.schema import Schema
from fedsynth.data.table import broken_rules, check_columns
from fedsynth.data.values import read_values
from fedsynth.errors import BadInput, nearest

MOST = 50  # children that count by default
_KEYS = ("columns", "id", "parent", "key", "order", "most", "constraints", "provenance")


@dataclass(frozen=True)
class LinkedTable:
    """One of several tables: its columns, the column `key` that names its parent's row, and the column that orders it.

    The root has no parent, and a row for each person. Of the rows that one parent has, the first `most` count.
    """

    name: str
    schema: Schema
    id: str | None = None
    parent: str | None = None
    key: str | None = None
    order: str | None = None
    most: int = MOST
    across: tuple[str, ...] = ()  # constraints that name columns of parents, as TABLE.COLUMN

    @staticmethod
    def from_dict(name: str, written: Any, others: Collection[str] = ()) -> LinkedTable:
        """A table out of schema.json, beside others of these names."""
        if not isinstance(written, Mapping):
            raise BadInput(f"table {name!r}: expected an object with 'columns', not {written!r}")
        problems = [f"unknown key {key!r}, {nearest(str(key), _KEYS)}" for key in written if key not in _KEYS]
        if problems:
            raise BadInput(f"table {name!r}: " + "; ".join(problems))
        inner = {key: written[key] for key in ("columns", "constraints", "provenance") if key in written}
        listed = inner.get("constraints", ())
        across = [
            text for text in listed if isinstance(text, str) and any(f"{other}." in text for other in others)
        ]
        if across:
            inner["constraints"] = [text for text in listed if text not in across]
        try:
            schema = Schema.from_dict({"version": 1, "kind": "table", "inside": True, **inner})
        except BadInput as error:
            raise BadInput(f"table {name!r}: {error}") from None
        parent = written.get("parent")
        own = written.get("id", None if parent else written.get("key"))
        key = written.get("key") if parent else None
        return LinkedTable(
            name, schema, own, parent, key, written.get("order"), written.get("most", MOST), tuple(across)
        )

    def to_dict(self) -> dict[str, Any]:
        """The table as in schema.json."""
        own = {"parent": self.parent, "key": self.key, "id": self.id, "order": self.order}
        inner = {"columns": [], **self.schema.to_dict()}
        written = {name: value for name, value in own.items() if value is not None}
        most = {"most": self.most} if self.parent else {}
        rules = [*inner.pop("constraints", ()), *self.across]
        constraints = {"constraints": rules} if rules else {}
        return {**written, **most, **{name: inner[name] for name in _KEYS if name in inner}, **constraints}

    @property
    def linking(self) -> tuple[str, ...]:
        """The columns that say whose row it is: made anew, never learned."""
        return tuple(name for name in (self.id, self.key) if name is not None)


@dataclass(frozen=True)
class LinkedSchema:
    """Several tables, parents before their children."""

    tables: tuple[LinkedTable, ...]

    @staticmethod
    def from_dict(written: Mapping[str, Any]) -> LinkedSchema:
        """Read the tables of schema.json; all that is wrong with their links is told together."""
        tables = {
            name: LinkedTable.from_dict(name, table, {*written} - {name}) for name, table in written.items()
        }
        problems = _problems(tables)
        if problems:
            raise BadInput("; ".join(problems))
        ordered: list[LinkedTable] = []
        while len(ordered) < len(tables):
            names = {table.name for table in ordered}
            ready = [
                t for t in tables.values() if t.name not in names and (t.parent is None or t.parent in names)
            ]
            if not ready:
                raise BadInput(
                    f"tables {', '.join(sorted({*tables} - names))}: they are each other's parents"
                )
            ordered += ready
        linked = LinkedSchema(tuple(ordered))
        assert linked._rules is not None  # a constraint that cannot be read is refused
        return linked

    def rules(self, table: LinkedTable) -> tuple[Constraint, ...]:
        """The constraints that a table's rows keep, those that name columns of parents among them."""
        return self._rules[table.name]

    @cached_property
    def _rules(self) -> dict[str, tuple[Constraint, ...]]:
        rules = {}
        for table in self.tables:
            above = [
                replace(column, name=f"{one.name}.{column.name}")
                for one in self.ancestors(table)
                for column in one.schema.columns
            ]
            try:
                across = [parse_rule(text, [*above, *table.schema.columns]) for text in table.across]
            except BadInput as error:
                raise BadInput(f"table {table.name!r}: {error}") from None
            rules[table.name] = (*table.schema.rules, *across)
        return rules

    def to_dict(self) -> dict[str, Any]:
        """The tables as in schema.json."""
        return {table.name: table.to_dict() for table in self.tables}

    @property
    def root(self) -> LinkedTable:
        """The table that has a row for each person."""
        return self.tables[0]

    def table(self, name: str) -> LinkedTable:
        """The table called `name`."""
        return next(table for table in self.tables if table.name == name)

    def children(self, name: str) -> list[LinkedTable]:
        """The tables whose rows belong to rows of this one."""
        return [table for table in self.tables if table.parent == name]

    def ancestors(self, table: LinkedTable) -> list[LinkedTable]:
        """The parent, its parent, and so on: the root first."""
        if table.parent is None:
            return []
        parent = self.table(table.parent)
        return [*self.ancestors(parent), parent]


def _problems(tables: Mapping[str, LinkedTable]) -> list[str]:
    """Say what is wrong with the links of tables."""
    problems = []
    roots = [table.name for table in tables.values() if table.parent is None]
    if len(roots) != 1:
        problems.append(
            f"{len(roots)} tables without a parent ({', '.join(roots)}); expected one: that of the persons"
        )
    for table in tables.values():
        names = [column.name for column in table.schema.columns]
        if table.parent is not None and table.parent not in tables:
            problems.append(
                f"table {table.name!r}: no parent {table.parent!r}; {nearest(table.parent, tables)}"
            )
        elif table.parent is not None and tables[table.parent].id is None:
            problems.append(
                f"table {table.parent!r}: has children and no 'id'; name the column that identifies a row"
            )
        if table.parent is not None and table.key is None:
            problems.append(
                f"table {table.name!r}: no 'key'; name the column that holds its {table.parent}'s id"
            )
        if table.order is not None and table.order not in names:
            problems.append(f"table {table.name!r}: order {table.order!r}: {nearest(table.order, names)}")
        elif table.order is not None and not table.schema.column(table.order).numeric:
            problems.append(f"table {table.name!r}: order {table.order!r}: expected a date or a number")
        elif table.order is not None and table.schema.column(table.order).missing:
            problems.append(f"table {table.name!r}: order {table.order!r}: may not be missing")
        if not isinstance(table.most, int) or not 1 <= table.most < FINEST:
            problems.append(
                f"table {table.name!r}: most={table.most!r}: expected a whole number from 1 to {FINEST - 1}"
            )
        both = [name for name in table.linking if name in names]
        if both:
            problems.append(
                f"table {table.name!r}: {both[0]!r} links tables and cannot be among 'columns' too"
            )
    return problems


class Unlinked(BadInput):
    """Tables that do not fit together: every problem is a sentence."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class LinkedRows:
    """A table's rows as numbers, sorted by person and parent: those that count."""

    numbers: Mapping[str, np.ndarray]  # by column
    person: np.ndarray
    parent: np.ndarray  # the row of the parent table
    place: np.ndarray  # 0, 1, ... among the rows of one parent

    def __len__(self) -> int:
        return len(self.person)

    @cached_property
    def last(self) -> np.ndarray:
        """Whether no row of the same parent follows."""
        return np.append(self.parent[1:] != self.parent[:-1], True) if len(self) else np.zeros(0, bool)


def link(schema: LinkedSchema, frames: Mapping[str, pd.DataFrame]) -> dict[str, LinkedRows]:
    """Check all tables and put their rows together; one error tells all that does not fit."""
    problems: list[str] = []
    rows: dict[str, LinkedRows] = {}
    where: dict[str, pd.Series] = {}  # of each id: its row, or -1 if that does not count
    for table in schema.tables:
        if table.name not in frames:
            problems.append(
                f"table {table.name!r}: is not there; expected a file {table.name}.csv or .parquet"
            )
            continue
        frame = frames[table.name]
        numbers, wrong = _numbers(table, frame)
        if not wrong and table.parent in where:
            wrong = _orphans(table, frame, where[table.parent])
        problems += [f"table {table.name!r}: {problem}" for problem in wrong]
        if wrong or not (table.parent is None or table.parent in rows):
            continue
        taken, rows[table.name] = _sorted(table, numbers, frame, rows, where)
        problems += [f"table {table.name!r}: {problem}" for problem in _broken(schema, table, rows)]
        if table.id is not None:
            places = np.full(len(frame), -1)
            places[taken] = np.arange(len(taken))
            where[table.name] = pd.Series(places, index=pd.Index(frame[table.id]))
    if problems:
        raise Unlinked(problems)
    return rows


def _numbers(table: LinkedTable, frame: pd.DataFrame) -> tuple[dict[str, np.ndarray], list[str]]:
    """The learned columns as numbers, and what is wrong with any column."""
    absent = [name for name in table.linking if name not in frame]
    problems = [f"no column {name!r}; {nearest(name, map(str, frame.columns))}" for name in absent]
    learned = frame.drop(columns=[name for name in table.linking if name in frame])
    problems += check_columns(learned, table.schema)
    if problems:
        return {}, problems
    numbers = {}
    for column in table.schema.columns:
        values = read_values(column, frame[column.name])
        problems += values.problems
        numbers[column.name] = values.numbers
    problems += broken_rules(table.schema, numbers)
    for name in table.linking:
        empty = int(frame[name].isna().sum())
        problems += [f"column {name!r}: {empty} rows have no value; each needs one"] if empty else []
    if table.id is not None and frame[table.id].duplicated().any():
        twice = frame[table.id][frame[table.id].duplicated()].iloc[0]
        problems.append(f"column {table.id!r}: {twice} is there twice; an id names one row")
    return numbers, problems


def _broken(schema: LinkedSchema, table: LinkedTable, rows: Mapping[str, LinkedRows]) -> list[str]:
    """A sentence for each constraint that names columns of parents and that rows break."""
    if not table.across:
        return []
    numbers, above = dict(rows[table.name].numbers), rows[table.name].parent
    for one in reversed(schema.ancestors(table)):
        numbers |= {f"{one.name}.{name}": values[above] for name, values in rows[one.name].numbers.items()}
        above = rows[one.name].parent[above]
    problems = []
    for rule in schema.rules(table)[len(table.schema.rules) :]:
        wrong = int((~rule.holds(numbers)).sum())
        if wrong:
            advice = "correct or drop them, or take the constraint out of the schema"
            problems.append(f"constraint {rule.text!r}: {wrong} of {len(above)} rows break it; {advice}")
    return problems


def _orphans(table: LinkedTable, frame: pd.DataFrame, parents: pd.Series) -> list[str]:
    lost = frame[table.key][~frame[table.key].isin(parents.index)]
    if lost.empty:
        return []
    return [
        f"{len(lost)} of {len(frame)} rows belong to no row of {table.parent!r}, for example {table.key} "
        f"{lost.iloc[0]}; add that row or drop these"
    ]


def _sorted(
    table: LinkedTable,
    numbers: Mapping[str, np.ndarray],
    frame: pd.DataFrame,
    rows: Mapping[str, LinkedRows],
    where: Mapping[str, pd.Series],
) -> tuple[np.ndarray, LinkedRows]:
    """Which rows of the frame count, in order, and these rows."""
    if table.parent is None:
        every = np.arange(len(frame))
        return every, LinkedRows(numbers, every, every, np.zeros_like(every))
    parents = where[table.parent]
    parent = parents.to_numpy()[parents.index.get_indexer(pd.Index(frame[table.key]))]
    order = np.zeros(len(frame)) if table.order is None else numbers[table.order]
    taken = np.lexsort((order, parent))
    taken = taken[parent[taken] >= 0]
    parent = parent[taken]
    place = np.arange(len(taken)) - np.searchsorted(parent, parent)
    counts = place < table.most
    taken, parent, place = taken[counts], parent[counts], place[counts]
    chosen = {name: values[taken] for name, values in numbers.items()}
    return taken, LinkedRows(chosen, rows[table.parent].person[parent], parent, place)
