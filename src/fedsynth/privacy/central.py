"""The Gaussian mechanism at a trusted server: clip at clients, noise the sum once (McMahan et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent, NonPrivateDpEvent
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.privacy.clip import Clip, nearest_on_grid
from fedsynth.privacy.mechanism import Release, State, Unit
from fedsynth.privacy.noise import grid_noise
from fedsynth.rng import Rng
from fedsynth.transport.wire import Real


def gaussian_event(noise_multiplier: float) -> DpEvent:
    """The cost of one Gaussian release, its noise relative to the clip; without noise there is no privacy.

    >>> gaussian_event(0.0)
    NonPrivateDpEvent()
    """
    if not 0 <= noise_multiplier < float("inf"):
        raise BadInput(f"noise_multiplier={noise_multiplier}: expected 0 (not private) or a positive number")
    return GaussianDpEvent(noise_multiplier) if noise_multiplier > 0 else NonPrivateDpEvent()


def noisy(total: Tensor, scale: float, step: float, rng: Rng) -> Tensor:
    """A sum of grid values plus Gaussian noise on the same grid, float64, where the sum is.

    The sum is put back onto the grid first: it is there already unless a transport or weights rounded it,
    and noise on a grid hides nothing that lies off it.
    """
    return nearest_on_grid(total, step) + grid_noise(total.numel(), scale, step, rng).to(total.device)


@dataclass(frozen=True)
class CentralGaussian:
    """Each client's vector is clipped; the server adds noise of `noise_multiplier * clip.bound` to the sum.

    The server sees the clear sum (and, over a clear transport, each vector): trust is central. For `unit="record"` a
    client's vector is the sum over its records, each within the clip: whoever builds it sees to that.

    >>> CentralGaussian(Clip(1.0), noise_multiplier=1.1).release.event
    GaussianDpEvent(noise_multiplier=1.1)
    """

    clip: Clip
    noise_multiplier: float
    unit: Unit = "client"

    def __post_init__(self) -> None:
        gaussian_event(self.noise_multiplier)

    @property
    def release(self) -> Release:
        """One Gaussian release of the sum, for the client as a whole or for each record."""
        event = gaussian_event(self.noise_multiplier)
        return Release(f"noisy sum of clipped {self.unit} updates", self.unit, "central", event)

    def wire(self, dim: int) -> Real:
        """A real vector a client."""
        return Real(dim, reach=self.clip.bound if self.unit == "client" else None, as_is=True)

    def init(self) -> State:
        """No state."""
        return {}

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """Clipped and on the grid, so that the sum does not depend on order or chunking."""
        return self.clip.apply_on_grid(x)

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The noisy mean, float64."""
        scale = self.noise_multiplier * self.clip.bound
        return noisy(total, scale, self.clip.step, rng) / denominator, state
