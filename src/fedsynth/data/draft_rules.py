"""Rules that a table keeps, read from the rows: moments in order, sums, groups of a number, and implications.

A rule that would hold by accident is left out: if values were dealt to rows by chance it would have to break often.
What is left is `inferred`, for a person to confirm: that no row breaks a rule does not make it one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, permutations

import numpy as np
import pandas as pd

from fedsynth.data.column import Column
from fedsynth.data.encode import DAYS
from fedsynth.data.rule_parser import parse_rule
from fedsynth.data.schema import Schema
from fedsynth.data.values import read_values
from fedsynth.errors import BadInput

ENOUGH = 10  # rows that would break a rule if it were an accident
_MOST_CATEGORIES = 12  # of a column that implies something
_MOST_IMPLICATIONS = 12
_TRIED = 64  # rows on which sums are tried before all are
Numbers = Mapping[str, np.ndarray]


def rules_of(schema: Schema, frame: pd.DataFrame) -> tuple[str, ...]:
    """The rules that all rows keep, without those that follow from others."""
    columns = schema.feature_columns
    numbers = {column.name: read_values(column, frame[column.name]).numbers for column in columns}
    rules = [
        *_orders(columns, numbers),
        *_sums(columns, numbers),
        *_groups(columns, numbers),
        *_implications(columns, numbers),
    ]
    return tuple(rule for text in dict.fromkeys(rules) for rule in readable(text, columns))


def readable(text: str, columns: tuple[Column, ...]) -> Iterator[str]:
    """The rule, unless names of columns make it unreadable."""
    try:
        parse_rule(text, columns)
    except BadInput:
        return
    yield text


def keeps_order(later: np.ndarray, earlier: np.ndarray, by_chance: np.ndarray) -> bool:
    """Whether nothing lies before what should be earlier, where many would if that were dealt by chance."""
    return not (later < earlier).any() and int((later < by_chance).sum()) >= ENOUGH


def seconds_of(column: Column, numbers: np.ndarray) -> np.ndarray:
    """A column's moments in seconds; NaN where missing."""
    return column.first_second + numbers * column.grain_seconds


def _orders(columns: tuple[Column, ...], numbers: Numbers) -> Iterator[str]:
    """Which moments never come before another, without what follows from two such rules."""
    moments = {c.name: seconds_of(c, numbers[c.name]) for c in columns if c.type in DAYS}
    always = {c.name for c in columns if not c.missing}
    draw = np.random.default_rng(0)
    after = {
        (one, other)
        for one, other in permutations(moments, 2)
        if keeps_order(moments[one], moments[other], draw.permutation(moments[other]))
    }
    for one, other in ((one, other) for one in moments for other in moments if (one, other) in after):
        if not any((one, mid) in after and (mid, other) in after for mid in {*moments} & always):
            yield f"{one} >= {other}"


def _sums(columns: tuple[Column, ...], numbers: Numbers) -> Iterator[str]:
    """Which numbers are the sum of two others, and which are the days between two dates."""
    counted = {c.name: numbers[c.name] for c in columns if c.numeric and not c.moment}
    counted = {name: values for name, values in counted.items() if _varied(values)}
    first = {_key(values[:_TRIED]): name for name, values in counted.items()}
    derived: set[str] = set()
    for one, other in combinations(counted, 2):
        total = first.get(_key(counted[one][:_TRIED] + counted[other][:_TRIED]))
        if total in (None, one, other) or {one, other} & derived:
            continue
        if total not in derived and _equal(counted[str(total)], counted[one] + counted[other]):
            derived.add(str(total))
            yield f"{total} == {one} + {other}"
    days = {c.name: np.floor(seconds_of(c, numbers[c.name]) / 86400) for c in columns if c.type == "date"}
    for later, earlier in permutations(days, 2):
        gap = first.get(_key(days[later][:_TRIED] - days[earlier][:_TRIED]))
        if gap and gap not in derived and _equal(counted[gap], days[later] - days[earlier]):
            derived.add(gap)
            yield f"{gap} == {later} - {earlier}"


def _varied(values: np.ndarray) -> bool:
    """Whether a column has several values, and often another than zero."""
    return len(np.unique(values[~np.isnan(values)])) > 2 and int((values > 0).sum()) >= ENOUGH


def _key(values: np.ndarray) -> bytes:
    return (np.round(values, 6) + 0.0).tobytes()


def _equal(total: np.ndarray, parts: np.ndarray) -> bool:
    """Whether both are missing together, and equal elsewhere."""
    there = ~np.isnan(total)
    return bool((there == ~np.isnan(parts)).all() and np.allclose(total[there], parts[there], atol=1e-6))


def _groups(columns: tuple[Column, ...], numbers: Numbers) -> Iterator[str]:
    """Which categories divide the range of a number, such as groups of age."""
    counted = [c for c in columns if c.numeric and not c.moment and not c.missing]
    for named in _few(columns):
        for column in counted:
            values = pd.Series(numbers[column.name]).groupby(numbers[named.name])
            ends = values.agg(["min", "max", "size"]).sort_values("min")
            apart = (ends["max"].iloc[:-1].to_numpy() < ends["min"].iloc[1:].to_numpy()).all()
            wide = (ends["max"] > ends["min"]).any()  # else the two say the same, one by name
            if len(ends) < 2 or not apart or not wide or ends["size"].min() < ENOUGH:
                continue
            cuts = [f"{cut:g}" for cut in ends["min"]]
            for place, code in enumerate(ends.index):
                low = f"{column.name} >= {cuts[place]}"
                high = f"{column.name} < {cuts[place + 1]}" if place + 1 < len(cuts) else ""
                inside = " and ".join(part for part in (low if place else "", high) if part)
                yield f"{named.name} == {named.labels[int(code)]!r} implies {inside}"


def _implications(columns: tuple[Column, ...], numbers: Numbers) -> Iterator[str]:
    """Which category of one column goes with one category of another alone, the surest first."""
    surest: dict[frozenset[tuple[str, int]], tuple[float, float, str]] = {}
    for one, other in permutations(_few(columns), 2):
        counts = np.zeros((len(one.labels), len(other.labels)))
        np.add.at(counts, (numbers[one.name].astype(int), numbers[other.name].astype(int)), 1)
        shares = counts.sum(0) / counts.sum()
        for code, row in enumerate(counts):
            only = np.flatnonzero(row).tolist()
            if len(only) != 1:
                continue
            rows, chance = float(row.sum()), float(row.sum() * (1 - shares[only[0]]))
            result = f"{other.name} == {other.labels[only[0]]!r}"
            text = f"{one.name} == {one.labels[code]!r} implies {result}"
            # of two categories the rule says the same as its converse: the one about fewer rows is kept
            never = 1 - only[0] if len(other.labels) == 2 else -1 - only[0]
            cell = frozenset({(one.name, code), (other.name, never)})
            if chance >= 2 * ENOUGH and rows < surest.get(cell, (0.0, np.inf, ""))[1]:
                surest[cell] = (chance, rows, text)
    for _, _, text in sorted(surest.values(), key=lambda rule: -rule[0])[:_MOST_IMPLICATIONS]:
        yield text


def _few(columns: tuple[Column, ...]) -> list[Column]:
    """The columns of few categories that are always there."""
    named = [c for c in columns if not c.numeric and not c.missing]
    return [c for c in named if 2 <= len(c.labels) <= _MOST_CATEGORIES]
