"""Questions to the clients before training: percentiles, weak classes, and at how many clients the model fails.

Each client answers with one vector of length at most 1 that it computed at home; the noisy sum of all answers is what
is learned, for a line in the ledger. A failure is one more bin, so telling their number costs nothing extra.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from dp_accounting import DpEvent

from fedsynth.data.schema import Schema
from fedsynth.federation.loop import Pay
from fedsynth.federation.statistics import quantiles
from fedsynth.inspection.criterion import Criterion
from fedsynth.inspection.population import Population
from fedsynth.inspection.selection import Selection, Share
from fedsynth.inspection.step import BINS, MEETING, SHARES, SLICES, InspectionQuestion
from fedsynth.privacy import account
from fedsynth.privacy.central import gaussian_event
from fedsynth.rng import Rng

_EDGES = tuple(step / BINS for step in range(BINS + 1))


@dataclass(frozen=True)
class Spread:
    """The spread of the clients' shares: noisy numbers of clients by bin, and of those at which the model failed."""

    criterion: str
    counts: tuple[float, ...]
    failed: float
    deviation: float  # of each number

    @classmethod
    def of(cls, criterion: Criterion, answer: np.ndarray, deviation: float) -> Spread:
        """Read the answer to a question about shares."""
        return cls(criterion.words, tuple(map(float, answer[:BINS])), float(answer[BINS]), deviation)

    def settle(self, selection: Selection) -> Selection:
        """The selection with its percentiles as bounds."""
        wanted = [b.value for b in (selection.below, selection.above) if b is not None and b.percentile]
        bounds = quantiles(torch.tensor(self.counts), _EDGES, wanted)
        return selection.settled(dict(zip(wanted, bounds, strict=True)))


def weak_classes(criterion: Criterion, answer: np.ndarray, deviation: float) -> Criterion:
    """The classes whose accuracy is below the bound; one too rare to be told from noise is left out."""
    classes = len(answer) // 2
    right, wrong = answer[:classes].clip(0), answer[classes:].clip(0)
    frequent = right + wrong > 3 * deviation
    weak = frequent & (right / np.maximum(right + wrong, 1e-9) < criterion["accuracy_below"])
    return replace(criterion, classes=tuple(np.flatnonzero(weak).tolist()))


@dataclass(frozen=True)
class Settled:
    """A selection with everything known that it needs: bounds, classes, and how many qualify."""

    selection: Selection
    share: Share


@dataclass(frozen=True)
class InspectionSurvey:
    """The questions of an inspection: one for each criterion that has a percentile, a model, or classes to be found."""

    selections: Mapping[str, Selection]
    questions: Mapping[Criterion, InspectionQuestion]

    @classmethod
    def of(cls, selections: Mapping[str, Selection]) -> InspectionSurvey:
        """Return the questions to ask before these selections can be trained on."""
        questions: dict[Criterion, InspectionQuestion] = {}
        for selection in selections.values():
            criterion = selection.criterion
            if criterion in questions or not (
                criterion.by_class or criterion.needs_model or selection.percentiles
            ):
                continue
            kind = SLICES if criterion.by_class else SHARES
            questions[criterion] = InspectionQuestion(kind, (selection,), len(questions))
        return cls(selections, questions)

    @property
    def size(self) -> int:
        """How many questions there are, with the last one: how many meet each selection."""
        return len(self.questions) + 1

    def last(self, settled: Iterable[Selection]) -> InspectionQuestion:
        """How many clients meet each of the selections now."""
        return InspectionQuestion(MEETING, tuple(settled), len(self.questions))

    @property
    def all(self) -> tuple[InspectionQuestion, ...]:
        """Every question, the last one about selections that are not settled yet: it costs the same."""
        return (*self.questions.values(), self.last(self.selections.values()))

    def noise(self, epsilon: float, delta: float) -> float:
        """The noise of each question, if all of them together may cost so much."""
        return account.calibrate(
            lambda noise: account.repeat(gaussian_event(noise), self.size), epsilon, delta
        )

    def events(self, noise: float | None) -> list[DpEvent]:
        """The events that the answers cost."""
        return [] if noise is None else [gaussian_event(noise)] * self.size

    def conduct(
        self, population: Population, schema: Schema, clients: int, noise: float | None, rng: Rng, pay: Pay
    ) -> tuple[dict[str, Settled], tuple[Spread, ...]]:
        """Ask, settle the selections by the answers, and ask how many clients meet each of them now."""

        def answer_to(question: InspectionQuestion) -> np.ndarray:
            query = question.query(schema, clients, noise)
            return population.ask(question, query, rng.at(*question.stream), pay)

        answers = {criterion: answer_to(question) for criterion, question in self.questions.items()}
        spreads = {
            criterion: Spread.of(criterion, answer, noise or 0.0)
            for criterion, answer in answers.items()
            if not criterion.by_class
        }
        settled = [
            _settle(selection, answers, spreads, noise or 0.0) for selection in self.selections.values()
        ]
        unit = math.sqrt(len(settled)) / clients
        shares = answer_to(self.last(settled)) * unit
        named = {
            name: Settled(selection, Share(float(share), (noise or 0.0) * unit))
            for name, selection, share in zip(self.selections, settled, shares, strict=True)
        }
        return named, tuple(spreads.values())


def _settle(
    selection: Selection,
    answers: Mapping[Criterion, np.ndarray],
    spreads: Mapping[Criterion, Spread],
    noise: float,
) -> Selection:
    criterion = selection.criterion
    if criterion.by_class:
        return replace(selection, criterion=weak_classes(criterion, answers[criterion], noise))
    return spreads[criterion].settle(selection) if selection.percentiles else selection
