"""Questions to the clients before training: percentiles, weak classes, and at how many clients the model fails.

Each client answers with one vector of length at most 1 that it computed at home; the noisy sum of all answers is what
is learned, for a line in the ledger. A failure is one more bin, so telling their number costs nothing extra.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from dp_accounting import DpEvent
from torch import Tensor

from fedsynth.data.clients import Clients, Padded, RawClients
from fedsynth.data.schema import Schema
from fedsynth.engines.inprocess import InProcess
from fedsynth.federation.loop import Pay, ask
from fedsynth.federation.query import Query
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import quantiles
from fedsynth.inspect.criterion import Classified, Criterion, WeakSlices, label_places
from fedsynth.inspect.primary import Primary
from fedsynth.inspect.selection import Marks, Selection, Share, chosen_rows, mark
from fedsynth.privacy import account
from fedsynth.privacy.central import CentralGaussian, gaussian_event
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.mechanism import Mechanism
from fedsynth.privacy.none import NoPrivacy
from fedsynth.rng import Rng

BINS = 20
_EDGES = tuple(step / BINS for step in range(BINS + 1))


@dataclass(frozen=True)
class Given:
    """What each client computed at home, as its one row."""

    def __call__(self, data: Padded) -> Tensor:
        """[clients, numbers]."""
        return data.x[:, 0]


@dataclass(frozen=True)
class Question:
    """One vector from each client."""

    what: str
    answers: np.ndarray  # [clients, numbers], each of length at most 1

    def query(self, noise_multiplier: float | None) -> Query:
        """The question with its noise; None asks without protection."""
        mechanism: Mechanism = NoPrivacy()
        if noise_multiplier is not None:
            mechanism = CentralGaussian(Clip(1.0), noise_multiplier)
        clients, numbers = self.answers.shape
        return Query(self.what, Given(), numbers, mechanism, clients)

    def ask(self, noise_multiplier: float | None, rng: Rng, pay: Pay) -> np.ndarray:
        """The noisy sum of the answers; it is paid for before it is opened."""
        rows = torch.from_numpy(np.ascontiguousarray(self.answers, dtype=np.float32))
        held = Clients(rows, torch.zeros(len(rows), dtype=torch.int64), np.arange(len(rows) + 1))
        link = InProcess(held, rng)
        return ask(self.query(noise_multiplier), link, ServerState(0, {}), rng, pay).numpy()


def shares_question(raw: RawClients, criterion: Criterion, marks: Marks) -> Question:
    """How the share of rows that meet a criterion is spread over clients; the last bin counts failures."""
    shares = marks.shares(raw)
    answers = np.zeros((raw.count, BINS + 1))
    known = np.flatnonzero(~np.isnan(shares))
    answers[known, np.minimum((shares[known] * BINS).astype(int), BINS - 1)] = 1
    answers[marks.failed, BINS] = 1
    return Question(f"clients by their share of rows {criterion.words}", answers)


def slices_question(raw: RawClients, schema: Schema, right: Marks) -> Question:
    """Each class's share of a client's rows that the model gets right, and of those that it gets wrong."""
    classes = len(schema.classes)
    label = label_places(raw, schema)
    counted = (label >= 0) & ~right.failed[raw.owner]
    answers = np.zeros((raw.count, 2 * classes))
    places = label + classes * ~right.rows
    np.add.at(answers, (raw.owner[counted], places[counted]), 1.0)
    answers /= np.maximum(answers.sum(1, keepdims=True), 1.0)
    return Question("accuracy of the model by class", answers)


def meeting_question(raw: RawClients, settled: Sequence[tuple[Selection, Marks]]) -> Question:
    """Whether a client meets each selection; it may meet all of them, so each yes counts 1 / sqrt(selections)."""
    meets = [[rows.any() for rows in chosen_rows(raw, selection, marks)] for selection, marks in settled]
    answers = np.array(meets, dtype=np.float64).T / math.sqrt(len(settled))
    return Question("clients that meet each selection", answers)


@dataclass(frozen=True)
class Spread:
    """What is known of the clients' shares: noisy numbers of clients by bin, and of those at which the model failed."""

    criterion: str
    counts: tuple[float, ...]
    failed: float
    deviation: float  # of each number

    @classmethod
    def of(cls, criterion: Criterion, answer: np.ndarray, deviation: float) -> Spread:
        """Read the answer to `shares_question`."""
        return cls(criterion.words, tuple(map(float, answer[:BINS])), float(answer[BINS]), deviation)

    def settle(self, selection: Selection) -> Selection:
        """The selection with its percentiles as bounds."""
        wanted = [b.value for b in (selection.below, selection.above) if b is not None and b.percentile]
        found = quantiles(torch.tensor(self.counts), _EDGES, wanted)
        return selection.settled(dict(zip(wanted, found, strict=True)))


def weak_classes(criterion: WeakSlices, answer: np.ndarray, deviation: float) -> WeakSlices:
    """The classes whose accuracy is below the bound; one too rare to be told from noise is left out."""
    classes = len(answer) // 2
    right, wrong = answer[:classes].clip(0), answer[classes:].clip(0)
    seen = right + wrong > 3 * deviation
    weak = seen & (right / np.maximum(right + wrong, 1e-9) < criterion.below)
    return replace(criterion, classes=tuple(np.flatnonzero(weak).tolist()))


@dataclass(frozen=True)
class Settled:
    """A selection with everything known that it needs: bounds, classes, the rows that meet it, how many qualify."""

    selection: Selection
    marks: Marks
    share: Share


@dataclass(frozen=True)
class Survey:
    """The questions of an inspection: one for each criterion that has a percentile, a model, or classes to be found."""

    selections: Mapping[str, Selection]
    raw: RawClients
    schema: Schema
    model: Primary | None
    marks: Mapping[Criterion, Marks]
    questions: Mapping[Criterion, Question]

    @classmethod
    def of(
        cls, selections: Mapping[str, Selection], raw: RawClients, schema: Schema, model: Primary | None
    ) -> Survey:
        """Have every criterion evaluated at the clients; nothing leaves them yet."""
        marks: dict[Criterion, Marks] = {}
        questions: dict[Criterion, Question] = {}
        for selection in selections.values():
            criterion = selection.criterion
            if criterion not in marks:
                first = Classified(right=True) if criterion.by_class else criterion
                marks[criterion] = mark(raw, first, schema, model)
            if criterion.by_class:
                questions[criterion] = slices_question(raw, schema, marks[criterion])
            elif criterion.needs_model or selection.percentiles:
                questions[criterion] = shares_question(raw, criterion, marks[criterion])
        return cls(selections, raw, schema, model, marks, questions)

    @property
    def size(self) -> int:
        """How many questions there are, with the last one: how many meet each selection."""
        return len(self.questions) + 1

    def noise(self, epsilon: float, delta: float) -> float:
        """The noise of each question, if all of them together may cost so much."""
        return account.calibrate(
            lambda noise: account.repeat(gaussian_event(noise), self.size), epsilon, delta
        )

    def events(self, noise: float | None) -> list[DpEvent]:
        """What the answers cost."""
        return [] if noise is None else [gaussian_event(noise)] * self.size

    def conduct(
        self, noise: float | None, rng: Rng, pay: Pay
    ) -> tuple[dict[str, Settled], tuple[Spread, ...]]:
        """Ask, settle the selections by the answers, and ask how many clients meet each of them now."""
        answers = {
            criterion: question.ask(noise, rng.at(place), pay)
            for place, (criterion, question) in enumerate(self.questions.items())
        }
        spreads = {
            criterion: Spread.of(criterion, answer, noise or 0.0)
            for criterion, answer in answers.items()
            if not criterion.by_class
        }
        settled = [
            self._settle(selection, answers, spreads, noise or 0.0) for selection in self.selections.values()
        ]
        question = meeting_question(self.raw, settled)
        unit = math.sqrt(len(settled)) / len(self.raw)
        told = question.ask(noise, rng.at("meeting"), pay) * unit
        shares = [Share(float(share), (noise or 0.0) * unit) for share in told]
        named = {
            name: Settled(selection, marks, share)
            for name, (selection, marks), share in zip(self.selections, settled, shares, strict=True)
        }
        return named, tuple(spreads.values())

    def _settle(
        self,
        selection: Selection,
        answers: Mapping[Criterion, np.ndarray],
        spreads: Mapping[Criterion, Spread],
        noise: float,
    ) -> tuple[Selection, Marks]:
        criterion = selection.criterion
        if criterion.by_class:
            found = weak_classes(cast(WeakSlices, criterion), answers[criterion], noise)
            return replace(selection, criterion=found), mark(self.raw, found, self.schema, self.model)
        if selection.percentiles:
            selection = spreads[criterion].settle(selection)
        return selection, self.marks[criterion]
