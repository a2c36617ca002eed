"""Messages of persons whose histories are counted: in each view, the mean over the rows that a person has in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.models.model import Model
from fedsynth.models.table_question import Question, QuestionForm
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.mechanism import Mechanism, State
from fedsynth.rng import Rng

_BELOW = 1.0 - 2.0**-40  # more than all rounding of a scale: the bound holds exactly


@dataclass(frozen=True)
class HistorySums:
    """Counts a person's rows in the tables of several views' questions.

    A person's answer has at most the norm of the clip whatever the questions are: each table of each view has its share
    of it, and a person with many rows in a view sends the mean over them, in whole grid steps of the noise.

    At one site the shares of noise of all its persons are drawn as one (`pooled`): only their sum leaves it.
    """

    forms: tuple[QuestionForm, ...]
    mechanism: Mechanism
    clip: Clip = Clip(1.0)
    pooled: bool = False

    @property
    def _trust(self) -> str:
        """Who adds the noise: the server (also none at all), each person, or all of them in shares."""
        release = self.mechanism.release
        return "central" if release is None else release.trust

    @property
    def together(self) -> bool:
        """Whether the sum of many persons' messages is as good as the messages."""
        return self._trust == "central" or (self._trust == "distributed" and self.pooled)

    def at_site(self) -> HistorySums:
        """The sums of a site that holds whole persons: exact however many are counted at once."""
        return replace(self, pooled=True)

    @property
    def cells(self) -> int:
        """The length of an answer."""
        return sum(form.most_cells for form in self.forms)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each view's answer begins."""
        return tuple(accumulate((0, *(form.most_cells for form in self.forms))))[:-1]

    def read(self, vector: Tensor) -> list[Question]:
        """The questions in a vector, one a view."""
        return [
            form.read(part)
            for form, part in zip(self.forms, vector.split([form.length for form in self.forms]), strict=True)
        ]

    def scales(self, questions: Sequence[Question]) -> list[np.ndarray]:
        """Return what a person adds to each table of each view: whole grid steps whose squares sum to 1 at most."""
        whole = math.sqrt(sum(np.square(question.weights).sum() for question in questions))
        parts = (np.asarray(question.weights) / whole for question in questions)
        return [np.floor(_BELOW * part / self.step) * self.step for part in parts]

    def messages(
        self, model: Model, sent: Mapping[str, Tensor], data: Padded, ids: np.ndarray, state: State, rng: Rng
    ) -> Tensor:
        """The messages [clients, cells] of these persons, or the sum of them, [1, cells]."""
        sums = 1 if self.together else len(ids)
        total = torch.zeros(sums, self.cells, dtype=torch.float64)
        questions = self.read(sent["question"])
        views = zip(questions, self.scales(questions), self.starts, strict=True)
        for view, (question, scale, start) in enumerate(views):
            mine = data.mask & (data.y == view)
            client, row = mine.nonzero(as_tuple=True)
            codes = data.x[client, row][:, : len(question.maps)].long()
            places = question.places(codes) + start
            if not self.together:
                places += client[:, None] * self.cells
            number, rows = mine.cumsum(1)[client, row], mine.sum(1)[client]
            steps = torch.from_numpy(np.round(scale / self.step))
            share = _up_to(number, rows, steps) - _up_to(number - 1, rows, steps)
            total.view(-1).index_add_(0, places.flatten(), share.flatten())
        if self._trust == "distributed":
            shared, drawn = cast(DistributedGaussian, self.mechanism), len(np.unique(ids))
            senders, shares = (ids[:1], drawn) if self.pooled else (ids, 1)
            return shared.noised(total, rng.at("privatize"), senders, shares)
        total *= self.step
        if self.together:
            return total
        return self.mechanism.privatize(total.float(), state, rng.at("privatize"), ids)

    @property
    def step(self) -> float:
        """The grid that answers lie on: sums of them are exact, and none is longer than the clip."""
        if self._trust == "distributed":
            return cast(DistributedGaussian, self.mechanism).grid
        return self.clip.step


def _up_to(number: Tensor, rows: Tensor, steps: Tensor) -> Tensor:
    """How many of a table's steps the first `number` of so many rows have, [rows, tables]: all have them all."""
    return (number[:, None] * steps / rows[:, None]).floor()
