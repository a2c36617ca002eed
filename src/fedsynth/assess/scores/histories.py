"""How far synthetic histories are from real ones: numbers of children, steps, gaps, relations, whole persons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsynth.data.axis import CountAxis
from fedsynth.data.clock import DAY
from fedsynth.data.histories import Histories, View
from fedsynth.data.linked import LinkedRows
from fedsynth.errors import BadInput

_MOST_VALUES = 20  # of a column that a person's summary tells apart
COARSE = 16  # cells of an ordered column
SOON = 30  # days after which a row is no longer soon after the one before


@dataclass(frozen=True)
class Coded:
    """Linked rows of one side, real or synthetic, as the codes of all views."""

    histories: Histories
    rows: Mapping[str, LinkedRows]

    @cached_property
    def _encoded(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x, y, person = self.histories.encode(self.rows)
        return x.numpy().astype(np.int64), y.numpy(), person

    def codes(self, view: View) -> np.ndarray:
        """The codes of a view's rows, ordered columns in a few cells."""
        x, y, _ = self._encoded
        codes = x[y == self.histories.views.index(view)][:, : len(view.columns)]
        for place, axis in enumerate(view.axes):
            codes[:, place] = _coarse(axis)[codes[:, place]]
        return codes

    @cached_property
    def numbers(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """By table: the numbers of its rows, moments as they are learned."""
        return self.histories.numbers(self.rows)

    def persons(self, view: View) -> np.ndarray:
        """The person of each of a view's rows."""
        _, y, person = self._encoded
        return person[y == self.histories.views.index(view)]


def _coarse(axis: CountAxis) -> np.ndarray:
    """The coarse code of each code: few cells of an ordered column, then zero and missing."""
    if axis.ordered <= COARSE:
        return np.arange(axis.size)
    others = np.arange(COARSE, COARSE + axis.size - axis.ordered)
    return np.concatenate([(axis.places * COARSE).astype(np.int64), others])


def distance(real: np.ndarray, synthetic: np.ndarray) -> float:
    """The total variation between the rows of two arrays of codes.

    >>> distance(np.array([[0, 1], [1, 1]]), np.array([[0, 1], [0, 1]]))
    0.5
    """
    if not len(real) or not len(synthetic):
        return float(len(real) != len(synthetic))
    both, place = np.unique(np.concatenate([real, synthetic]), axis=0, return_inverse=True)
    shares = [
        np.bincount(part, minlength=len(both)) / len(part) for part in np.split(place.ravel(), [len(real)])
    ]
    return 0.5 * float(np.abs(shares[0] - shares[1]).sum())


def children(real: Coded, synthetic: Coded) -> dict[str, float]:
    """By table: how far numbers of children of a parent are apart."""
    return {
        column.name.removesuffix(" count"): distance(*_columns(real, synthetic, view, [column.name]))
        for view in real.histories.views
        for column in view.counts
    }


def steps(real: Coded, synthetic: Coded) -> dict[str, float]:
    """By column of an ordered table: how far pairs of a value and the one before are apart."""
    return {
        view.columns[now].name: distance(
            real.codes(view)[:, [before, now]], synthetic.codes(view)[:, [before, now]]
        )
        for view in real.histories.views
        for before, now in view.steps
    }


def gaps(real: Coded, synthetic: Coded) -> dict[str, float]:
    """By ordered table: how far times between rows are apart."""
    return {
        view.table: distance(*_columns(real, synthetic, view, [f"{view.table} gap"]))
        for view in real.histories.views
        if view.part == "next"
    }


def order_statistics(real: Coded, synthetic: Coded) -> dict[str, float]:
    """By column with an order: how far the least, the middle and the largest value of a parent's rows are apart."""
    distances = {}
    for table in real.histories.schema.tables[1:]:
        for name, axis in real.histories.axes.items():
            if axis.ordered and name.startswith(f"{table.name}."):
                sides = [_ranked(side, table.name, name, axis) for side in (real, synthetic)]
                distances[name] = float(np.mean([distance(*pair) for pair in zip(*sides, strict=True)]))
    return distances


def _ranked(side: Coded, table: str, name: str, axis: CountAxis) -> list[np.ndarray]:
    """The coarse codes of the least, the middle and the largest value of each parent's rows."""
    values, parent = side.numbers[table][name], side.rows[table].parent
    known_rows = np.flatnonzero(~np.isnan(values))
    known_rows = known_rows[np.lexsort((values[known_rows], parent[known_rows]))]
    _, first, count = np.unique(parent[known_rows], return_index=True, return_counts=True)
    places = (first, first + count // 2, first + count - 1)
    return [_coarse(axis)[axis.codes(values[known_rows[place]])][:, None] for place in places]


def relations(real: Coded, synthetic: Coded) -> dict[str, float]:
    """By table: how far pairs of a parent's column and a column of its own are apart, on average."""
    distances: dict[str, list[float]] = {}
    for view in real.histories.views:
        own = (f"{view.table}.", f"{view.table} count", f"last {view.table}")
        parents = [c.name for c in view.known if not c.name.startswith(own) and c.name not in view.before]
        for one in parents:
            for other in view.drawn:
                pair = _columns(real, synthetic, view, [one, other.name])
                distances.setdefault(view.table, []).append(distance(*pair))
    return {table: float(np.mean(of)) for table, of in distances.items()}


def detection(real: Coded, synthetic: Coded, seed: int) -> float:
    """How well boosted trees tell a whole real history from a synthetic one: the AUC on persons they have not seen."""
    sides = [summaries(side) for side in (real, synthetic)]
    few = min(map(len, sides))
    rng = np.random.default_rng(seed)
    x = np.concatenate([side[rng.permutation(len(side))[:few]] for side in sides])
    y = np.repeat([0, 1], few)
    order = rng.permutation(len(y))
    half = len(y) // 2
    train, test = order[:half], order[half:]
    return _area((x[train], y[train]), (x[test], y[test]), seed)


def _area(train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], seed: int) -> float:
    """The AUC of boosted trees that learn from one table of numbers and are tested on another."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import, and a run needs none
    from sklearn.metrics import roc_auc_score

    model = HistGradientBoostingClassifier(random_state=seed).fit(*train)
    x, y = test
    return float(roc_auc_score(y, model.predict_proba(x)[:, 1]))


def summaries(side: Coded) -> np.ndarray:
    """A line of numbers for each person: own columns, then for each view shares and means over its rows."""
    first = side.histories.views[0]
    persons = len(side.rows[first.table])
    lines = [side.codes(first).astype(float)]
    for view in side.histories.views[1:]:
        codes, person = side.codes(view), side.persons(view)
        rows = np.maximum(np.bincount(person, minlength=persons), 1)
        for place, column in enumerate(view.columns):
            if column not in view.drawn:
                continue
            for values in _numbers(codes[:, place], view.axes[place]):
                lines.append((np.bincount(person, weights=values, minlength=persons) / rows)[:, None])
        for before, now in view.steps:
            same = (codes[:, before] == codes[:, now]).astype(float)
            lines.append((np.bincount(person, weights=same, minlength=persons) / rows)[:, None])
    return np.concatenate(lines, axis=1)


def _numbers(codes: np.ndarray, axis: CountAxis) -> Iterable[np.ndarray]:
    """Return what is averaged of a column: its number, or whether it has each of the first values."""
    if axis.ordered:
        return [codes.astype(float)]
    return [(codes == value).astype(float) for value in range(min(axis.size, _MOST_VALUES))]


def soon_again(train: Coded, test: Coded, table: str, seed: int) -> float:
    """The AUC of boosted trees that learn from one side whether the next row comes soon, tested on the other.

    For visits: readmission within 30 days.
    """
    views = [view for view in train.histories.views if (view.table, view.part) == (table, "next")]
    if not views:
        raise BadInput(f"table {table!r}: has no order, so that no row comes after another")
    (view,) = views
    sides = [_task(side, view) for side in (train, test)]
    if any(len(np.unique(y)) < 2 for _, y in sides):
        raise BadInput(f"table {table!r}: the next row always, or never, comes within {SOON} days")
    return _area(sides[0], sides[1], seed)


def _task(side: Coded, view: View) -> tuple[np.ndarray, np.ndarray]:
    of = side.rows[view.table]
    table = side.histories.schema.table(view.table)
    order = table.schema.column(str(table.order))
    later = np.diff(of.numbers[order.name])[of.place[1:] > 0] * order.grain_seconds / DAY
    known = [
        place
        for place, column in enumerate(view.known)
        if column.name not in (f"last {view.table}", f"{view.table} count")
    ]
    return side.codes(view)[:, known], (later <= SOON).astype(int)


def _columns(real: Coded, synthetic: Coded, view: View, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    places = [next(p for p, column in enumerate(view.columns) if column.name == name) for name in names]
    return real.codes(view)[:, places], synthetic.codes(view)[:, places]
