"""What a query asks of each unit, and what may be read out of the noisy answer.

A unit's answer to a histogram has L2 norm at most 1 whatever it holds, so one clip of 1 protects it whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.errors import BadInput


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
class Holdings:
    """Which codes a unit holds in each column, each column scaled to norm 1 / sqrt(columns).

    `data.x` holds a code for each column, -1 where it has none; the answer is one histogram after the other.
    """

    sizes: tuple[int, ...]

    def __call__(self, data: Padded) -> Tensor:
        """[clients, sum of sizes]."""
        blocks = []
        for column, size in enumerate(self.sizes):
            codes = data.x[..., column].to(torch.int64)
            held = (_counts(codes, data.mask & (codes >= 0), size) > 0).to(torch.float32)
            blocks.append(held / held.norm(dim=1, keepdim=True).clamp(min=1))
        return torch.cat(blocks, dim=1) / math.sqrt(len(self.sizes))


def _counts(codes: Tensor, mask: Tensor, size: int) -> Tensor:
    """How often each client holds each code, [clients, size]."""
    totals = torch.zeros(len(codes), size, device=codes.device)
    return totals.scatter_add_(1, codes.clamp(0, max(size - 1, 0)), mask.to(torch.float32))


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


def presence_threshold(sigma: float, delta: float, most: int, scale: float = 1.0) -> float:
    """Above this, a noisy weight shows that more than one unit holds the value, but for a chance of delta.

    A unit that alone holds m values gives each the weight scale / sqrt(m); the threshold covers the worst m up to
    `most` (Gopi et al. 2020, weighted Gaussian set union).

    >>> presence_threshold(1.0, 1e-6, 1) > 5
    True
    """
    held = np.unique(np.geomspace(1, max(1, most), 64).astype(int))
    chance = -np.expm1(np.log1p(-delta) / held)  # each of m values may pass with this chance
    return float(np.max(scale / np.sqrt(held) + sigma * norm.isf(chance)))
