"""A clip that follows a quantile of the clients' norms, paid from the same noise (Andrew et al. 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.privacy.central import gaussian_event, noisy
from fedsynth.privacy.clip import GRID_BITS, Clip, row_norms
from fedsynth.privacy.mechanism import Release, State
from fedsynth.rng import Rng
from fedsynth.transport.wire import Real

_BIT_STEP = 2.0**-GRID_BITS  # grid of the noise on the sum of bits
_RANGE = (2.0**-40, 2.0**40)  # where the clip may move


@dataclass(frozen=True)
class AdaptiveGaussian:
    """CentralGaussian whose clip moves toward the `quantile` of the norms, starting from `clip`.

    With its update each client sends whether its norm was within the clip, as +1/2 or -1/2 (a client that
    is not there adds 0). The noise is split so that both together are one Gaussian release of
    `noise_multiplier`: the bit gets `bit_share` of the privacy, which costs the update 1 / sqrt(1 -
    bit_share) more noise.

    >>> AdaptiveGaussian(Clip(0.1), noise_multiplier=1.0).release.event
    GaussianDpEvent(noise_multiplier=1.0)
    """

    clip: Clip
    noise_multiplier: float
    quantile: float = 0.5
    learning_rate: float = 0.2
    bit_share: float = 0.01

    def __post_init__(self) -> None:
        gaussian_event(self.noise_multiplier)
        if not 0 <= self.quantile <= 1:
            raise BadInput(f"quantile={self.quantile}: expected a number in [0, 1]")
        if not 0 < self.bit_share < 1:
            raise BadInput(f"bit_share={self.bit_share}: the bits' share of the privacy lies in (0, 1)")
        if not 0 < self.learning_rate <= 10:
            raise BadInput(f"learning_rate={self.learning_rate}: expected a number in (0, 10]")

    @property
    def release(self) -> Release:
        """One Gaussian release of updates and bits together."""
        event = gaussian_event(self.noise_multiplier)
        return Release("noisy sum of clipped client updates and clip bits", "client", "central", event)

    @property
    def update_multiplier(self) -> float:
        """The noise on the sum of updates, relative to the clip."""
        return self.noise_multiplier / math.sqrt(1.0 - self.bit_share)

    @property
    def bit_scale(self) -> float:
        """The noise on the sum of bits, each of which is at most 1/2."""
        return 0.5 * self.noise_multiplier / math.sqrt(self.bit_share)

    def wire(self, dim: int) -> Real:
        """The update and the bit."""
        return Real(dim + 1, as_is=True)

    def init(self) -> State:
        """The current clip: public, because it follows from earlier releases alone."""
        return {"clip": torch.tensor(self.clip.bound, dtype=torch.float64)}

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """Clipped to the current clip and on the grid, with the bit in the last place."""
        clip = replace(self.clip, bound=float(state["clip"]))
        within = (row_norms(x) <= clip.bound).to(x.dtype) - 0.5
        return torch.cat([clip.apply_on_grid(x), within[:, None]], dim=1)

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The noisy mean, and the clip moved toward the quantile."""
        clip = replace(self.clip, bound=float(state["clip"]))
        scale = self.update_multiplier * clip.bound
        update = noisy(total[:-1], scale, clip.step, rng.at("update")) / denominator
        bits = noisy(total[-1:], self.bit_scale, _BIT_STEP, rng.at("bits")) / denominator
        within = min(max(float(bits) + 0.5, -1.0), 2.0)  # a fraction, but for noise
        bound = clip.bound * math.exp(-self.learning_rate * (within - self.quantile))
        moved = torch.tensor(min(max(bound, _RANGE[0]), _RANGE[1]), dtype=torch.float64)
        return update, {**state, "clip": moved}
