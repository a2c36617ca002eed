"""The interface of a survey: which tables recipes that count ask for next, and the distribution that answers say."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from torch import Tensor

from fedsynth.federation.state import ServerState
from fedsynth.models.graphical import JunctionTree, Table
from fedsynth.models.table_domain import Spikes
from fedsynth.models.table_question import Question
from fedsynth.rng import Rng


class Counting(Protocol):
    """Reads noisy answers at the server."""

    def first(self, parts: dict[str, Tensor], rng: Rng) -> dict[str, Tensor]:
        """The parts with the first question."""

    def __call__(self, state: ServerState, mean: Tensor, rng: Rng) -> ServerState:
        """The state after an answer."""

    def finish(self, state: ServerState) -> ServerState:
        """The state with what was fitted."""


class Asked(Protocol):
    """A plan of what is asked."""

    @property
    def rounds(self) -> int:
        """How often something is asked."""

    @property
    def label(self) -> int | None:
        """The label's column."""


class Surveyed(Protocol):
    """All that was asked and answered so far, and what it says."""

    @property
    def maps(self) -> tuple[np.ndarray, ...]:
        """How values are merged."""

    @property
    def shares(self) -> list[np.ndarray]:
        """The share of each value of each column."""

    @property
    def partners(self) -> tuple[int, ...]:
        """The column that a column's values were counted with."""

    @property
    def row_counts(self) -> np.ndarray:
        """The share of clients with 1, 2, ... rows; none if it was not asked for."""

    @property
    def spikes(self) -> Spikes:
        """The numbers of each column that are values of their own."""

    def following(self) -> Question:
        """The next question."""

    def fitted(self) -> tuple[JunctionTree, list[Table]]:
        """The distribution that all answers together say."""
