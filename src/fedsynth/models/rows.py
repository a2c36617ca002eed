"""From a table model's logits to encoded rows: one choice a column."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsynth.data.encode import Block


def draw_rows(logits: Tensor, blocks: Sequence[Block], width: int, generator: torch.Generator) -> Tensor:
    """Encoded rows [count, width] drawn from logits [count, choices], block after block.

    An ordered column's number is uniform within the bin that was drawn.
    """
    rows = torch.zeros(len(logits), width)
    start = 0
    for block in blocks:
        chances = F.softmax(logits[:, start : start + block.size], dim=-1)
        choice = torch.multinomial(chances, 1, generator=generator)
        rows.scatter_(1, block.start + choice, 1.0)
        if block.ordered:
            within = torch.rand(len(logits), generator=generator)
            position = (choice[:, 0] + within) / block.bins
            missing = choice[:, 0] >= block.bins
            rows[:, block.start + block.size] = torch.where(missing, 0.5, position)
        start += block.size
    return rows
