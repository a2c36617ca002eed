"""A table's generator made of noisy tables of few columns: a junction tree, and the values inside each merged one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.data.conditions import Condition
from fedsynth.models.distribution import Distribution, drawn_codes
from fedsynth.models.model import Batch, Objective, Params
from fedsynth.models.table_conditions import chances
from fedsynth.models.table_domain import TableDomain
from fedsynth.models.table_question import QuestionForm
from fedsynth.rng import Rng

_TRIES = 100  # for numbers inside a cell that a condition cuts through


class Numbers(nn.Module):
    """A part that is a vector and no network; an open one is as long as what was learned."""

    def __init__(self, size: int, *, open_ended: bool = False) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(size))
        self.open_ended = open_ended


class Counted:
    """A model that is counted: what is asked next, the last answer, and at the end what was fitted."""

    question: int  # how many numbers it has
    answer: int
    generative: ClassVar[tuple[str, ...]] = ("fitted",)
    objectives: ClassVar[Mapping[str, Objective]] = {}  # nothing is trained

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """The question is sent down, the answer is summed, what was fitted is released."""
        return {
            "question": Numbers(self.question),
            "answer": Numbers(self.answer),
            "fitted": Numbers(0, open_ended=True),
        }

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """Nothing is trained."""
        raise AssertionError(f"{objective}: tables are counted, not trained")


@dataclass(frozen=True)
class MarginalModel(Counted):
    """One table's distribution."""

    domain: TableDomain
    form: QuestionForm

    @property
    def question(self) -> int:  # type: ignore[override]
        """How many numbers a question has."""
        return self.form.length

    @property
    def answer(self) -> int:  # type: ignore[override]
        """How many numbers an answer has."""
        return self.form.most_cells

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """One encoded row for each label."""
        fitted = Distribution.unpack(params["fitted"]["values"])
        drawn = drawn_codes(self.domain, fitted, labels.numpy(), rng)
        return fitted.numbered(self.domain).rows(torch.from_numpy(drawn), rng)

    def sample_where(
        self, params: Mapping[str, Params], rows: int, conditions: Sequence[Condition], rng: Rng
    ) -> tuple[Tensor, Tensor]:
        """Encoded rows and labels drawn given the conditions; a number in a cell that a bound cuts is tried again."""
        fitted, label = Distribution.unpack(params["fitted"]["values"]), self.domain.label
        domain = fitted.numbered(self.domain)
        likely = chances(domain, conditions)
        declared = self.domain.schema.label_probabilities
        if label is not None and declared is not None:
            usual = np.asarray(declared) / np.maximum(fitted.marginal(label), 1e-12)
            likely[label] = likely.get(label, 1.0) * usual
        codes = torch.from_numpy(fitted.draw(rows, rng.at("rows").numpy(), likely=likely))
        y = codes[:, label] if label is not None else torch.zeros(rows, dtype=torch.int64)
        x = domain.rows(codes, rng)
        for attempt in range(_TRIES):
            numbers = self.domain.encoding.numbers(x, y)
            meets = np.logical_and.reduce([each.holds(numbers[each.column.name]) for each in conditions])
            again = torch.from_numpy(np.flatnonzero(~meets))
            if not len(again):
                break
            x[again] = domain.rows(codes[again], rng.at("again", attempt))
        return x, y
