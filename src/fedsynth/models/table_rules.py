"""Which combinations of two columns' values a schema's constraints allow: the structural zeros of a table's model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from fedsynth.data.column import Column
from fedsynth.data.encode import Anchor, anchors_of, numbers_at
from fedsynth.data.rules import Interval
from fedsynth.models.graphical import JunctionTree, spread
from fedsynth.models.table_domain import TableDomain


def allowed_pairs(domain: TableDomain) -> tuple[tuple[tuple[int, int], np.ndarray], ...]:
    """The pairs of columns that constraints tie, with the combinations of values that they allow."""
    schema = domain.schema
    columns = [*schema.feature_columns, *([schema.label_column] if schema.label_column else [])]
    tied = {name for rule in schema.rules for name in rule.columns}
    places = [place for place, column in enumerate(columns) if column.name in tied]
    tables = ((pair, possible_cells(domain, *pair)) for pair in combinations(places, 2))
    return tuple((pair, table) for pair, table in tables if not table.all())


def possible_cells(domain: TableDomain, one: int, other: int) -> np.ndarray:
    """True where rows may have these values of two columns of the domain, [values of one, values of other].

    A cell is False only if no row in it can keep all constraints; columns besides the two may be anything.
    """
    schema = domain.schema
    columns = [*schema.feature_columns, *([schema.label_column] if schema.label_column else [])]
    first, second = columns[one].name, columns[other].name
    low_one, high_one = value_ranges(domain, one)
    low_other, high_other = value_ranges(domain, other)
    ranges = {first: (low_one[:, None], high_one[:, None]), second: (low_other[None, :], high_other[None, :])}
    possible = np.ones((domain.sizes[one], domain.sizes[other]), dtype=bool)
    for name, anchor in anchors_of(schema).items():
        if name in ranges:
            ranges[name] = _moments(schema.column(name), anchor, ranges)
            possible &= ~(ranges[name][0] > schema.column(name).bounds[1])
    for rule in schema.rules:
        if {first, second} & {*rule.columns}:
            possible &= rule.possible(ranges)
    return possible


def _moments(column: Column, anchor: Anchor, ranges: dict[str, Interval]) -> Interval:
    """The least and the largest moment of values that count the time since an anchor."""
    from_anchor = ranges.get(anchor.name, anchor.column.bounds)
    low, high = (anchor.grains(column, end) for end in from_anchor)
    return ranges[column.name][0] + low, ranges[column.name][1] + high


def value_ranges(domain: TableDomain, place: int) -> Interval:
    """The least and the largest number of each value of a column of the domain; NaN for missing."""
    label = domain.schema.label_column
    if place == domain.label:
        assert label is not None
        numbers = label.lowest + np.arange(domain.sizes[place], dtype=np.float64)
        return numbers, numbers
    axis, column = domain.axes[place], domain.encoding.learned[place]
    if axis.middles:
        low = high = numbers_at(column, np.array(axis.middles))
    elif axis.block.ordered:
        edges = numbers_at(column, np.arange(axis.cells + 1) / axis.cells)
        low, high = edges[:-1], edges[1:]
    else:
        low = high = np.arange(axis.cells, dtype=np.float64)
    alone, missing = axis.alone, [np.nan] if axis.block.missing else []
    bounds = column.bounds if axis.spikes else (0.0, 0.0)
    least, most = (np.where(np.isnan(alone), bound, alone) for bound in bounds)
    return np.concatenate([low, least, missing]), np.concatenate([high, most, missing])


def merged_pairs(
    pairs: Sequence[tuple[tuple[int, ...], np.ndarray]], maps: Sequence[np.ndarray]
) -> dict[tuple[int, ...], np.ndarray]:
    """The pairs of merged values that constraints allow: those inside of which some values may meet."""
    tables: dict[tuple[int, ...], np.ndarray] = {}
    for pair, allowed in pairs:
        merged = np.zeros([int(maps[column].max()) + 1 for column in pair], dtype=bool)
        np.logical_or.at(merged, np.ix_(*(maps[column] for column in pair)), allowed)
        if not merged.all():
            tables[pair] = merged
    return tables


def tables_without(
    tree: JunctionTree, possible: Mapping[tuple[int, ...], np.ndarray]
) -> list[np.ndarray] | None:
    """Tables of the cliques with zeros where constraints allow nothing; None if they say nothing."""
    if not possible:
        return None
    tables = [np.full(shape, 1 / math.prod(shape)) for shape in tree.shapes]
    for pair, allowed in possible.items():
        place = tree.home(pair)
        if place is not None:
            tables[place] *= spread(allowed, pair, tree.cliques[place])
    return tables
