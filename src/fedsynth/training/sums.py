"""The messages of clients that train nothing: sums over their rows, made private by a mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.models.model import Model
from fedsynth.privacy.mechanism import State
from fedsynth.rng import Rng


class Sums(Protocol):
    """Makes clients' messages from their rows without training.

    One that has a method `at_site` returns by it the sums of a site whose clients may all be counted at once.
    """

    @property
    def together(self) -> bool:
        """Whether `messages` is one row, the sum over the clients."""

    def messages(
        self, model: Model, sent: Mapping[str, Tensor], data: Padded, ids: np.ndarray, state: State, rng: Rng
    ) -> Tensor:
        """The messages of these clients, as private as the mechanism makes them."""
