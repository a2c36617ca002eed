"""Scores that other packages add to every evaluation, by the entry point `fedsynth.metrics`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedsynth.assess.scores.score import Goal, Score
from fedsynth.assess.step import Found, Step
from fedsynth.data.modality import kinds_of
from fedsynth.data.schema import Schema
from fedsynth.plugins import load_plugins


@dataclass(frozen=True)
class Metric:
    """A number by a function of real rows, synthetic rows and the schema, as `evaluate` takes them."""

    measure: Callable[[Any, Any, Schema], float]
    kinds: tuple[str, ...] = ("table",)
    goal: Goal = "max"
    range: tuple[float, float] = (0.0, 1.0)


def metric_steps(real: Any, synthetic: Any, schema: Schema) -> list[Step]:
    """One step for each installed metric of this kind of data; scores are named after their package too."""
    plugins = load_plugins("fedsynth.metrics", _problem)
    steps = []
    for name, metric in plugins.objects.items():
        if {*metric.kinds} & {*kinds_of(schema)}:
            title = f"{name} ({plugins.packages[name]})"
            steps.append(Step(title, (title,), partial(_measured, title, metric, real, synthetic, schema)))
    return steps


def _measured(title: str, metric: Metric, real: Any, synthetic: Any, schema: Schema) -> Found:
    value = float(metric.measure(real, synthetic, schema))
    return Found((Score(title, value, metric.goal, metric.range),))


def _problem(name: str, value: Any) -> str | None:
    return None if isinstance(value, Metric) else f"{type(value).__name__} is no Metric"
