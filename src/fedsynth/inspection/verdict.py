"""Is there a difference? Statistics against what noise alone would give, and a tolerance for what would not matter.

What noise gives is found by training the same models again, with the same noise, on made-up clients among whom there is
no difference: their rows are drawn from what was released, so this costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from fedsynth.errors import BadInput
from fedsynth.inspection.auxiliary import Trainer
from fedsynth.inspection.contrast import differences
from fedsynth.inspection.sample import Sample, made_up_clients, pooled
from fedsynth.inspection.selection import Share
from fedsynth.late import stats
from fedsynth.rng import Rng

TOLERANCE = 0.05  # differences up to this are taken for natural ones between groups of people
_ALARMS = (
    0.02  # for Student's quantile, over all statistics; noise alone passes in about 4%, without tolerance
)
_LEAST_DEVIATIONS = 3.0
BLIND = (
    0.5  # all statistics end at 1: a threshold beyond this would overlook a difference in half of the rows
)
LEAST_MODELS = 4  # fewer simulated models do not show how much noise varies
_MANY_MODELS = 64
Null = Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class Finding:
    """One statistic and what it is compared with."""

    name: str
    value: float
    expected: float  # what noise alone gives on average
    deviation: float
    threshold: float | None  # None where nothing was simulated to compare with

    @property
    def fires(self) -> bool:
        """Whether the difference is more than noise and tolerance explain, as far as that can be told."""
        return self.threshold is not None and self.value > self.threshold

    @property
    def answer(self) -> bool | None:
        """Whether there is a difference; None where even a large one would not have been noticed."""
        if self.fires:
            return True
        return None if self.threshold is None or self.threshold > BLIND else False

    @property
    def excess(self) -> float:
        """How far above its threshold the value is; without one, the value itself."""
        return self.value - (self.threshold or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**asdict(self), "fires": self.fires, "answer": self.answer}


def answered(findings: Sequence[Finding]) -> bool | None:
    """The answer of several statistics: yes if one says so, no if all do, otherwise it cannot be told."""
    answers = {finding.answer for finding in findings}
    return True if True in answers else False if answers == {False} else None


def needed(findings: Sequence[Finding], null: Null, models: int, tolerance: float = TOLERANCE) -> str:
    """The sentence that says what it takes to answer statistics that cannot be answered; empty if all can be.

    >>> null = [{"gap": 0.1}, {"gap": 0.2}, {"gap": 0.15}]
    >>> print(needed(judge({"gap": 0.1}, null, models=2), null, 2))
    Simulate more models: with models = 4 under [test], a difference of 0.5 would be noticed.
    """
    unclear = [finding for finding in findings if finding.answer is None]
    if not unclear:
        return ""
    if not null:
        return f"Simulate what noise alone shows: set models = 8 (at least {LEAST_MODELS}) under [test]."

    def highest(count: int) -> float:
        deviations = _deviations(len(findings), count)
        return max(tolerance + each.expected + deviations * each.deviation for each in unclear)

    for count in (count for count in (4, 6, 8, 12, 16, 24, 32, _MANY_MODELS) if count > models):
        if highest(count) <= BLIND:
            return (
                f"Simulate more models: with models = {count} under [test], a difference of {BLIND:g} would be "
                "noticed."
            )
    return (
        f"Noise alone gives differences around {max(each.expected for each in unclear):.2g} (of at most 1), and more "
        "simulated models would not help: it takes more clients, a larger epsilon, or fewer columns."
    )


def _deviations(statistics: int, models: int) -> float:
    """How many deviations above the mean of noise a threshold lies."""
    quantile = float(stats.t.isf(_ALARMS / max(1, statistics), max(1, models - 1)))
    return max(_LEAST_DEVIATIONS, quantile)


def judge(
    values: Mapping[str, float], null: Null, models: int, tolerance: float = TOLERANCE
) -> tuple[Finding, ...]:
    """Each statistic with its threshold: mean and several deviations of what noise gives, and the tolerance on top.

    `null` holds the differences between every two of so many simulated `models`: few models, few degrees of freedom.

    >>> findings = judge({"gap": 0.9}, [{"gap": 0.1}, {"gap": 0.2}, {"gap": 0.15}], models=3)
    >>> findings[0].fires, round(findings[0].threshold, 2)
    (True, 0.44)
    """
    deviations = _deviations(len(values), models)
    findings = []
    for name, value in values.items():
        noise_values = [entry[name] for entry in null if name in entry]
        expected = float(np.mean(noise_values)) if noise_values else 0.0
        deviation = float(np.std(noise_values, ddof=1)) if len(noise_values) > 1 else 0.0
        threshold = tolerance + expected + deviations * deviation if null else None
        findings.append(Finding(name, float(value), expected, deviation, threshold))
    return tuple(findings)


@dataclass(frozen=True)
class Simulation:
    """How to find out what noise alone does: so many models, trained on clients with so many rows each."""

    models: int = 8
    rows: int = 32
    shown: int = 2000

    def __post_init__(self) -> None:
        if self.models and self.models < LEAST_MODELS:
            raise BadInput(
                f"models={self.models}: how much noise varies is not seen from fewer than {LEAST_MODELS} simulated "
                "models; set 8, or 0 to simulate nothing"
            )

    def no_difference(
        self, trainer: Trainer, samples: Sequence[Sample], shares: Sequence[Share], rng: Rng
    ) -> list[dict[str, float]]:
        """Statistics between models of clients among whom there is no difference.

        How many clients really qualified is known only up to noise, and a model of few of them shows more noise. So
        each made-up population has another share of clients that hold rows, as far off as the answer may be.
        """
        if not self.models:
            return []
        together = pooled(samples)
        distinct = list(dict.fromkeys(shares))
        count = self.models if len(distinct) == 1 else max(2, math.ceil(self.models * 2 / 3))
        sides = [
            self._side(trainer, together, share, count, rng.at("side", place))
            for place, share in enumerate(distinct)
        ]
        pairs = combinations(sides[0], 2) if len(sides) == 1 else product(*sides[:2])
        return [differences(one, other) for one, other in pairs]

    def _side(self, trainer: Trainer, together: Sample, share: Share, count: int, rng: Rng) -> list[Sample]:
        samples = []
        for number in range(count):
            stream = rng.at("model", number)
            holding = share.drawn(stream.at("share"))
            clients = made_up_clients(together, trainer.task.clients, holding, self.rows, stream)
            generator = trainer.train(clients, share.guess, stream)
            samples.append(Sample.draw(generator, self.shown, stream.at("sample")))
        return samples
