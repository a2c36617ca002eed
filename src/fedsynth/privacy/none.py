"""No privacy: contributions are summed as they are, and every statement says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedsynth.privacy.mechanism import Release, State
from fedsynth.rng import Rng
from fedsynth.transport.wire import Real


@dataclass(frozen=True)
class NoPrivacy:
    """The plain mean. For baselines, or where privacy was already spent in the local plan (DP-SGD)."""

    release: ClassVar[Release | None] = None  # nothing is protected here

    def wire(self, dim: int) -> Real:
        """A real vector a client."""
        return Real(dim)

    def init(self) -> State:
        """No state."""
        return {}

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """The contributions as they are."""
        return x

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The mean."""
        return total / denominator, state
