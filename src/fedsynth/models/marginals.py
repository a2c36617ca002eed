"""A table's generator made of noisy tables of few columns: a junction tree, and the values inside each merged one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.models.graphical import JunctionTree, Table, conditioned, project, sample
from fedsynth.models.model import Batch, Objective, Params
from fedsynth.models.table_domain import TableDomain
from fedsynth.models.table_question import QuestionForm
from fedsynth.rng import Rng


class Numbers(nn.Module):
    """A part that is a vector and no network; an open one is as long as what was learned."""

    def __init__(self, size: int, *, open_ended: bool = False) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(size))
        self.open_ended = open_ended


@dataclass(frozen=True)
class Distribution:
    """What a run releases: the tree with its tables, how values were merged, and the share of each value."""

    tree: JunctionTree
    tables: Sequence[Table]
    maps: Sequence[np.ndarray]
    shares: Sequence[np.ndarray]  # of each column's values, noisy

    def pack(self) -> Tensor:
        """One vector: numbers of cliques and columns, parents and cliques, tables, maps, shares."""
        tree = self.tree
        head = [len(tree.cliques), len(tree.sizes), *tree.sizes, *tree.parents]
        for clique in tree.cliques:
            head += [len(clique), *clique]
        head += [len(merged) for merged in self.maps]
        pieces = [*self.tables, *self.maps, *self.shares]
        flat = np.concatenate([np.asarray(head, dtype=np.float64), *(np.ravel(piece) for piece in pieces)])
        return torch.from_numpy(flat.astype(np.float32))

    @classmethod
    def unpack(cls, vector: Tensor) -> Distribution:
        """The distribution that `pack` wrote."""
        flat, at = vector.double().numpy(), 0

        def take(count: int) -> np.ndarray:
            nonlocal at
            at += count
            return flat[at - count : at]

        def whole(count: int) -> tuple[int, ...]:
            return tuple(int(number) for number in take(count))

        cliques, columns = whole(2)
        sizes, parents = whole(columns), whole(cliques)
        members = tuple(whole(whole(1)[0]) for _ in range(cliques))
        lengths = whole(columns)
        tree = JunctionTree(sizes, members, parents)
        tables = [take(math.prod(shape)).reshape(shape) for shape in tree.shapes]
        maps = [take(length).astype(np.int64) for length in lengths]
        return cls(tree, tables, maps, [take(length) for length in lengths])

    @cached_property
    def within(self) -> list[np.ndarray]:
        """The share of each value inside its merged value."""
        within = []
        for merged, shares in zip(self.maps, self.shares, strict=True):
            positive = np.maximum(shares, 0.0)
            mass = np.bincount(merged, weights=positive)[merged]
            alike = 1.0 / np.bincount(merged)[merged]
            within.append(np.where(mass > 0, positive / np.where(mass > 0, mass, 1.0), alike))
        return within

    def marginal(self, column: int) -> np.ndarray:
        """The share of each value of a column."""
        place = self.tree.home((column,))
        assert place is not None
        merged = project(self.tables[place], self.tree.cliques[place], (column,))
        return merged[self.maps[column]] * self.within[column]

    def draw(self, rows: int, given: Mapping[int, np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """Values [rows, columns]; `given` says for some columns how likely each value meets a condition."""
        tables = self.tables
        chances = {}
        for column, likely in given.items():
            weight = self.within[column] * likely
            chances[column] = np.bincount(self.maps[column], weights=weight)
        if chances:
            tables = conditioned(self.tree, tables, chances)
        drawn = sample(self.tree, tables, rows, rng)
        for column, (merged, within) in enumerate(zip(self.maps, self.within, strict=True)):
            weight = within * given[column] if column in given else within
            drawn[:, column] = _inside(drawn[:, column], merged, weight, rng)
        return drawn


def _inside(
    drawn: np.ndarray, merged: np.ndarray, weight: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A value inside each merged one, by weight."""
    order = np.argsort(merged, kind="stable")
    ends = np.cumsum(weight[order])
    counts = np.bincount(merged)
    last = np.cumsum(counts) - 1
    high = ends[last]
    low = np.concatenate([[0.0], high[:-1]])
    at = low[drawn] + rng.random(len(drawn)) * (high - low)[drawn]
    first = last - counts + 1
    place = np.searchsorted(ends, at, side="right").clip(first[drawn], last[drawn])
    return order[place]


@dataclass(frozen=True)
class MarginalModel:
    """What is asked next, the last answer, and at the end the fitted distribution."""

    domain: TableDomain
    form: QuestionForm

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """The question is sent down, the answer is summed, the fitted distribution is released."""
        return {
            "question": Numbers(self.form.length),
            "answer": Numbers(self.form.most_cells),
            "fitted": Numbers(0, open_ended=True),
        }

    @property
    def generative(self) -> tuple[str, ...]:
        """The distribution alone."""
        return ("fitted",)

    @property
    def objectives(self) -> Mapping[str, Objective]:
        """Nothing is trained."""
        return {}

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """Nothing is trained."""
        raise AssertionError(f"{objective}: tables are counted, not trained")

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """One encoded row for each label."""
        fitted, label = Distribution.unpack(params["fitted"]["values"]), self.domain.label
        draw = rng.at("rows").numpy()
        if label is None:
            return self.domain.rows(torch.from_numpy(fitted.draw(len(labels), {}, draw)), rng)
        codes = np.zeros((len(labels), len(self.domain.sizes)), dtype=np.int64)
        for value in labels.unique().tolist():
            mine = (labels == value).numpy()
            likely = np.arange(self.domain.sizes[label]) == value
            codes[mine] = fitted.draw(int(mine.sum()), {label: likely.astype(np.float64)}, draw)
        return self.domain.rows(torch.from_numpy(codes), rng)
