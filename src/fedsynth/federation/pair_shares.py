"""How often each two values of a row go together, from one noisy answer of clients.

The distributions of every two columns say most of what a table says, and a client's rows have them all in one matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.data.encode import Block
from fedsynth.federation.moments import products, symmetric

_LEAST_ERROR = 1e-3  # of a share, however little noise there is: rows are a sample


@dataclass(frozen=True)
class PairShares:
    """The distributions of all columns side by side [values], of every two [values, values], and what they are worth.

    `precision` is the inverse variance of each number of `pairs`, 0 within a column.
    """

    single: Tensor
    pairs: Tensor
    precision: Tensor


@dataclass(frozen=True)
class ClientPairs:
    """For each client: the share of its rows that have each two values, as a vector of length 1.

    The label comes last and weighs more than another column: what goes with it matters most. All clients weigh about
    the same; only ratios are read from the sum, so the length that is lost does not matter.
    """

    blocks: tuple[Block, ...]
    classes: int
    weight: float = 3.0

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each column has, the label's last."""
        return (*(block.size for block in self.blocks), *([self.classes] if self.classes else []))

    @property
    def width(self) -> int:
        """How many numbers a client's answer has."""
        return sum(self.sizes) * (sum(self.sizes) + 1) // 2

    def __call__(self, data: Padded) -> Tensor:
        """[clients, width]."""
        columns = [data.x[..., b.start : b.start + b.size] for b in self.blocks]
        if self.classes:
            label = data.y[..., None] == torch.arange(self.classes, device=data.y.device)
            columns.append(self.weight * label.to(data.x.dtype))
        rows = torch.cat(columns, -1) * data.mask[..., None]
        whole = products(rows.transpose(1, 2) @ rows)
        return whole / whole.norm(dim=1, keepdim=True).clamp(min=1e-12)

    def read(self, answer: Tensor, noise: float) -> PairShares:
        """Read the shares out of a noisy sum, where `noise` is the standard deviation of each of its numbers."""
        sizes, total = list(self.sizes), sum(self.sizes)
        full = symmetric(answer.double(), total)
        scale = torch.ones(total, dtype=torch.float64)
        scale[total - self.classes :] = self.weight
        full, error = full / torch.outer(scale, scale), noise / torch.outer(scale, scale)
        diagonals = full.diagonal().split(sizes)
        rows = (diagonals[-1].sum() if self.classes else full.trace() / len(sizes)).clamp(min=1e-9)
        pairs, error = full / rows, (error / rows / 2**0.5).clamp(min=_LEAST_ERROR)
        owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        apart = (owner[:, None] != owner[None, :]).to(torch.float64)
        single = pairs[total - self.classes :].sum(0) if self.classes else pairs.diagonal()
        if self.classes:
            single[total - self.classes :] = pairs.diagonal()[total - self.classes :]
        single = torch.cat([_distribution(part) for part in single.split(sizes)])
        return PairShares(single.float(), pairs.float(), (apart / error.square()).float())


def _distribution(shares: Tensor) -> Tensor:
    """Shares without what noise made negative, summing to one."""
    return F.normalize(shares.clamp(min=1e-6), p=1, dim=0)
