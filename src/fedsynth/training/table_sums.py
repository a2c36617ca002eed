"""Messages of clients where tables are counted: the shares of their rows in the cells of each table of a question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.models.model import Model
from fedsynth.models.table_domain import TableDomain
from fedsynth.models.table_question import Question, QuestionForm
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.mechanism import Mechanism, State, Unit
from fedsynth.rng import Rng

_AT_ONCE = 2**22  # places of rows in tables
_BELOW = 1.0 - 2.0**-40  # more than all rounding of a scale: the bound holds exactly


@dataclass(frozen=True)
class TableSums:
    """Counts the rows of a client in the tables of a question.

    A unit's answer has at most the norm of the clip whatever the question is: each table has its share of it, and a
    client with many rows sends the mean over them. Where a unit is a record, a site sends the sum over its records in
    whole grid steps of the mechanism, a DistributedGaussian.
    """

    domain: TableDomain
    form: QuestionForm
    mechanism: Mechanism
    unit: Unit = "client"

    @property
    def together(self) -> bool:
        """Whether the sum of many clients' messages is as good as the messages: no noise of their own is in them."""
        release = self.mechanism.release
        return self.unit == "client" and (release is None or release.trust == "central")

    def scale(self, question: Question) -> np.ndarray:
        """What a unit adds to each table, in units of the clip: a record adds whole grid steps."""
        return question.scale if self.unit == "client" else self._steps(question) / self.steps

    @property
    def steps(self) -> float:
        """The grid steps in the clip, where records are counted in them; without end for clients."""
        return math.inf if self.unit == "client" else cast(DistributedGaussian, self.mechanism).steps

    def _steps(self, question: Question) -> np.ndarray:
        """The grid steps that a record adds to each table; their squares sum to no more than the squared clip."""
        return np.asarray(np.floor(_BELOW * question.scale * self.steps))

    def messages(
        self,
        model: Model,
        sent: Mapping[str, Tensor],
        data: Padded,
        ids: np.ndarray,
        state: State,
        rng: Rng,
    ) -> Tensor:
        """The messages [clients, cells] of these clients, or the sum of them, [1, cells]."""
        question = self.form.read(sent["question"])
        if self.unit == "record":
            counts = self._counts(question, data)
            return cast(DistributedGaussian, self.mechanism).noised(counts, rng, ids)
        cells, shares = self._shares(question, data)
        if not self.together:
            whole = shares.new_zeros(len(ids), self.form.most_cells).scatter_add_(1, cells, shares)
            return self.mechanism.privatize(whole, state, rng.at("privatize"), ids)
        clipped = self.mechanism.privatize(shares, state, rng.at("privatize"), ids)
        total = torch.zeros(1, self.form.most_cells, dtype=torch.float64, device=cells.device)
        return total.scatter_add_(1, cells.view(1, -1), clipped.double().view(1, -1))

    def _shares(self, question: Question, data: Padded) -> tuple[Tensor, Tensor]:
        """The cells that each client's rows are in, each cell once, and its shares in them, both [clients, cells]."""
        rows = data.mask.sum(1).clamp(min=1)
        scale = torch.from_numpy(question.scale).to(data.mask.device)
        each = (data.mask / rows[:, None]).double()[..., None] * scale
        places = question.places(self.domain.codes(data.x, data.y))
        if places.shape[1] == 1:
            return places[:, 0], each[:, 0].float()
        ordered, index = places.transpose(1, 2).sort(dim=2)
        weights = each.transpose(1, 2).gather(2, index).flatten(1)
        ordered = ordered.flatten(1)
        first = torch.ones_like(ordered, dtype=torch.bool)
        first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        group = first.cumsum(1) - 1
        shares = torch.zeros_like(weights).scatter_add_(1, group, weights)
        cells = torch.zeros_like(ordered).scatter_(1, group, ordered)
        return cells, shares.float()

    def _counts(self, question: Question, data: Padded) -> Tensor:
        """The sum over records, each counted once in every table, [clients, cells] in grid steps."""
        clients, rows = data.mask.shape
        steps = torch.from_numpy(self._steps(question)).to(data.mask.device)
        total = steps.new_zeros(clients, self.form.most_cells)
        at_once = max(1, _AT_ONCE // (clients * len(question.tables)))
        for start in range(0, rows, at_once):
            part = slice(start, start + at_once)
            places = question.places(self.domain.codes(data.x[:, part], data.y[:, part])).flatten(1)
            total.scatter_add_(1, places, (data.mask[:, part, None] * steps).flatten(1))
        return total
