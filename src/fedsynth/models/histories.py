"""Persons with their visits and measurements out of noisy tables: one fitted distribution for each view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.conditions import Condition
from fedsynth.data.history_draw import HistoryDraw
from fedsynth.data.linked import LinkedRows
from fedsynth.data.linked_tables import Linked
from fedsynth.models.distribution import Distribution
from fedsynth.models.marginals import Counted
from fedsynth.models.model import Params
from fedsynth.rng import Rng

_INSIDE = (0.0, 0.25, 0.5, 0.75, 1.0 - 2**-20)  # places in a cell at which a condition is tried


def pack(distributions: Sequence[Distribution]) -> Tensor:
    """One vector: how many there are, how long each is, then all of them."""
    packed = [one.pack() for one in distributions]
    lengths = [len(packed), *map(len, packed)]
    return torch.cat([torch.tensor(lengths, dtype=torch.float64).float(), *packed])


def unpack(vector: Tensor) -> list[Distribution]:
    """The distributions that `pack` wrote."""
    count = int(vector[0])
    lengths = [int(length) for length in vector[1 : count + 1]]
    return [Distribution.unpack(part) for part in vector[count + 1 :].split(lengths)]


@dataclass(frozen=True)
class HistoryModel(Counted):
    """The distributions of all views of linked tables."""

    linked: Linked
    question: int  # numbers
    answer: int

    def histories_of(
        self, fitted: Tensor, persons: int, rng: Rng, conditions: Sequence[Condition] = ()
    ) -> dict[str, LinkedRows]:
        """Whole histories of so many persons, who meet conditions on their own columns."""
        distributions, generator = unpack(fitted), rng.at("rows").numpy()
        likely = self._likely(conditions)

        def people(count: int) -> np.ndarray:
            return distributions[0].draw(count, generator, likely=likely)

        def draw(view: int, known: np.ndarray) -> np.ndarray:
            drawn = distributions[view].draw(len(known), generator, known=dict(enumerate(known.T)))
            return drawn[:, known.shape[1] :]

        def meets(numbers: Mapping[str, np.ndarray]) -> np.ndarray:
            return np.logical_and.reduce([each.holds(numbers[each.column.name]) for each in conditions])

        whole = HistoryDraw(self.linked.histories, people, draw, generator)
        return whole.rows(persons, meets if conditions else None)

    def _likely(self, conditions: Sequence[Condition]) -> dict[int, np.ndarray]:
        """Which values of persons' columns can meet the conditions: others are not drawn at all."""
        view = self.linked.histories.views[0]
        names = [column.name for column in view.columns]
        likely: dict[int, np.ndarray] = {}
        for each in conditions:
            place = names.index(f"{view.table}.{each.column.name}")
            axis = view.axes[place]
            codes = np.arange(axis.size)
            ends = [each.holds(axis.numbers(codes, np.full(axis.size, at))) for at in _INSIDE]
            likely[place] = likely.get(place, 1.0) * np.logical_or.reduce(ends)
        return likely

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """The rows of all tables of as many persons as there are labels."""
        return self.linked.pack(self.histories_of(params["fitted"]["values"], len(labels), rng))

    def sample_where(
        self, params: Mapping[str, Params], rows: int, conditions: Sequence[Condition], rng: Rng
    ) -> Tensor:
        """The same of persons who meet conditions."""
        return self.linked.pack(self.histories_of(params["fitted"]["values"], rows, rng, conditions))
