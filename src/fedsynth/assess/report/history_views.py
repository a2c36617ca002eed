"""A few synthetic persons as time lines, and the first rows of each linked table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import pandas as pd

from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import figure, table
from fedsynth.assess.report.scale_chart import TimelineRow, timeline
from fedsynth.data.column import Column
from fedsynth.data.linked import LinkedTable, link
from fedsynth.data.linked_tables import Linked
from fedsynth.data.schema import Schema

_PERSONS = 6
_ROWS = 5
_MOST_WORDS = 3  # columns that a tip tells


def histories(synthetic: Mapping[str, pd.DataFrame], schema: Schema) -> list[Markup]:
    """Time lines of ordered tables, then rows of all."""
    linked = Linked(schema)
    lines = [
        tag(
            "div",
            figure(f"The first synthetic persons in time: rows of {of.name}, {_span(of)}", chart),
            class_="single",
        )
        for of, chart in _time_lines(linked, synthetic)
    ]
    rows = [part for name, frame in synthetic.items() for part in (tag("h3", name), _first(name, frame))]
    return [*lines, *rows]


def _span(of: LinkedTable) -> str:
    """From when to when a time line is."""
    column = of.schema.column(str(of.order))
    return " to ".join(map(column.text, column.bounds))


def _first(name: str, frame: pd.DataFrame) -> Markup:
    shown = frame.iloc[:_ROWS].itertuples(index=False)
    rows = [["–" if pd.isna(value) else str(value) for value in row] for row in shown]
    return table(list(map(str, frame.columns)), rows, f"The first synthetic rows of {name}", class_="sample")


def _time_lines(
    linked: Linked, synthetic: Mapping[str, pd.DataFrame]
) -> Iterator[tuple[LinkedTable, Markup]]:
    every = link(linked.tables, synthetic)
    root = linked.tables.root
    for of in linked.tables.tables:
        if of.order is None:
            continue
        rows, column = every[of.name], of.schema.column(of.order)
        others = [one for one in of.schema.columns if one.name in of.schema.names and not one.numeric][
            :_MOST_WORDS
        ]
        first, last = column.bounds
        lines = []
        for person in range(min(_PERSONS, len(synthetic[root.name]))):
            mine = (rows.person == person).nonzero()[0]
            tips = [
                ", ".join([column.text(moment), *(_word(one, rows.numbers[one.name][row]) for one in others)])
                for row, moment in zip(mine, rows.numbers[of.order][mine], strict=True)
            ]
            own = synthetic[root.name].iloc[person].drop(root.id or []).items()
            who = ", ".join(f"{name} {value}" for name, value in own)
            moments = [int(at - first) for at in rows.numbers[of.order][mine]]
            lines.append(TimelineRow(who, moments, tips, f"{len(mine)} row{'s' * (len(mine) != 1)}"))
        words = f"When {of.name} rows of {len(lines)} synthetic persons are, from {column.text(first)} on"
        yield of, timeline(lines, int(last - first) + 1, words)


def _word(column: Column, number: float) -> str:
    return "–" if math.isnan(number) else column.labels[int(number)]
