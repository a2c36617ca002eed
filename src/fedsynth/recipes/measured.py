"""The scores that recipes reached where they were measured, to say what to expect elsewhere: measured.json.

`tools/measured.py` makes the file from experiments/ and benchmarks/; nothing in it is typed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

_FAR = math.log(10)  # evidence that is more than ten times as much, or as little, says nothing


@dataclass(frozen=True)
class Measurement:
    """The scores of a recipe on one data set at one epsilon: the least and the largest over its trainings."""

    recipe: str
    data: str
    units: int  # that were protected: clients or records
    epsilon: float
    measure: str
    low: float
    high: float
    real: float  # what real rows reach
    source: str

    def __str__(self) -> str:
        span = (
            f"{self.low:.2f}"
            if f"{self.low:.2f}" == f"{self.high:.2f}"
            else f"{self.low:.2f}-{self.high:.2f}"
        )
        return f"{span} on {self.data} ({self.units:,} protected, epsilon {self.epsilon:g}; real rows {self.real:.2f})"


@cache
def measurements() -> tuple[Measurement, ...]:
    """All that was measured."""
    text = resources.files("fedsynth.recipes").joinpath("measured.json").read_text(encoding="utf-8")
    return tuple(Measurement(**entry) for entry in json.loads(text))


def near(recipe: str, units: int, epsilon: float) -> Sequence[Measurement]:
    """The measurements of a recipe nearest to so many units at this epsilon: two of less evidence, two of more.

    What noise leaves to be seen grows with epsilon times the number of units.
    """

    def distance(one: Measurement) -> float:
        return math.log(one.units * one.epsilon / (units * epsilon))

    known = [one for one in measurements() if one.recipe == recipe and abs(distance(one)) <= _FAR]
    less = sorted((one for one in known if distance(one) <= 0), key=lambda one: -distance(one))[:2]
    more = sorted((one for one in known if distance(one) > 0), key=distance)[:2]
    return [*reversed(less), *more]


def expectation(recipe: str, units: int, epsilon: float) -> str:
    """Say what to expect of a recipe, as a range, and what it was measured on."""
    known = near(recipe, units, epsilon)
    if not known:
        return f"{recipe} was not measured near so many units and this epsilon: what to expect is not known."
    kept = [(one.low - 0.5) / max(one.real - 0.5, 0.01) for one in known]
    kept += [(one.high - 0.5) / max(one.real - 0.5, 0.01) for one in known]
    low, high = (min(1.0, max(0.0, edge)) for edge in (min(kept), max(kept)))
    measured = "; ".join(map(str, known))
    return (
        f"Expect {low:.0%} to {high:.0%} of what real rows teach a classifier, if your table is like those that were "
        f"measured: {known[0].measure} {measured}."
    )
