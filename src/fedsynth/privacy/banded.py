"""Correlated noise that cancels over rounds (DP-FTRL): needs no sampling, only bounded participation.

The server releases y = C x + z for the sums x of all rounds, C lower triangular, Toeplitz and banded, and x
+ C^-1 z follows from it. C is the banded square root of the prefix sum (Fichtenberger, Henzinger and
Upadhyay 2023; Choquette-Choo et al. 2023). A client that comes back only after `separation` rounds touches
rows of y that do not overlap, so each participation costs one Gaussian release, however many rounds there
are. docs/noise.md has the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from dp_accounting import DpEvent
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.privacy.central import gaussian_event, noisy
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.mechanism import Release, State
from fedsynth.rng import Rng
from fedsynth.transport.wire import Real

_FRACTION_BITS = 10  # of a coefficient: products with grid values stay exact on a finer grid


@lru_cache(maxsize=64)
def coefficients(separation: int) -> tuple[float, ...]:
    """The band of C: those of 1 / sqrt(1 - x), rounded down to 10 fractional bits.

    They never increase, so no root of their polynomial lies inside the unit circle and C^-1 does not grow
    (Enestrom and Kakeya).

    >>> coefficients(4)
    (1.0, 0.5, 0.375, 0.3125)
    """
    band, exact = [1.0], 1.0
    for lag in range(1, separation):
        exact *= (2 * lag - 1) / (2 * lag)
        band.append(math.floor(exact * 2**_FRACTION_BITS) / 2**_FRACTION_BITS)
    return tuple(band)


@dataclass(frozen=True)
class BandedGaussian:
    """CentralGaussian with noise correlated over rounds, so that it cancels in the sum of all updates.

    A client may take part in at most `participations` rounds, any two at least `separation` apart: whoever
    draws the cohorts must see to it, and the guarantee is for zero-out adjacency (a client's updates become
    zero). Sampling does not amplify: the rounds are not independent. With separation 1 the noise is
    CentralGaussian's.

    The state entries named in `secret` are earlier sums without noise: the server keeps them and sends them
    to nobody.

    >>> BandedGaussian(Clip(1.0), noise_multiplier=2.0, separation=8, participations=4).run_event
    GaussianDpEvent(noise_multiplier=1.0)
    """

    clip: Clip
    noise_multiplier: float
    separation: int
    participations: int = 1

    secret: ClassVar[tuple[str, ...]] = ("sums",)

    def __post_init__(self) -> None:
        gaussian_event(self.noise_multiplier)
        if self.separation < 1 or self.participations < 1:
            raise BadInput(
                f"separation={self.separation}, participations={self.participations}: both are at least 1"
            )

    @property
    def release(self) -> Release:
        """The cost of one participation to the client; rounds without it cost it nothing."""
        what = (
            f"noisy sums of clipped client updates, correlated over rounds; each client at most "
            f"{self.participations} times, at least {self.separation} rounds apart"
        )
        event = gaussian_event(self.noise_multiplier)
        return Release(what, "client", "central", event, amplifies=False, separation=self.separation)

    @property
    def run_event(self) -> DpEvent:
        """The cost of a whole run, whatever its number of rounds: sensitivity is sqrt(participations)."""
        return gaussian_event(self.noise_multiplier / math.sqrt(self.participations))

    @property
    def scale(self) -> float:
        """The standard deviation of z: noise_multiplier times what one participation moves C x by."""
        return self.noise_multiplier * self.clip.bound * math.hypot(*coefficients(self.separation))

    def wire(self, dim: int) -> Real:
        """A real vector a client."""
        return Real(dim, as_is=True)

    def init(self) -> State:
        """No rounds yet: past sums (secret) and past estimates of them (public), the latest first."""
        return {
            "sums": torch.zeros(0, 0, dtype=torch.float64),
            "values": torch.zeros(0, 0, dtype=torch.float64),
        }

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """Clipped and on the grid."""
        return self.clip.apply_on_grid(x)

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The mean with correlated noise: a row of C x + z is released, then earlier values are taken off."""
        mixed = _weighted(self.separation, total, state["sums"], sign=1.0)
        released = noisy(mixed, self.scale, self.clip.step / 2**_FRACTION_BITS, rng)
        value = _weighted(self.separation, released, state["values"], sign=-1.0)
        after = {
            "sums": _pushed(self.separation, total, state["sums"]),
            "values": _pushed(self.separation, value, state["values"]),
        }
        return value / denominator, {**state, **after}

    def covariance(self, rounds: int) -> Tensor:
        """Covariance [rounds, rounds] of the noise on one coordinate of the estimated sums."""
        band = coefficients(self.separation)
        first = torch.tensor(band[:rounds] + (0.0,) * (rounds - len(band)), dtype=torch.float64)
        lag = torch.arange(rounds)[:, None] - torch.arange(rounds)
        inverse = torch.linalg.inv(torch.where(lag >= 0, first[lag.clamp(min=0)], 0.0))
        return self.scale**2 * inverse @ inverse.T


def _weighted(separation: int, now: Tensor, past: Tensor, sign: float) -> Tensor:
    """The present plus (or minus) the past times the band's coefficients."""
    if len(past) == 0:
        return now
    weights = torch.tensor(
        coefficients(separation)[1 : len(past) + 1], dtype=torch.float64, device=now.device
    )
    return now + sign * (weights @ past.to(now.device))


def _pushed(separation: int, now: Tensor, past: Tensor) -> Tensor:
    """The past with the present in front, as far back as the band reaches."""
    return torch.cat([now[None].cpu(), past.reshape(-1, now.numel())])[: separation - 1]
