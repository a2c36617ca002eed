"""The steps of an inspection, one at a time: clients answer a question, or a model is trained on their rows.

A step is data: which selections it is about. What a client holds in it is computed from its rows where these are, by
the same code in the simulator and at a site.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Clients, Padded, RawClients, encode_clients
from fedsynth.data.schema import Schema
from fedsynth.federation.query import Query
from fedsynth.inspection.criterion import Criterion, label_places
from fedsynth.inspection.primary import Primary
from fedsynth.inspection.selection import Marks, Selection, chosen_rows, mark, select
from fedsynth.inspection.unlabelled import strip_labels
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.mechanism import Mechanism
from fedsynth.privacy.none import NoPrivacy

BINS = 20
SHARES, SLICES, MEETING = "shares", "slices", "meeting"
RIGHT = Criterion("correct")


@dataclass(frozen=True)
class InspectedRows:
    """The rows of all clients in one place, and the model that judges them there. Nothing of it leaves."""

    raw: RawClients
    schema: Schema
    trained: Schema  # what models are trained with: without the label if a selection has none
    model: Primary | None = None
    _marks: dict[Criterion, Marks] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def encoded(self) -> Clients:
        """All rows, selected or not: what is wrong with one must not depend on the selection."""
        unlabelled = self.trained.label != self.schema.label
        raw = strip_labels(self.raw, self.schema) if unlabelled else self.raw
        return encode_clients(raw, self.trained)

    def marks(self, criterion: Criterion) -> Marks:
        """Which rows meet a criterion; each is evaluated once."""
        if criterion not in self._marks:
            self._marks[criterion] = mark(self.raw, criterion, self.schema, self.model)
        return self._marks[criterion]


@dataclass(frozen=True)
class SelectionTraining:
    """A model of the rows that one selection takes; `place` counts the steps of an inspection that are of its kind."""

    name: str
    of: tuple[Selection, ...]  # just one
    place: int
    kind: ClassVar[str] = "train"

    @property
    def stream(self) -> tuple[str | int, ...]:
        """By the name of the selection."""
        return ("model", self.name)

    def query(self, schema: Schema, clients: int, noise_multiplier: float | None) -> None:
        """Nothing is asked but what the recipe asks."""

    def clients(self, rows: InspectedRows) -> Clients:
        """The rows that each client selected."""
        (selection,) = self.of
        return select(rows.raw, rows.encoded, selection, rows.marks(selection.criterion))


@dataclass(frozen=True)
class Given:
    """Passes on the vector that each client computed at home, as its one row."""

    def __call__(self, data: Padded) -> Tensor:
        """[clients, numbers]."""
        return data.x[:, 0]


@dataclass(frozen=True)
class InspectionQuestion:
    """One vector from each client, of length at most 1; what is learned is the noisy sum of all of them.

    Shares: how the share of rows that meet a criterion is spread over clients; failures of the model are one more bin.
    Slices: each class's share of a client's rows that the model gets right, and of those that it gets wrong.
    Meeting: whether a client meets each of the selections.
    """

    kind: str
    of: tuple[Selection, ...]
    place: int
    name: ClassVar[str] = ""

    @property
    def stream(self) -> tuple[str | int, ...]:
        """By its number."""
        return ("survey", MEETING if self.kind == MEETING else self.place)

    @property
    def what(self) -> str:
        """Its line in the ledger."""
        if self.kind == SHARES:
            return f"clients by their share of rows {self.of[0].criterion.words}"
        return "accuracy of the model by class" if self.kind == SLICES else "clients that meet each selection"

    def numbers(self, schema: Schema) -> int:
        """How long an answer is."""
        return {SHARES: BINS + 1, SLICES: 2 * len(schema.classes), MEETING: len(self.of)}[self.kind]

    def query(self, schema: Schema, clients: int, noise_multiplier: float | None) -> Query:
        """The question with its noise; None asks without protection."""
        mechanism: Mechanism = NoPrivacy()
        if noise_multiplier is not None:
            mechanism = CentralGaussian(Clip(1.0), noise_multiplier)
        return Query(self.what, Given(), self.numbers(schema), mechanism, clients)

    def answers(self, rows: InspectedRows) -> np.ndarray:
        """Each client's answer, [clients, numbers]."""
        return _ANSWERS[self.kind](rows, self.of)

    def clients(self, rows: InspectedRows) -> Clients:
        """The answers, as one row a client."""
        answers = torch.from_numpy(np.ascontiguousarray(self.answers(rows), dtype=np.float32))
        return Clients(answers, torch.zeros(len(answers), dtype=torch.int64), np.arange(len(answers) + 1))


Step = InspectionQuestion | SelectionTraining


def shares_answers(raw: RawClients, marks: Marks) -> np.ndarray:
    """One 1 a client: in the bin of its share of marked rows, or in the last one where the model failed."""
    shares = marks.shares(raw)
    answers = np.zeros((raw.count, BINS + 1))
    known = np.flatnonzero(~np.isnan(shares))
    answers[known, np.minimum((shares[known] * BINS).astype(int), BINS - 1)] = 1
    answers[marks.failed, BINS] = 1
    return answers


def slices_answers(raw: RawClients, schema: Schema, right: Marks) -> np.ndarray:
    """Shares of a client's rows by class, first those that the model gets right; they add up to 1 at most."""
    classes = len(schema.classes)
    label = label_places(raw, schema)
    counted = (label >= 0) & ~right.failed[raw.owner]
    answers = np.zeros((raw.count, 2 * classes))
    places = label + classes * ~right.rows
    np.add.at(answers, (raw.owner[counted], places[counted]), 1.0)
    answers /= np.maximum(answers.sum(1, keepdims=True), 1.0)
    return answers


def meeting_answers(raw: RawClients, settled: list[tuple[Selection, Marks]]) -> np.ndarray:
    """A client may meet all selections, so each yes counts 1 / sqrt(selections)."""
    meets = [[rows.any() for rows in chosen_rows(raw, selection, marks)] for selection, marks in settled]
    answers: np.ndarray = np.array(meets, dtype=np.float64).T / math.sqrt(len(settled))
    return answers


def _shares(rows: InspectedRows, of: tuple[Selection, ...]) -> np.ndarray:
    return shares_answers(rows.raw, rows.marks(of[0].criterion))


def _slices(rows: InspectedRows, of: tuple[Selection, ...]) -> np.ndarray:
    return slices_answers(rows.raw, rows.schema, rows.marks(RIGHT))


def _meeting(rows: InspectedRows, of: tuple[Selection, ...]) -> np.ndarray:
    return meeting_answers(rows.raw, [(selection, rows.marks(selection.criterion)) for selection in of])


_ANSWERS: dict[str, Callable[[InspectedRows, tuple[Selection, ...]], np.ndarray]] = {
    SHARES: _shares, SLICES: _slices, MEETING: _meeting,
}  # fmt: skip
