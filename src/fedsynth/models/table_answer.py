"""A noisy answer to a question about tables, as shares with their precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsynth.models.graphical import Measured
from fedsynth.models.table_question import Question

_SURE = 1e-8  # variance of a share without noise: rows are a sample


@dataclass(frozen=True)
class Answer:
    """A question and its noisy answer: the units' sum over their number, and the standard deviation of its cells."""

    question: Question
    values: np.ndarray
    noise: float
    scale: np.ndarray  # what a unit adds to each table
    about: np.ndarray | None = None  # what clients say of themselves

    @cached_property
    def total(self) -> float:
        """The mass of a table: 1, or what a unit's rows add on average, by tables' precision; no less than noise."""
        sums = np.array([values.sum() for values in self.question.split(self.values)])
        cells = np.array([math.prod(shape) for shape in self.question.shapes])
        precision = float((self.scale**2 / cells).sum())
        least = min(1.0, self.noise / math.sqrt(precision))
        return max(1e-9, least, float((sums * self.scale / cells).sum() / precision))

    def measured(self, total: float) -> list[Measured]:
        """The tables as shares of the whole mass, with their precision."""
        pieces = zip(self.question.tables, self.question.split(self.values), self.scale * total, strict=True)
        return [
            Measured(table, values / scale, 1 / ((self.noise / scale) ** 2 + _SURE))
            for table, values, scale in pieces
        ]
