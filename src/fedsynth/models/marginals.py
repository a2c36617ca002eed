"""A table's generator made of noisy tables of few columns: a junction tree, and the values inside each merged one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.models.graphical import Columns, JunctionTree, Table, conditioned, project, sample
from fedsynth.models.model import Batch, Objective, Params
from fedsynth.models.table_domain import TableDomain
from fedsynth.models.table_merging import inside
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
    shares: Sequence[
        np.ndarray
    ]  # of each column's values, noisy; with a partner [values, merged values of it]
    partners: Sequence[int] = ()  # of each column: the one by which its values are drawn; -1 for none

    def pack(self) -> Tensor:
        """One vector: numbers of cliques and columns, parents and cliques, tables, maps, shares, partners."""
        tree = self.tree
        head = [len(tree.cliques), len(tree.sizes), *tree.sizes, *tree.parents]
        for clique in tree.cliques:
            head += [len(clique), *clique]
        head += [len(merged) for merged in self.maps]
        partners = tuple(self.partners) or (-1,) * len(tree.sizes)
        pieces = [*self.tables, *self.maps, np.asarray(partners), *self.shares]
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
        plain = len(flat) - at == sum(lengths)  # as it was written before columns had partners
        partners = (-1,) * columns if plain else whole(columns)
        shares = [
            take(length) if partner < 0 else take(length * sizes[partner]).reshape(length, -1)
            for length, partner in zip(lengths, partners, strict=True)
        ]
        return cls(tree, tables, maps, shares, partners)

    @cached_property
    def within(self) -> list[np.ndarray]:
        """The share of each value inside its merged value."""
        return [inside(*of) for of in zip(self.shares, self.maps, strict=True)]

    def marginal(self, column: int) -> np.ndarray:
        """The share of each value of a column."""
        place = self.tree.home((column,))
        assert place is not None
        merged = project(self.tables[place], self.tree.cliques[place], (column,))
        shares = self.shares[column]
        alone = shares if shares.ndim == 1 else shares.sum(axis=1)
        return merged[self.maps[column]] * inside(alone, self.maps[column])

    def draw(
        self,
        rows: int,
        rng: np.random.Generator,
        *,
        likely: Mapping[int, np.ndarray] | None = None,
        known: Mapping[int, np.ndarray] | None = None,
    ) -> np.ndarray:
        """Values [rows, columns]; `likely` says for some columns how likely each value meets a condition.

        `known` has for one column the value of each row.
        """
        tree, tables, weights = self.tree, list(self.tables), dict(enumerate(self.within))
        if likely:
            weights |= {column: (weights[column].T * chance).T for column, chance in likely.items()}
            tables = conditioned(
                tree, tables, dict(self._evidence(column, weights[column]) for column in likely)
            )
        values = dict(known or {})
        for column in values:
            home = tree.home((column,))
            assert home is not None
            tree, order = tree.rooted(home)
            tables = [tables[place] for place in order]
        merged = sample(
            tree, tables, rows, rng, {one: self.maps[one][codes] for one, codes in values.items()}
        )
        drawn = merged.copy()
        for column, groups in enumerate(self.maps):
            if column in values:
                drawn[:, column] = values[column]
            elif len(groups) > tree.sizes[column]:
                weight, place = weights[column], merged[:, column]
                if weight.ndim > 1:  # the merged values of column and partner are one
                    place = place + tree.sizes[column] * merged[:, self.partners[column]]
                    groups = np.concatenate(
                        [groups + tree.sizes[column] * one for one in range(weight.shape[1])]
                    )
                values_at = _inside(place, groups, weight.T.ravel(), rng)
                drawn[:, column] = values_at % len(self.maps[column])
        return drawn

    def _evidence(self, column: int, weight: np.ndarray) -> tuple[Columns, Table]:
        """How likely each merged value (and its partner's) meets a condition, by the weight of the values inside."""
        chances = np.zeros((self.tree.sizes[column], *weight.shape[1:]))
        np.add.at(chances, self.maps[column], weight)
        return (column, *([self.partners[column]] if weight.ndim > 1 else [])), chances


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
    return np.asarray(order[place])


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
        values = {} if label is None else {label: labels.numpy()}
        drawn = fitted.draw(len(labels), rng.at("rows").numpy(), known=values)
        return self.domain.rows(torch.from_numpy(drawn), rng)
