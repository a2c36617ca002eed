"""Conditions on columns as chances of their values: a junction tree then draws rows that meet them, and no others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsynth.data.conditions import Condition
from fedsynth.data.encode import anchors_of, numbers_at
from fedsynth.models.table_domain import TableDomain

_INSIDE = (np.arange(256) + 0.5) / 256  # places in a cell of numbers at which a condition is tried


def chances(domain: TableDomain, conditions: Sequence[Condition]) -> dict[int, np.ndarray]:
    """For each column that has conditions: the share of each of its values that meets them all.

    Moments that are counted since another one are left out: how long after it they are says nothing of their date.
    """
    names = [column.name for column in domain.schema.feature_columns]
    if domain.label is not None:
        names.append(str(domain.schema.label))
    meeting: dict[int, np.ndarray] = {}
    anchors = anchors_of(domain.schema)
    for condition in conditions:
        if condition.column.name in anchors:
            continue
        place = names.index(condition.column.name)
        allowed = condition.holds(_numbers(domain, place))
        meeting[place] = meeting[place] & allowed if place in meeting else allowed
    return {place: allowed.mean(axis=1) for place, allowed in meeting.items()}


def _numbers(domain: TableDomain, place: int) -> np.ndarray:
    """Numbers that the values of a column may be, [values, places inside]; NaN for missing."""
    if place == domain.label:
        label = domain.schema.label_column
        assert label is not None
        return label.lowest + np.arange(domain.sizes[place], dtype=np.float64)[:, None]
    axis, column = domain.axes[place], domain.encoding.learned[place]
    if axis.middles:
        numbers = numbers_at(column, np.array(axis.middles))[:, None]
    elif axis.block.ordered:
        inside = (np.arange(axis.cells)[:, None] + _INSIDE) / axis.cells
        numbers = numbers_at(column, inside.ravel()).reshape(inside.shape)
    else:
        numbers = np.arange(axis.cells, dtype=np.float64)[:, None]
    more = [*axis.alone, *([np.nan] if axis.block.missing else [])]
    return np.concatenate([numbers, np.broadcast_to(np.array(more)[:, None], (len(more), numbers.shape[1]))])
