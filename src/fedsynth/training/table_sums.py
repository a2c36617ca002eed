"""Messages of clients where tables are counted: the shares of their rows in the cells of each table of a question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

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
from fedsynth.training.grid_sums import GridSums, grid_steps, released_sums

_AT_ONCE = 2**22  # places of rows in tables
_BELOW = 1.0 - 2.0**-40  # more than all rounding of a scale: the bound holds exactly
_UNCUT = 1.0 - 2.0**-20  # of the clip: what is no longer, `clip_l2` multiplies by 1


@dataclass(frozen=True)
class TableSums(GridSums):
    """Counts the rows of a client in the tables of a question.

    A unit's answer has at most the norm of the clip whatever the question is: each table has its share of it, and a
    client with many rows sends the mean over them, or the sum, cut to that norm. Where a unit is a record, a site sends
    the sum over its records in whole grid steps of the mechanism: with a share of the noise (DistributedGaussian), with
    noise of its own (LocalRecords), or without, where the server adds it (CentralGaussian).
    """

    domain: TableDomain
    form: QuestionForm
    mechanism: Mechanism
    unit: Unit = "client"
    pooled: bool = False

    @property
    def together(self) -> bool:
        """Whether the sum of many messages is as good as the messages: no noise of their own is in them."""
        return super().together or self.pooled

    def at_site(self) -> TableSums:
        """The sums of a site whose clients are all counted at once: each has the same bits in any company.

        At one site the shares of noise of all its clients are drawn as one: only their sum leaves it.
        """
        mechanism = self.mechanism
        shared = isinstance(mechanism, DistributedGaussian) and not mechanism.rotate and mechanism.coin == 1
        return replace(self, pooled=shared and self.unit == "client")

    def scale(self, question: Question) -> np.ndarray:
        """Return what a unit adds to each table, in units of the clip: a record adds whole grid steps."""
        if self.unit == "record":
            return self._steps(question) / self.steps
        return question.scale * (self.form.about.rest if self.form.about else 1.0)

    @property
    def steps(self) -> float:
        """The grid steps in the clip, where records are counted in them; without end for clients."""
        return math.inf if self.unit == "client" else grid_steps(self.mechanism)

    def _steps(self, question: Question) -> np.ndarray:
        """The grid steps that a record adds to each table; their squares sum to no more than the squared clip."""
        return np.asarray(np.floor(_BELOW * question.scale * self.steps))

    def messages(
        self, model: Model, sent: Mapping[str, Tensor], data: Padded, ids: np.ndarray, state: State, rng: Rng
    ) -> Tensor:
        """The messages [clients, cells] of these clients, or the sum of them, [1, cells]."""
        question = self.form.read(sent["question"])
        if self.unit == "record":
            return self._of_records(question, data, ids, rng)
        if not self.together:
            cells, shares = self._shares(question, data)
            whole = shares.new_zeros(len(ids), self.form.most_cells).scatter_add_(1, cells, shares)
            return self.mechanism.privatize(whole, state, rng.at("privatize"), ids)
        total = torch.zeros(1, self.form.most_cells, dtype=torch.float64, device=data.x.device)
        at_once = max(1, _AT_ONCE // (data.mask.shape[1] * len(question.tables)))
        for start in range(0, len(ids), at_once):  # a sum on the grid is the same in any number of parts
            part = slice(start, start + at_once)
            cells, shares = self._shares(question, Padded(data.x[part], data.y[part], data.mask[part]))
            clipped = self._clipped(shares, cells, state, rng.at("privatize"), ids[part])
            total.scatter_add_(1, cells.view(1, -1), clipped.double().view(1, -1))
        if isinstance(self.mechanism, DistributedGaussian):
            return self.mechanism.noised(total, rng.at("privatize"), ids[:1], len(np.unique(ids)))
        return total

    def _clipped(self, shares: Tensor, cells: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """Shares that can be added up: clipped and on the grid, without noise."""
        if isinstance(self.mechanism, DistributedGaussian):
            return self.mechanism.rounded(shares, state, rng, ids, places=cells)
        return self.mechanism.privatize(shares, state, rng, ids)

    def _of_records(self, question: Question, data: Padded, ids: np.ndarray, rng: Rng) -> Tensor:
        """The sums over records, as they may leave their site."""
        if self.together:  # no sum of one site alone is needed
            data = Padded(*(one.flatten(0, 1)[None] for one in (data.x, data.y, data.mask)))
        return released_sums(self.mechanism, self._counts(question, data), ids, rng)

    def _shares(self, question: Question, data: Padded) -> tuple[Tensor, Tensor]:
        """The cells that each client's rows are in, each cell once, and its shares in them, both [clients, cells].

        A client's shares have the same bits whoever is counted beside it and however far rows are padded: up to 2^26
        rows are counted in whole numbers, all else is done number by number, and nothing is left for the clip to cut.
        """
        rows = data.mask.sum(1)
        scale = torch.from_numpy(self.scale(question)).to(data.mask.device)
        cells, counts = self._cells(question, data)
        lengths = _lengths(counts, scale)
        most = float(np.linalg.norm(scale.cpu().numpy()))
        if question.row_weight > 0:
            each = (most / lengths.clamp(min=1e-30)).clamp(max=question.row_weight)
        else:
            each = 1 / rows.clamp(min=1).double()
        cells, shares = cells.flatten(1), (counts * scale[:, None] * each[:, None, None]).flatten(1)
        if self.form.about is not None:
            own = (rows > 0).double()[:, None] * (self.form.about.share / math.sqrt(2))
            places = self.form.about.places(rows, lengths / most) + self.form.table_cells
            cells, shares = torch.cat([cells, places], 1), torch.cat([shares, own.expand(-1, 2)], 1)
        return cells, (shares * _UNCUT).float()

    def _cells(self, question: Question, data: Padded) -> tuple[Tensor, Tensor]:
        """The cells that each client's rows are in, each once, and how many are there, both [clients, tables, rows]."""
        ordered, index = self._places(question, data.x, data.y).transpose(1, 2).sort(dim=2)
        first = torch.ones_like(ordered, dtype=torch.bool)
        first[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
        group = first.cumsum(2) - 1
        real = data.mask.double()[:, None].expand(index.shape).gather(2, index)
        counts = torch.zeros_like(real).scatter_add_(2, group, real)
        return torch.zeros_like(ordered).scatter_(2, group, ordered), counts

    def _places(self, question: Question, x: Tensor, y: Tensor) -> Tensor:
        """Where in an answer each row counts, [..., tables]."""
        codes = self.domain.with_spikes(question.spikes).codes(x, y)
        return question.places(codes, self.domain.grid_places(x) if question.of_grids else None)

    def _counts(self, question: Question, data: Padded) -> Tensor:
        """The sum over records, each counted once in every table, [clients, cells] in grid steps."""
        clients, rows = data.mask.shape
        steps = torch.from_numpy(self._steps(question)).to(data.mask.device)
        total = steps.new_zeros(clients, self.form.most_cells)
        at_once = max(1, _AT_ONCE // (clients * len(question.tables)))
        for start in range(0, rows, at_once):
            part = slice(start, start + at_once)
            places = self._places(question, data.x[:, part], data.y[:, part]).flatten(1)
            total.scatter_add_(1, places, (data.mask[:, part, None] * steps).flatten(1))
        return total


def _lengths(counts: Tensor, scale: Tensor) -> Tensor:
    """The length of the sum over each client's rows: whole numbers are squared and added up, then table by table."""
    squares, total = counts.square().sum(2), torch.zeros_like(counts[:, 0, 0])
    for table, weight in enumerate(scale.square().tolist()):
        total = total + squares[:, table] * weight
    return total.sqrt()
