"""The pieces of an evaluation of linked tables: each distance beside that of two halves of the real persons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

import numpy as np

from fedsynth.assess.scores import histories as scores
from fedsynth.assess.scores.histories import Coded
from fedsynth.assess.scores.score import Score
from fedsynth.assess.step import Comparison, Found, Step
from fedsynth.data.linked import LinkedRows, link
from fedsynth.data.linked_tables import Linked

CHILDREN, STEPS, GAPS = "children per parent: distance", "steps to the next row: distance", "gaps: distance"
ORDER = "least, middle and largest of a parent's rows: distance"
RELATIONS, DETECTION = "parents and children: distance", "histories told apart (AUC)"
_SHOWN = 6  # persons whose time lines are shown


def soon_name(table: str) -> str:
    """The name of the score of a task about histories."""
    return f"boosted trees on the next {table} within {scores.SOON} days: auc"


def history_steps(compared: Comparison) -> Sequence[Step]:
    """Every piece for linked tables; without test persons, every fifth real one is held out."""
    work = _Work(compared)
    distances: dict[str, Callable[[Coded, Coded], dict[str, float]]] = {
        CHILDREN: scores.children,
        STEPS: scores.steps,
        GAPS: scores.gaps,
        ORDER: scores.order_statistics,
        RELATIONS: scores.relations,
    }
    ordered = [table.name for table in work.linked.tables.tables if table.order is not None]
    if not ordered:
        distances = {name: measure for name, measure in distances.items() if name not in (STEPS, GAPS)}
    if not any(axis.ordered for name, axis in work.linked.histories.axes.items() if work.inner(name)):
        distances.pop(ORDER)
    steps = [Step(name, (name,), partial(work.distance, name, of)) for name, of in distances.items()]
    steps.append(Step("whole histories", (DETECTION,), work.detection))
    steps += [Step(soon_name(table), (soon_name(table),), partial(work.soon, table)) for table in work.dated]
    return [*steps, Step("time lines", (), work.time_lines)]


class _Work:
    def __init__(self, compared: Comparison) -> None:
        self.linked, self._seed = Linked(compared.schema), compared.seed
        self._frames = {"real": compared.real, "synthetic": compared.synthetic, "test": compared.test}

    def inner(self, name: str) -> bool:
        """Whether a column is of rows that belong to a parent."""
        return any(name.startswith(f"{table.name}.") for table in self.linked.tables.tables[1:])

    @property
    def dated(self) -> list[str]:
        """The tables whose rows are ordered by days, so that one can come soon after another."""
        orders = {t.name: t.schema.column(t.order) for t in self.linked.tables.tables if t.order is not None}
        return [name for name, column in orders.items() if column.type in ("date", "timestamp")]

    @cached_property
    def _sides(self) -> dict[str, Coded]:
        """Real, synthetic and unseen persons."""
        rows = {
            name: link(self.linked.tables, frames)
            for name, frames in self._frames.items()
            if frames is not None
        }
        if "test" not in rows:
            person = np.arange(len(rows["real"][self.linked.tables.root.name]))
            whole = rows["real"]
            rows["test"] = chosen(self.linked, whole, person % 5 == 0)
            rows["real"] = chosen(self.linked, whole, person % 5 != 0)
        return {name: Coded(self.linked.histories, of) for name, of in rows.items()}

    def distance(self, name: str, measure: Callable[[Coded, Coded], dict[str, float]]) -> Found:
        sides = self._sides
        by_name, beside = measure(sides["test"], sides["synthetic"]), measure(sides["test"], sides["real"])
        detail = {"real": float(np.mean([*beside.values()])), "by": by_name, "real_by": beside}
        score = Score(name, float(np.mean([*by_name.values()])), "min", detail=detail)
        return Found((score,), {"histories": {name: {"synthetic": by_name, "real": beside}}})

    def detection(self) -> Found:
        sides = self._sides
        value = scores.detection(sides["test"], sides["synthetic"], self._seed)
        beside = scores.detection(sides["test"], sides["real"], self._seed)
        return Found(
            (
                Score(
                    DETECTION,
                    max(value, 1 - value),
                    "min",
                    (0.5, 1.0),
                    detail={"real": max(beside, 1 - beside)},
                ),
            )
        )

    def soon(self, table: str) -> Found:
        sides = self._sides
        value = scores.soon_again(sides["synthetic"], sides["test"], table, self._seed)
        beside = scores.soon_again(sides["real"], sides["test"], table, self._seed)
        return Found(
            (
                Score(
                    soon_name(table),
                    value,
                    detail={"train_on_real": beside, "majority": 0.5, "test": "unseen persons"},
                ),
            )
        )

    def time_lines(self) -> Found:
        """The moments of a few synthetic persons, who are nobody."""
        lines = {}
        for table in self.linked.tables.tables:
            rows = self._sides["synthetic"].rows[table.name]
            if table.order is not None:
                few = rows.person < _SHOWN
                first, last = table.schema.column(table.order).bounds
                lines[table.name] = [
                    {"person": int(person), "at": float((at - first) / max(1, last - first))}
                    for person, at in zip(rows.person[few], rows.numbers[table.order][few], strict=True)
                ]
        return Found((), {"histories": {"time_lines": lines}})


def chosen(linked: Linked, rows: Mapping[str, LinkedRows], persons: np.ndarray) -> dict[str, LinkedRows]:
    """The rows of some persons, in all tables."""
    kept: dict[str, LinkedRows] = {}
    numbered: dict[str, np.ndarray] = {}
    for table in linked.tables.tables:
        of = rows[table.name]
        mine = persons[of.person]
        numbered[table.name] = np.cumsum(mine) - 1
        above = numbered[table.parent or table.name]
        numbers = {name: values[mine] for name, values in of.numbers.items()}
        person = numbered[linked.tables.root.name][of.person[mine]]
        kept[table.name] = LinkedRows(numbers, person, above[of.parent[mine]], of.place[mine])
    return kept
