"""Histories drawn through the views: persons, then the rows of each table, one after another for all parents at once.

A row that breaks a constraint, or lies beyond the last moment that there is, is drawn again; if many tries do not help,
all rows of its parent are, with gaps that let them fit into the time that is left. What still breaks a constraint is
left out, with all that would belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedsynth.data.histories import Histories, before, taken
from fedsynth.data.linked import LinkedRows, LinkedTable
from fedsynth.errors import BadInput

_REDRAWS = 20
Codes = dict[str, np.ndarray]
Numbers = dict[str, np.ndarray]  # of columns, called TABLE.COLUMN
Earlier = tuple[np.ndarray, np.ndarray]  # the moments of the rows before, and the longest gaps
Step = tuple[
    int, np.ndarray, Codes, Numbers, np.ndarray
]  # place, parents, codes, numbers, whether rows are kept
People = Callable[[int], np.ndarray]  # so many persons' codes
Draw = Callable[
    [int, np.ndarray], np.ndarray
]  # of a view: codes of the known columns to those of the drawn ones
Meets = Callable[[Mapping[str, np.ndarray]], np.ndarray]


@dataclass(frozen=True)
class HistoryDraw:
    """Draws whole histories by what draws codes: `people` of persons, `draw` of any other view."""

    histories: Histories
    people: People
    draw: Draw
    rng: np.random.Generator

    def rows(self, persons: int, meets: Meets | None = None) -> dict[str, LinkedRows]:
        """The histories of so many persons; `meets` tells by their columns which are wanted."""
        root, every = self.histories.schema.root, np.arange(persons)
        codes, numbers = self._persons(persons, meets)
        drawn = {root.name: (codes, numbers)}
        rows = {root.name: LinkedRows(_own(root, numbers), every, every, 0 * every)}
        for table in self.histories.schema.tables[1:]:
            assert table.parent is not None
            above = drawn[table.parent]
            parent, place, codes, numbers = self._children(table, *above)
            if self.histories.schema.children(table.name):
                codes = self._filled(f"children of {table.name}", codes)
            drawn[table.name] = codes, numbers
            rows[table.name] = LinkedRows(
                _own(table, numbers), rows[table.parent].person[parent], parent, place
            )
        return rows

    def _persons(self, persons: int, meets: Meets | None) -> tuple[Codes, Numbers]:
        """Persons that keep the constraints and meet what is wanted."""
        root = self.histories.schema.root
        names = [column.name for column in self.histories.views[0].columns]
        codes = dict(zip(names, self.people(persons).T, strict=True))
        numbers = self._numbers(root, codes, {}, None)
        for attempt in range(_REDRAWS + 1):
            wrong = ~self._keeps(root, numbers)
            if meets is not None:
                wrong |= ~meets(_own(root, numbers))
            places = np.flatnonzero(wrong)
            if not len(places) or attempt == _REDRAWS:
                break
            again = dict(zip(names, self.people(len(places)).T, strict=True))
            _put(codes, again, places)
            _put(numbers, self._numbers(root, again, {}, None), places)
        good = np.flatnonzero(~wrong)
        if not len(good):
            raise BadInput("no synthetic person keeps all constraints and conditions; drop a condition")
        if len(places):  # they are as those that do
            like = self.rng.choice(good, len(places))
            _put(codes, taken(codes, like), places)
            _put(numbers, taken(numbers, like), places)
        return codes, numbers

    def _children(
        self, table: LinkedTable, above: Codes, numbers_above: Numbers
    ) -> tuple[np.ndarray, np.ndarray, Codes, Numbers]:
        """A table's rows: parents, places among the parent's rows, codes and numbers."""
        counts = above[f"{table.name} count"]
        if table.order is None:
            parent = np.repeat(np.arange(len(counts)), counts)
            each = self._one(table, "each", taken(above, parent), taken(numbers_above, parent), None)
            steps: list[Step] = [(0, parent, *each)]
        else:
            steps = self._chains(table, above, numbers_above, counts)
        parents = np.concatenate([step[1] for step in steps])
        kept = np.concatenate([step[4] for step in steps])
        number = np.concatenate([np.full(len(step[1]), step[0]) for step in steps])
        order = np.lexsort((number, parents))
        order = order[kept[order]]
        own = [f"{table.name}.{column.name}" for column in self.histories.learned(table)]
        codes = {name: np.concatenate([step[2][name] for step in steps])[order] for name in (*above, *own)}
        numbers = {name: np.concatenate([step[3][name] for step in steps])[order] for name in steps[0][3]}
        parent = parents[order]
        return parent, np.arange(len(parent)) - np.searchsorted(parent, parent), codes, numbers

    def _chains(
        self, table: LinkedTable, above: Codes, numbers_above: Numbers, counts: np.ndarray
    ) -> list[Step]:
        """The rows of all parents; those of a parent that would lose one are drawn again."""
        steps = self._chain(table, above, numbers_above, counts, np.flatnonzero(counts > 0), final=False)
        lost = np.unique(np.concatenate([parent[~kept] for _, parent, _, _, kept in steps]))
        if not len(lost):
            return steps
        whole = [_some(step, ~np.isin(step[1], lost)) for step in steps]
        return whole + self._chain(table, above, numbers_above, counts, lost, final=True)

    def _chain(
        self,
        table: LinkedTable,
        above: Codes,
        numbers_above: Numbers,
        counts: np.ndarray,
        parent: np.ndarray,
        final: bool,
    ) -> list[Step]:
        """The first rows of some parents, then the second ones of those that have more, and so on.

        Rows after one that is not kept are drawn only if this is the `final` try.
        """
        last, start = f"last {table.name}", f"{table.name}.{table.order}"
        own = [f"{table.name}.{column.name}" for column in self.histories.learned(table)]
        known = {**taken(above, parent), last: (counts[parent] == 1).astype(np.int64)}
        codes, numbers, kept = self._one(table, "first", known, taken(numbers_above, parent), None)
        steps: list[Step] = [(0, parent, codes, numbers, kept)]
        for step in range(1, int(counts[parent].max(initial=0))):
            more = (counts[parent] > step) & (kept | final)
            parent, moments = parent[more], numbers[start][more]
            earlier = moments, self._longest(table, moments, counts[parent] - step, final)
            known = {**taken(above, parent), last: (counts[parent] == step + 1).astype(np.int64)}
            known |= {before(name): codes[name][more] for name in own}
            codes, numbers, kept = self._one(table, "next", known, taken(numbers_above, parent), earlier)
            steps.append((step, parent, codes, numbers, kept))
        return steps

    def _longest(self, table: LinkedTable, moments: np.ndarray, rows: np.ndarray, final: bool) -> np.ndarray:
        """How long the next gaps may be: at last, as if all rows to come lay anywhere in the time that is left."""
        if not final:
            return np.full(len(moments), np.inf)
        order = table.schema.column(str(table.order))
        left = np.maximum(order.bounds[1] - moments, 0.0) * (1 - self.rng.random(len(rows)) ** (1 / rows))
        return left if order.type == "continuous" else np.floor(left)

    def _one(
        self, table: LinkedTable, view: str, known: Codes, above: Numbers, earlier: Earlier | None
    ) -> tuple[Codes, Numbers, np.ndarray]:
        """One row for each parent: codes, numbers, and whether it keeps all constraints."""
        name = f"{view} {table.name}"
        if name not in self.histories.places:  # rows that only belong to others
            return known, above, np.ones(len(next(iter(known.values()))), bool)
        drawn = (
            self.histories.views[self.histories.places[name]].drawn if len(next(iter(known.values()))) else ()
        )
        codes = self._filled(name, known)
        numbers = {**above, **self._numbers(table, codes, above, earlier)}
        for attempt in range(_REDRAWS + 1):
            kept = self._keeps(table, numbers)
            wrong = np.flatnonzero(~kept)
            if not len(wrong) or attempt == _REDRAWS:
                break
            again = self._filled(name, taken(known, wrong))
            _put(codes, {column.name: again[column.name] for column in drawn}, wrong)
            anew = None if earlier is None else (earlier[0][wrong], earlier[1][wrong])
            _put(numbers, self._numbers(table, again, taken(above, wrong), anew), wrong)
        return codes, numbers, kept

    def _filled(self, name: str, known: Codes) -> Codes:
        """Return what is known of rows, with what a view draws for them."""
        place = self.histories.places[name]
        view = self.histories.views[place]
        evidence = np.stack([known[column.name] for column in view.known], axis=1)
        fresh = self.draw(place, evidence) if len(evidence) else np.zeros((0, len(view.drawn)), np.int64)
        return {**known, **dict(zip((column.name for column in view.drawn), fresh.T.copy(), strict=True))}

    def _numbers(self, table: LinkedTable, codes: Codes, above: Numbers, earlier: Earlier | None) -> Numbers:
        """Numbers out of codes, anywhere in their cells; the moment of a row follows that of the row before it."""
        numbers: Numbers = {}
        if table.order is not None:
            start, order = f"{table.name}.{table.order}", table.schema.column(table.order)
            first = self.histories.start(table).name
            if earlier is None:
                moments = self._number(first, codes) + self.histories.base(table, order.name, above)
            else:
                moments = earlier[0] + np.minimum(self._number(f"{table.name} gap", codes), earlier[1])
            numbers[start] = moments if order.decimals is None else np.round(moments, order.decimals)
        for column in self.histories.learned(table):
            name = f"{table.name}.{column.name}"
            base = self.histories.base(table, column.name, {**above, **numbers})
            numbers[name] = self._number(name, codes) + base
        return numbers

    def _number(self, name: str, codes: Codes) -> np.ndarray:
        return self.histories.axes[name].numbers(codes[name], self.rng.random(len(codes[name])))

    def _keeps(self, table: LinkedTable, numbers: Numbers) -> np.ndarray:
        """Which rows keep the table's constraints, and have their moments within bounds."""
        own = _own(table, numbers)
        kept = np.ones(len(next(iter(numbers.values()))), bool)
        for column in table.schema.columns:
            if (column.moment or column.name == table.order) and column.name in own:
                kept &= ~(own[column.name] > column.bounds[1]) & ~(own[column.name] < column.bounds[0])
        for rule in self.histories.schema.rules(table):
            if rule.derived not in table.schema.derived:
                kept &= rule.holds({**numbers, **own})
        return kept


def _own(table: LinkedTable, numbers: Numbers) -> Numbers:
    """A table's own columns by their plain names, those that are computed among them."""
    lead = f"{table.name}."
    own = {name.removeprefix(lead): values for name, values in numbers.items() if name.startswith(lead)}
    for name, rule in table.schema.derived.items():
        own[name] = rule.computed(own)
    return own


def _some(step: Step, rows: np.ndarray) -> Step:
    """Some rows of a step."""
    place, parent, codes, numbers, kept = step
    return place, parent[rows], taken(codes, rows), taken(numbers, rows), kept[rows]


def _put(values: Mapping[str, np.ndarray], fresh: Mapping[str, np.ndarray], places: np.ndarray) -> None:
    for name, of in fresh.items():
        values[name][places] = of
