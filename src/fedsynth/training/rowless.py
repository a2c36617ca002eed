"""Steps that read no row: how a generator is trained, from noise alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.rng import Rng
from fedsynth.training.rule import Drawing, Rows, Unprotected


@dataclass(frozen=True)
class Free(Unprotected):
    """`steps` batches of `batch_size` made-up rows; only for objectives that look at nothing but their noise.

    Every client takes the same number of steps, whatever it holds, so not even that tells of its rows.
    """

    steps: int
    batch_size: int

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 1:
            raise BadInput(f"steps={self.steps}, batch_size={self.batch_size}: both must be at least 1")

    def drawing(self, mask: Tensor, ids: np.ndarray, rng: Rng) -> Drawing:
        """The first row, over and over, in the place of rows that do not matter."""
        sizes = (self.steps, self.batch_size)
        return Drawing(sizes, self.steps * len(ids) * self.batch_size, True, self._first_row, (mask,))

    def _first_row(self, mask: Tensor) -> Iterator[Rows]:
        index = torch.zeros(len(mask), self.batch_size, dtype=torch.int64, device=mask.device)
        for step in range(self.steps):
            yield Rows(index, torch.ones_like(index, dtype=torch.bool), step)
