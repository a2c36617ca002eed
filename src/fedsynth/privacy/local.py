"""The Gaussian mechanism at each client: what leaves it is noisy already, nobody has to be trusted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsynth.privacy.central import gaussian_event
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.mechanism import Real, Release, State
from fedsynth.privacy.noise import client_noise
from fedsynth.rng import Rng

_TAIL = 9.0


@dataclass(frozen=True)
class LocalGaussian:
    """Each client clips its vector and adds its own noise of `noise_multiplier * clip.bound`.

    Each client pays for itself at every release, without amplification by sampling. The noise multiplier is
    relative to the clip; between any two inputs of a client (replace-one) the sensitivity is twice the clip.

    >>> LocalGaussian(Clip(1.0), noise_multiplier=4.0).release.trust
    'local'
    """

    clip: Clip
    noise_multiplier: float

    def __post_init__(self) -> None:
        gaussian_event(self.noise_multiplier)

    @property
    def release(self) -> Release:
        """One Gaussian release a client, in that client's own ledger."""
        return Release("noisy client update", "client", "local", gaussian_event(self.noise_multiplier))

    def wire(self, dim: int) -> Real:
        """A real vector a client; noise beyond nine standard deviations is less likely than 10^-18 a number."""
        return Real(
            dim, reach=self.clip.bound + _TAIL * (self.noise_multiplier * self.clip.bound + self.clip.step)
        )

    def init(self) -> State:
        """No state."""
        return {}

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """Clipped, on the grid, and noisy: float64, because noise on the grid outgrows float32."""
        scale = self.noise_multiplier * self.clip.bound
        noise = client_noise(ids, x.shape[1], scale, self.clip.step, rng, x.device)
        return self.clip.apply_on_grid(x).to(torch.float64) + noise

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The mean of messages that are private already."""
        return total / denominator, state


@dataclass(frozen=True)
class LocalRecords:
    """Each client clips its records one by one and adds its own noise once, to their sum.

    The client is trusted with its own records and nobody else is; what is protected is one record. `privatize` is
    for rows of single records; `seal` makes the message out of a client's sum of them.

    >>> LocalRecords(Clip(1.0), noise_multiplier=4.0).release.unit
    'record'
    """

    clip: Clip
    noise_multiplier: float

    def __post_init__(self) -> None:
        gaussian_event(self.noise_multiplier)

    @property
    def release(self) -> Release:
        """One Gaussian release a client, in that client's own ledger."""
        return Release("noisy sum of records", "record", "local", gaussian_event(self.noise_multiplier))

    def wire(self, dim: int) -> Real:
        """A real vector a client, as long as its records make it."""
        return Real(dim)

    def init(self) -> State:
        """No state."""
        return {}

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """Records clipped and on the grid: not to be sent before they are summed and sealed."""
        return self.clip.apply_on_grid(x).to(torch.float64)

    def seal(self, sums: Tensor, rng: Rng, ids: np.ndarray) -> Tensor:
        """The clients' sums with noise, which may leave."""
        scale = self.noise_multiplier * self.clip.bound
        return sums + client_noise(ids, sums.shape[1], scale, self.clip.step, rng, sums.device)

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The mean of messages that are private already."""
        return total / denominator, state
