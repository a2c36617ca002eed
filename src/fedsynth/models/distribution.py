"""The release of a run of counts: a junction tree with its tables, and the values inside each merged one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from fedsynth.models.evidence import sample_given
from fedsynth.models.graphical import Columns, JunctionTree, Table, conditioned, project
from fedsynth.models.table_domain import Spikes, TableDomain
from fedsynth.models.table_merging import inside
from fedsynth.models.tree_sampling import TreeSampler
from fedsynth.rng import Rng

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Distribution:
    """The release of a run: the tree with its tables, how values were merged, and the share of each value."""

    tree: JunctionTree
    tables: Sequence[Table]
    maps: Sequence[np.ndarray]
    shares: Sequence[
        np.ndarray
    ]  # of each column's values, noisy; with a partner [values, merged values of it]
    partners: Sequence[int] = ()  # of each column: the one by which its values are drawn; -1 for none
    row_counts: Sequence[float] = ()  # the share of clients with 1, 2, ... rows, if they were asked
    spikes: Spikes = ()  # of the columns that are no label: numbers that are values of their own

    def pack(self) -> Tensor:
        """One vector: numbers of cliques and columns, the tree, tables, maps, partners, shares, row counts.

        With spikes the first number is negative, and they come before the tables.
        """
        import torch

        tree = self.tree
        head = [len(tree.cliques), len(tree.sizes), *tree.sizes, *tree.parents]
        for clique in tree.cliques:
            head += [len(clique), *clique]
        head += [len(merged) for merged in self.maps]
        if any(self.spikes):
            head[0] = -head[0]
            for own in self.spikes:
                head += [len(own), *own]
            head += [0] * (len(tree.sizes) - len(self.spikes))
        partners = tuple(self.partners) or (-1,) * len(tree.sizes)
        pieces = [*self.tables, *self.maps, np.asarray(partners), *self.shares, np.asarray(self.row_counts)]
        flat = np.concatenate([np.asarray(head, dtype=np.float64), *(np.ravel(piece) for piece in pieces)])
        return torch.from_numpy(flat.astype(np.float32))

    @classmethod
    def unpack(cls, vector: Tensor) -> Distribution:
        """The distribution that `pack` wrote."""
        return cls.read(vector.numpy())

    @classmethod
    def read(cls, vector: np.ndarray) -> Distribution:
        """The same from an array."""
        flat, at = vector.astype(np.float64), 0

        def take(count: int) -> np.ndarray:
            nonlocal at
            at += count
            return flat[at - count : at]

        def whole(count: int) -> tuple[int, ...]:
            return tuple(int(number) for number in take(count))

        cliques, columns = whole(2)
        spiked, cliques = cliques < 0, abs(cliques)
        sizes, parents = whole(columns), whole(cliques)
        members = tuple(whole(whole(1)[0]) for _ in range(cliques))
        lengths = whole(columns)
        spikes = tuple(whole(whole(1)[0]) for _ in range(columns)) if spiked else ()
        tree = JunctionTree(sizes, members, parents)
        tables = [take(math.prod(shape)).reshape(shape) for shape in tree.shapes]
        maps = [take(length).astype(np.int64) for length in lengths]
        plain = len(flat) - at == sum(lengths)  # as it was written before columns had partners
        partners = (-1,) * columns if plain else whole(columns)
        shares = [
            take(length) if partner < 0 else take(length * sizes[partner]).reshape(length, -1)
            for length, partner in zip(lengths, partners, strict=True)
        ]
        return cls(tree, tables, maps, shares, partners, tuple(take(len(flat) - at)), spikes)

    def numbered(self, domain: TableDomain) -> TableDomain:
        """The domain with the numbers that are values of their own here."""
        features = len(domain.axes)
        return domain.with_spikes(self.spikes[:features] if any(self.spikes) else ())

    @cached_property
    def within(self) -> list[np.ndarray]:
        """The share of each value inside its merged value."""
        return [inside(*of) for of in zip(self.shares, self.maps, strict=True)]

    def owners(self, rows: int, rng: np.random.Generator) -> np.ndarray:
        """Whose each row is, from 1: clients have as many rows as clients had; the last one perhaps fewer."""
        counts = np.asarray(self.row_counts)
        lengths = 1 + rng.choice(len(counts), rows, p=counts / counts.sum())
        return np.repeat(np.arange(1, rows + 1), lengths)[:rows]

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

        `known` has for some columns the value of each row.
        """
        tables, weights = self.tables, dict(enumerate(self.within))
        if likely:
            weights |= {column: (weights[column].T * chance).T for column, chance in likely.items()}
            tables = conditioned(
                self.tree, tables, dict(self._evidence(column, weights[column]) for column in likely)
            )
        values = dict(known or {})
        merged_values = {one: self.maps[one][codes] for one, codes in values.items()}
        if len(values) > 1:
            return self._filled(sample_given(self.tree, tables, merged_values, rng), values, weights, rng)
        sampler = self._sampler(tables, *values) if likely else self._samplers(*values)
        return self._filled(sampler.draw(rows, rng, merged_values), values, weights, rng)

    @cached_property
    def _samplers(self) -> Callable[..., TreeSampler]:
        """Samplers of the tables as they are, each made once."""
        return cache(partial(self._sampler, self.tables))

    def _sampler(self, tables: Sequence[Table], *known: int) -> TreeSampler:
        """Draws rows; the clique that has the known column, if there is one, comes first."""
        home = self.tree.home(known) if known else 0
        assert home is not None
        tree, order = self.tree.rooted(home) if known else (self.tree, range(len(tables)))
        return TreeSampler(tree, [tables[place] for place in order], known)

    def _filled(
        self,
        merged: np.ndarray,
        values: Mapping[int, np.ndarray],
        weights: Mapping[int, np.ndarray],
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Values inside merged ones, by weight, where they are not known."""
        drawn, sizes = merged.copy(order="K"), self.tree.sizes
        for column, groups in enumerate(self.maps):
            if column in values:
                drawn[:, column] = values[column]
            elif len(groups) > sizes[column]:
                weight, place = weights[column], merged[:, column]
                if weight.ndim > 1:  # the merged values of column and partner are one
                    place = place + sizes[column] * merged[:, self.partners[column]]
                    groups = np.concatenate([groups + sizes[column] * one for one in range(weight.shape[1])])
                drawn[:, column] = _inside(place, groups, weight.T.ravel(), len(self.maps[column]), rng)
        return drawn

    def _evidence(self, column: int, weight: np.ndarray) -> tuple[Columns, Table]:
        """How likely each merged value (and its partner's) meets a condition, by the weight of the values inside."""
        chances = np.zeros((self.tree.sizes[column], *weight.shape[1:]))
        np.add.at(chances, self.maps[column], weight)
        return (column, *([self.partners[column]] if weight.ndim > 1 else [])), chances


def _inside(
    drawn: np.ndarray, merged: np.ndarray, weight: np.ndarray, values: int, rng: np.random.Generator
) -> np.ndarray:
    """A value inside each merged one, by weight; there are so many values, perhaps once for each of a partner's."""
    order = np.argsort(merged, kind="stable")
    ends = np.cumsum(weight[order])
    counts = np.bincount(merged)
    last = np.cumsum(counts) - 1
    first = last - counts + 1
    uniform, place = rng.random(len(drawn)), first[drawn]
    several = np.flatnonzero((counts > 1)[drawn])  # where there is one value, there is nothing to look up
    own, high = drawn[several], ends[last]
    low = np.concatenate([[0.0], high[:-1]])
    at = low[own] + uniform[several] * (high - low)[own]
    place[several] = np.searchsorted(ends, at, side="right").clip(first[own], last[own])
    return np.asarray((order % values)[place])


def drawn_codes(domain: TableDomain, fitted: Distribution, labels: np.ndarray, rng: Rng) -> np.ndarray:
    """The values of one row for each label, [rows, columns]."""
    values = {} if domain.label is None else {domain.label: labels}
    return fitted.draw(len(labels), rng.at("rows").numpy(), known=values)
