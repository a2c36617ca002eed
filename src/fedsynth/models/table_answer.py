"""A noisy answer to a question about tables, as shares with their precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsynth.models.graphical import Measured
from fedsynth.models.table_merging import on_simplex
from fedsynth.models.table_question import ClientCells, Question

_WHOLE = 0.5  # of the clients: their rows count in full
_WORTH = 1.4  # times more than by their means: then sums over clients' rows are asked for
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


def row_weight(answers: Sequence[Answer], about: ClientCells | None, *, always: bool) -> float:
    """Return the weight that a row adds: so much that the rows of half of the clients stay within the norm together.

    0, the mean over a client's rows, where that is not worth it, unless `always`.
    """
    if about is None or not answers or answers[-1].about is None:
        return 0.0
    _, shares = about.split(answers[-1].about)
    shorter = np.cumsum(on_simplex(shares))
    weight = 1 / float(about.lengths[np.searchsorted(shorter, _WHOLE).clip(max=len(shares) - 1)])
    if always:
        return weight
    rows = float(row_counts(answers, about) @ np.arange(1, about.most_rows + 1))
    return weight if len(answers) > 1 and rows * weight > _WORTH else 0.0


def row_counts(answers: Sequence[Answer], about: ClientCells | None) -> np.ndarray:
    """The share of clients with 1, 2, ... rows, the last with that many or more; none if it was not asked for."""
    reports = [one.about for one in answers if one.about is not None]
    if about is None or not reports:
        return np.empty(0)
    return on_simplex(about.split(np.mean(reports, axis=0))[0])
