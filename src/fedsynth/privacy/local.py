"""The Gaussian mechanism at each client: what leaves it is noisy already, nobody has to be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsynth.privacy.central import gaussian_event
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.mechanism import Release, State, Unit
from fedsynth.privacy.noise import client_noise
from fedsynth.rng import Rng
from fedsynth.transport.wire import Real

_TAIL = 9.0


@dataclass(frozen=True)
class _OwnNoise:
    """A release that each client protects by noise of its own, relative to its clip, and pays for itself."""

    clip: Clip
    noise_multiplier: float
    what: ClassVar[str]
    unit: ClassVar[Unit]

    def __post_init__(self) -> None:
        gaussian_event(self.noise_multiplier)

    @property
    def release(self) -> Release:
        """One Gaussian release a client, in that client's own ledger."""
        return Release(self.what, self.unit, "local", gaussian_event(self.noise_multiplier))

    def init(self) -> State:
        """No state."""
        return {}

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The mean of messages that are private already."""
        return total / denominator, state

    def _noise(self, like: Tensor, rng: Rng, ids: np.ndarray) -> Tensor:
        """The noise of each client for a vector of this length."""
        scale = self.noise_multiplier * self.clip.bound
        return client_noise(ids, like.shape[1], scale, self.clip.step, rng, like.device)


@dataclass(frozen=True)
class LocalGaussian(_OwnNoise):
    """Each client clips its vector and adds its own noise of `noise_multiplier * clip.bound`.

    Each client pays for itself at every release, without amplification by sampling. The noise multiplier is
    relative to the clip; between any two inputs of a client (replace-one) the sensitivity is twice the clip.

    >>> LocalGaussian(Clip(1.0), noise_multiplier=4.0).release.trust
    'local'
    """

    what: ClassVar[str] = "noisy client update"
    unit: ClassVar[Unit] = "client"

    def wire(self, dim: int) -> Real:
        """A real vector a client; noise beyond nine standard deviations is less likely than 10^-18 a number."""
        return Real(
            dim, reach=self.clip.bound + _TAIL * (self.noise_multiplier * self.clip.bound + self.clip.step)
        )

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """Clipped, on the grid, and noisy: float64, because noise on the grid outgrows float32."""
        noise = self._noise(x, rng, ids)
        return self.clip.apply_on_grid(x).to(torch.float64) + noise


@dataclass(frozen=True)
class LocalRecords(_OwnNoise):
    """Each client clips its records one by one and adds its own noise once, to their sum.

    The client is trusted with its own records and nobody else is; what is protected is one record. `privatize` is
    for rows of single records; `seal` makes the message out of a client's sum of them.

    >>> LocalRecords(Clip(1.0), noise_multiplier=4.0).release.unit
    'record'
    """

    what: ClassVar[str] = "noisy sum of records"
    unit: ClassVar[Unit] = "record"

    def wire(self, dim: int) -> Real:
        """A real vector a client, as long as its records make it."""
        return Real(dim)

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """Records clipped and on the grid: not to be sent before they are summed and sealed."""
        return self.clip.apply_on_grid(x).to(torch.float64)

    def seal(self, sums: Tensor, rng: Rng, ids: np.ndarray) -> Tensor:
        """The clients' sums with noise, which may leave."""
        return sums + self._noise(sums, rng, ids)
