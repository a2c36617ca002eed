"""Sums over records in whole grid steps of a mechanism, as they may leave their site."""

from __future__ import annotations

from typing import cast

import numpy as np
from torch import Tensor

from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.local import LocalRecords
from fedsynth.privacy.mechanism import Mechanism
from fedsynth.privacy.none import NoPrivacy
from fedsynth.rng import Rng

_FINE = 2.0**20  # steps of a sum without noise


def sums_together(mechanism: Mechanism) -> bool:
    """Whether the sum of many sites' messages is as good as the messages: no noise of their own is in them."""
    release = mechanism.release
    return release is None or release.trust == "central"


class GridSums:
    """Sums that leave their site as a mechanism allows."""

    mechanism: Mechanism

    @property
    def together(self) -> bool:
        """Whether the sum of many messages is as good as the messages: no noise of their own is in them."""
        return sums_together(self.mechanism)


def grid_steps(mechanism: Mechanism) -> float:
    """The grid steps in the clip: a record adds whole ones, whose squares sum to no more than this squared."""
    if isinstance(mechanism, DistributedGaussian):
        return mechanism.steps
    if isinstance(mechanism, NoPrivacy):
        return _FINE
    clip = cast(LocalRecords, mechanism).clip
    return clip.bound / clip.step


def released_sums(mechanism: Mechanism, totals: Tensor, ids: np.ndarray, rng: Rng) -> Tensor:
    """The sums [sites, cells] of records, in grid steps, as messages: each with its noise, or one without any.

    A site adds its share of the noise (DistributedGaussian) or noise of its own (LocalRecords); sums that the server
    adds noise to leave as one (CentralGaussian), as do those without privacy.
    """
    if isinstance(mechanism, DistributedGaussian):
        return mechanism.noised(totals, rng, ids)
    if isinstance(mechanism, NoPrivacy):
        return totals.sum(0, keepdim=True) / _FINE
    step = cast(CentralGaussian, mechanism).clip.step
    if sums_together(mechanism):
        return totals.sum(0, keepdim=True) * step
    return cast(LocalRecords, mechanism).seal(totals * step, rng, ids)
