"""Steps that read no row: how a generator is trained, from noise alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.privacy.mechanism import Release
from fedsynth.rng import Rng
from fedsynth.training.rule import Loss, Rows, Step, Trained, plain_gradient


@dataclass(frozen=True)
class Free:
    """`steps` batches of `batch_size` made-up rows; only for objectives that look at nothing but their noise.

    Every client takes the same number of steps, whatever it holds, so not even that tells of its rows.
    """

    steps: int
    batch_size: int

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 1:
            raise BadInput(f"steps={self.steps}, batch_size={self.batch_size}: both must be at least 1")

    @property
    def release(self) -> Release | None:
        """Nothing is released: no row is read."""
        return None

    def batches(self, mask: Tensor, ids: np.ndarray, rng: Rng) -> Iterator[Rows]:
        """The first row, over and over, in the place of rows that do not matter."""
        index = torch.zeros(len(ids), self.batch_size, dtype=torch.int64, device=mask.device)
        for step in range(self.steps):
            yield Rows(index, torch.ones_like(index, dtype=torch.bool), step)

    def gradient(self, loss: Loss, step: Step) -> tuple[Trained, Tensor]:
        """The gradient of the mean loss of what was made."""
        return plain_gradient(loss, step)
