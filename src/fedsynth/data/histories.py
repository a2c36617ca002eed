"""Linked tables seen as flat ones, so that what goes together can be counted: persons, first rows, steps, children.

A view has columns that are known when a row is drawn (of the person, the parent, the row before) and columns that are
drawn. Drawing a history goes through the views: a person with its numbers of children, the first child, the next one
given the one before, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.axis import CountAxis
from fedsynth.data.column import Column
from fedsynth.data.history_moments import anchor_of, gap_column, learned_as
from fedsynth.data.linked import LinkedRows, LinkedSchema, LinkedTable


def before(name: str) -> str:
    """The name of a column's value in the row before."""
    return f"before {name}"


@dataclass(frozen=True)
class View:
    """A flat table over linked ones: its known columns, then those that are drawn."""

    name: str
    table: str
    known: tuple[Column, ...]
    drawn: tuple[Column, ...]
    counts: tuple[Column, ...] = ()  # of those drawn: numbers of children
    part: str = "every"  # which rows of the table: every, first or next

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns."""
        return (*self.known, *self.drawn)

    @cached_property
    def axes(self) -> tuple[CountAxis, ...]:
        """How the columns are counted."""
        return tuple(CountAxis(column) for column in self.columns)

    @cached_property
    def before(self) -> dict[str, str]:
        """By the name of a known column of the row before: the name of the same column now."""
        known = {column.name for column in self.known}
        return {before(column.name): column.name for column in self.drawn if before(column.name) in known}

    @cached_property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a column before and the same column now."""
        names = [column.name for column in self.columns]
        return tuple((names.index(earlier), names.index(now)) for earlier, now in self.before.items())

    def codes(self, numbers: Mapping[str, np.ndarray]) -> np.ndarray:
        """The codes [rows, columns] of these numbers."""
        return np.stack([axis.codes(numbers[axis.column.name]) for axis in self.axes], axis=1)


@dataclass(frozen=True)
class Histories:
    """How linked tables are seen, and how they come back."""

    schema: LinkedSchema

    @cached_property
    def views(self) -> tuple[View, ...]:
        """All views, in the order in which rows are drawn."""
        views = []
        for table in self.schema.tables:
            context = tuple(
                _named(one, column) for one in self.schema.ancestors(table) for column in self.learned(one)
            )
            own = tuple(_named(table, column) for column in self.learned(table))
            counts = tuple(_count(child) for child in self.schema.children(table.name))
            if table.parent is None:
                views.append(View(table.name, table.name, (), (*own, *counts), counts))
                continue
            number = _count(table)
            if table.order is None and own:
                views.append(View(f"each {table.name}", table.name, (*context, number), own))
            elif table.order is not None:
                last = Column(f"last {table.name}", "categorical", categories=("no", "yes"))
                known = (*context, number, last)
                earlier = tuple(replace(column, name=before(column.name)) for column in own)
                firsts, nexts = (self.start(table), *own), (gap_column(table), *own)
                views.append(View(f"first {table.name}", table.name, known, firsts, part="first"))
                views.append(View(f"next {table.name}", table.name, (*known, *earlier), nexts, part="next"))
            if counts:
                views.append(View(f"children of {table.name}", table.name, (*context, *own), counts, counts))
        return tuple(views)

    @cached_property
    def places(self) -> dict[str, int]:
        """The number of each view."""
        return {view.name: place for place, view in enumerate(self.views)}

    @cached_property
    def axes(self) -> dict[str, CountAxis]:
        """How each column is counted, wherever it stands."""
        ordered = [table for table in self.schema.tables if table.order is not None]
        moments = [_named(table, table.schema.column(str(table.order))) for table in ordered]
        axes = {column.name: CountAxis(column) for column in moments}
        return axes | {axis.column.name: axis for view in self.views for axis in view.axes}

    def learned(self, table: LinkedTable) -> tuple[Column, ...]:
        """The columns of a row as they are learned, but for the one that orders it."""
        return self._learned[table.name]

    @cached_property
    def _learned(self) -> dict[str, tuple[Column, ...]]:
        return {
            table.name: tuple(
                learned_as(self.schema, table, column.name)
                for column in table.schema.columns
                if column.name in table.schema.names and column.name != table.order
            )
            for table in self.schema.tables
        }

    def start(self, table: LinkedTable) -> Column:
        """When the first row of a parent is: a moment, or the time since the parent's."""
        column = learned_as(self.schema, table, str(table.order))
        if anchor_of(self.schema, table, str(table.order)) is None:
            return _named(table, column)
        return replace(column, name=f"{table.name} start")

    def encode(self, rows: Mapping[str, LinkedRows]) -> tuple[Tensor, Tensor, np.ndarray]:
        """The codes of all views' rows [rows, columns], the view of each row, and the person whose it is."""
        numbers = self.numbers(rows)
        width = max(len(view.columns) for view in self.views)
        codes, places, persons = [], [], []
        for place, view in enumerate(self.views):
            of, values = rows[view.table], numbers[view.table]
            chosen = np.flatnonzero(_counted(view, of))
            named = {
                column.name: values[view.before.get(column.name, column.name)][
                    chosen - (column.name in view.before)
                ]
                for column in view.columns
            }
            padded = np.zeros((len(chosen), width), dtype=np.float32)
            padded[:, : len(view.columns)] = view.codes(named)
            codes.append(torch.from_numpy(padded))
            places.append(torch.full((len(chosen),), place))
            persons.append(of.person[chosen])
        return torch.cat(codes), torch.cat(places), np.concatenate(persons)

    def numbers(self, rows: Mapping[str, LinkedRows]) -> dict[str, dict[str, np.ndarray]]:
        """By table, for each of its rows: what views know of the row, its parents, its children and its place."""
        numbers: dict[str, dict[str, np.ndarray]] = {}
        for table in self.schema.tables:
            of = rows[table.name]
            own = {} if table.parent is None else taken(numbers[table.parent], of.parent)
            for column in table.schema.columns:
                if column.name in table.schema.names:
                    own[f"{table.name}.{column.name}"] = of.numbers[column.name]
            if table.order is not None:
                start = own[f"{table.name}.{table.order}"]
                own[f"{table.name} start"] = start - self.base(table, table.order, own)
                own[f"{table.name} gap"] = np.diff(start, prepend=start[:1])
                own[f"last {table.name}"] = of.last * 1.0
            for column in self.learned(table):
                name = f"{table.name}.{column.name}"
                own[name] = own[name] - self.base(table, column.name, own)
            for child in self.schema.children(table.name):
                own[f"{child.name} count"] = np.bincount(rows[child.name].parent, minlength=len(of)) * 1.0
            numbers[table.name] = own
        return numbers

    def base(self, table: LinkedTable, name: str, numbers: Mapping[str, np.ndarray]) -> np.ndarray | float:
        """Return what a column is counted from, row by row, by the numbers of rows above and of the row itself."""
        anchor = anchor_of(self.schema, table, name)
        return 0.0 if anchor is None else anchor.grains(table.schema.column(name), numbers[anchor.name])


def _counted(view: View, rows: LinkedRows) -> np.ndarray:
    """Which rows of its table a view has."""
    if view.part == "every":
        return np.ones(len(rows), bool)
    return rows.place == 0 if view.part == "first" else rows.place > 0


def taken(values: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Some rows of all columns."""
    return {name: of[rows] for name, of in values.items()}


def _named(table: LinkedTable, column: Column) -> Column:
    return replace(column, name=f"{table.name}.{column.name}")


def _count(table: LinkedTable) -> Column:
    return Column(f"{table.name} count", "integer", min=0, max=table.most)
