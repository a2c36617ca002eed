"""The public choices of a survey of tables: which are asked for, with which weights, how many cells they have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations

import numpy as np

from fedsynth.models.table_question import ClientCells, Columns, Question
from fedsynth.models.table_spikes import SpikedColumn

_POWER = 1 / 3  # of the number of cells, by which tables weigh
_UNEQUAL = 16  # times fewer cells than the largest table has: smaller ones weigh no less
_FEWEST = 8  # values of a column under which pairs are rather left out


@dataclass(frozen=True)
class Plan:
    """The public choices of a survey: they depend on the schema and the settings alone."""

    sizes: tuple[int, ...]
    ordered: tuple[int, ...]
    label: int | None
    rounds: int
    pair_rounds: int
    most_values: int  # that a column keeps after merging
    most_cells: int  # of a question
    most_tables: int
    tree_cells: int
    label_weight: float
    entropy: float  # weight beside the squared error, for each unit and row of it
    pair_weights: tuple[
        tuple[Columns, float], ...
    ] = ()  # of pairs that weigh neither 1 nor what the label's do
    about: ClientCells | None = None  # that clients say of themselves
    rows_always: bool = False  # rows weigh alike, also where clients' means would have less noise
    possible: tuple[tuple[Columns, np.ndarray], ...] = ()  # pairs of values that constraints allow
    counts: tuple[int, ...] = ()  # columns that are numbers of children
    most_rows: float = math.inf  # that a unit has in a table
    single_rounds: int = 1  # at most, that ask for single columns before pairs
    smooth: bool = False  # neighboring cells of numbers are usually alike
    spiked: tuple[
        tuple[int, SpikedColumn], ...
    ] = ()  # columns whose numbers may be looked at one by one, ascending
    blurred: frozenset[int] = frozenset()  # of these, those where noise would hide such a number

    @cached_property
    def smooth_columns(self) -> frozenset[int]:
        """The columns of numbers whose cells are usually like their neighbors."""
        finer = (column for column, cells in enumerate(self.ordered) if cells > self.values)
        return frozenset(finer) - set(self.counts) if self.smooth else frozenset()

    @cached_property
    def values(self) -> int:
        """How many values a column keeps: few enough for a question about all pairs, if it need not be very few."""
        fitting = (
            most
            for most in range(self.most_values, _FEWEST, -1)
            if _pair_cells([self._most_merged(c, most) for c in range(len(self.sizes))]) <= self.most_cells
        )
        return next(fitting, min(self.most_values, _FEWEST))

    def _cells(self, columns: Columns, most: int) -> int:
        """The most cells that a table of merged values has: zero, missing and spikes may stand beside the others."""
        return math.prod(self._most_merged(column, most) for column in columns)

    def _most_merged(self, column: int, most: int) -> int:
        return min(self.sizes[column], most + 2 + self._spikes.get(column, 0))

    @cached_property
    def one_by_one(self) -> tuple[int, ...]:
        """The columns whose numbers are asked for one by one."""
        return tuple(column for column, _ in self.spiked if column not in self.blurred)

    @cached_property
    def _spikes(self) -> dict[int, int]:
        """How many values beside its cells a column of numbers may have."""
        return {column: one.most for column, one in self.spiked}

    @cached_property
    def pairs(self) -> tuple[Columns, ...]:
        """Every two columns that are asked for: those with the label first, then neighbors, while there is room."""
        every = combinations(range(len(self.sizes)), 2)
        ordered = sorted(every, key=lambda pair: (-self.weight(pair), pair[1] - pair[0]))[: self.most_tables]
        ends = list(accumulate(self._cells(pair, self.values) for pair in ordered))
        return tuple(sorted(pair for pair, end in zip(ordered, ends, strict=True) if end <= self.most_cells))

    @property
    def pair_cells(self) -> int:
        """The most cells that a question about these pairs has."""
        return sum(self._cells(pair, self.values) for pair in self.pairs)

    @cached_property
    def grids(self) -> tuple[int, ...]:
        """The numbers on the grid of each column; none if no column has one that is looked at."""
        spiked = dict(self.spiked)
        return (
            tuple(len(spiked[c].cells) if c in spiked else 0 for c in range(len(self.sizes)))
            if spiked
            else ()
        )

    def weight(self, table: Columns) -> float:
        """The weight of a pair: one with the label matters more."""
        usual = self.label_weight if self.label in table and len(table) < 3 else 1.0
        return self._pair_weights.get(table[:2], usual)

    @cached_property
    def _pair_weights(self) -> dict[Columns, float]:
        return dict(self.pair_weights)

    def question(self, maps: tuple[np.ndarray, ...], tables: Sequence[Columns]) -> Question:
        """These tables with weights that go with the cube root of cells: the sum of absolute errors is least."""
        question = Question(maps, tuple(tables), (), grids=self.grids)
        sizes = (*question.sizes[: 2 * len(maps)], *map(len, maps))  # numbers one by one weigh no more
        cells = [math.prod(sizes[column] for column in table) for table in tables]
        least = max(cells) / _UNEQUAL
        weights = (
            self.weight(table) * max(count, least) ** _POWER
            for table, count in zip(tables, cells, strict=True)
        )
        return replace(question, weights=tuple(weights))


def _pair_cells(sizes: Sequence[int]) -> int:
    """The cells of the tables of every two columns of these sizes."""
    return (sum(sizes) ** 2 - sum(size * size for size in sizes)) // 2
