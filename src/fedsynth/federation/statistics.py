"""The statistics that a query asks of each unit, and how the noisy answer is read.

A unit's answer to a histogram has L2 norm at most 1 whatever it holds, so one clip of 1 protects it whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.errors import BadInput
from fedsynth.late import stats


@dataclass(frozen=True)
class LabelShares:
    """Each client's shares of the classes: a vector in the simplex, so its norm is at most 1."""

    classes: int

    def __call__(self, data: Padded) -> Tensor:
        """[clients, classes]."""
        counts = _counts(data.y, data.mask, self.classes)
        return counts / counts.sum(1, keepdim=True).clamp(min=1)


@dataclass(frozen=True)
class RecordCount:
    """One for each record: their sum is the number of records."""

    def __call__(self, data: Padded) -> Tensor:
        """[clients, 1]."""
        return data.mask.sum(1, keepdim=True).to(torch.float32)


@dataclass(frozen=True)
class CellShares:
    """The shares of a unit's rows that hold each code, column by column, each column scaled by 1 / sqrt(columns).

    `data.x` holds a code below `size` for each column. A column's shares lie in the simplex, so the whole answer has
    norm at most 1 however many rows the unit has, and one unit has one vote in each column.
    """

    columns: int
    size: int

    def __call__(self, data: Padded) -> Tensor:
        """[clients, columns * size]."""
        rows = data.mask.sum(1, keepdim=True).clamp(min=1)
        codes = data.x.to(torch.int64).unbind(-1)
        blocks = [_counts(column, data.mask, self.size) / rows for column in codes]
        return torch.cat(blocks, dim=1) / math.sqrt(self.columns)


@dataclass(frozen=True)
class Holdings:
    """The codes that a unit holds in each column, at most `most` of them, each column scaled to norm 1 / sqrt(columns).

    `data.x` holds a code for each column, -1 where it has none; the answer is one histogram after the other. Of more
    than `most` codes a unit names those that it holds most often, equal ones in the order of their codes. That order
    must not depend on other units' rows (the alphabet, public buckets), or one unit would change another's choice.
    """

    sizes: tuple[int, ...]
    most: int

    def __call__(self, data: Padded) -> Tensor:
        """[clients, sum of sizes]."""
        blocks = []
        for column, size in enumerate(self.sizes):
            codes = data.x[..., column].to(torch.int64)
            counts = _counts(codes, data.mask & (codes >= 0), size)
            present = _most_held(counts, self.most) if data.mask.shape[1] > self.most else counts > 0
            named = present.to(torch.float32)
            blocks.append(named / named.norm(dim=1, keepdim=True).clamp(min=1))
        return torch.cat(blocks, dim=1) / math.sqrt(len(self.sizes))

    def narrowed(self, data: Padded) -> tuple[Holdings, Padded, Tensor]:
        """The same question without the codes that none of these units holds, and the places of those that are left.

        A long list of values would else make a long answer for each of many records.
        """
        starts = np.concatenate([[0], np.cumsum(self.sizes)])
        sizes, columns, places = [], [], []
        for start, column in zip(starts, data.x.unbind(-1), strict=False):
            codes = column.contiguous()
            present = codes[data.mask & (codes >= 0)].unique()
            sizes.append(len(present))
            places.append(present.to(torch.int64) + int(start))
            columns.append(torch.where(codes < 0, codes, torch.searchsorted(present, codes).to(codes.dtype)))
        narrow = Padded(torch.stack(columns, dim=-1), data.y, data.mask)
        return Holdings(tuple(sizes), self.most), narrow, torch.cat(places)

    def threshold(self, sigma: float, delta: float) -> float:
        """Above this, a noisy weight shows that more than one unit holds the value, but for a chance of delta.

        Proof (Gopi et al. 2020, weighted Gaussian set union). Let one unit alone hold m <= most values of a column.
        Each has the weight w = 1 / sqrt(m * columns) and exceeds t with the chance q(m) = P[w + sigma * Z > t], Z
        normal, independently of the others; so one of them is shown with the chance 1 - (1 - q(m))^m. The threshold is
        the least t for which this is at most delta / columns for every m <= most, and the union over the columns is
        at most delta. A unit never names more than `most` values, so no other m occurs.

        >>> Holdings((10,), most=1).threshold(1.0, 1e-6) > 5
        True
        """
        columns = len(self.sizes)
        counts = np.arange(1, self.most + 1)
        chance = -np.expm1(np.log1p(-delta / columns) / counts)  # q(m) may be this large
        return float(np.max(1 / np.sqrt(counts * columns) + sigma * stats.norm.isf(chance)))


def _most_held(counts: Tensor, most: int) -> Tensor:
    """True at each row's `most` largest counts above zero, equal ones from the left."""
    size = counts.shape[1]
    if size <= most:
        return counts > 0
    order = counts.to(torch.float64) * size - torch.arange(size, device=counts.device)  # no two are equal
    return (counts > 0) & (order >= order.topk(most, dim=1).values[:, -1:])


def _counts(codes: Tensor, mask: Tensor, size: int) -> Tensor:
    """How often each client holds each code, [clients, size]."""
    totals = torch.zeros(len(codes), size, device=codes.device)
    if not size:
        return totals
    return totals.scatter_add_(1, codes.clamp(0, size - 1), mask.to(torch.float32))


def as_probabilities(noisy: Tensor, floor: float = 1e-3) -> Tensor:
    """Class probabilities from noisy counts; none below `floor`, so that no class is lost to noise.

    >>> as_probabilities(torch.tensor([30.0, -2.0, 70.0]))
    tensor([0.2997, 0.0010, 0.6993])
    """
    shares = noisy.to(torch.float32).clamp(min=0)
    shares = shares / shares.sum().clamp(min=1e-12)
    shares = shares.clamp(min=floor)
    return shares / shares.sum()


def quantiles(noisy: Tensor, edges: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Quantiles out of a noisy histogram over `edges`, by straight lines within a bin.

    >>> quantiles(torch.tensor([10.0, 10.0, -1.0]), [0, 10, 20, 30], [0.25, 0.5])
    [5.0, 10.0]
    """
    counts = noisy.to(torch.float64).clamp(min=0).numpy()
    if len(edges) != len(counts) + 1:
        raise BadInput(f"{len(edges)} edges for {len(counts)} bins: expected one more edge than bins")
    below = np.concatenate([[0.0], np.cumsum(counts)]) / max(counts.sum(), 1e-12)
    return [float(np.interp(share, below, np.asarray(edges, dtype=np.float64))) for share in shares]
