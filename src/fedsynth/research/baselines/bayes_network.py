"""Bayesian networks of small degree over coded rows: structure by mutual information, tables, ancestral sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol

import numpy as np

from fedsynth.errors import BadInput
from fedsynth.rng import Rng

_MOST_CELLS = 2**22  # of one table of counts: more would say that the degree is too high


@dataclass(frozen=True)
class AttributeParents:
    """A column and its parents."""

    child: int
    parents: tuple[int, ...]

    @property
    def columns(self) -> tuple[int, ...]:
        """Parents, then the child."""
        return (*self.parents, self.child)


Structure = tuple[AttributeParents, ...]  # in the order of sampling: parents come before their children
Choose = Callable[[np.ndarray], int]  # from scores, the place of the chosen one


@dataclass(frozen=True)
class BayesNetwork:
    """A structure and, for each pair, the counts [parents' codes..., child's codes], noisy or not."""

    sizes: tuple[int, ...]
    structure: Structure
    tables: tuple[np.ndarray, ...]

    def sample(self, rows: int, rng: Rng) -> np.ndarray:
        """Codes int64 [rows, columns], column after column given its parents."""
        codes = np.zeros((rows, len(self.sizes)), dtype=np.int64)
        for pair, table in zip(self.structure, self.tables, strict=True):
            chances = np.cumsum(conditional(table), axis=-1)
            drawn = rng.at("column", pair.child).numpy().random(rows)
            cumulative = chances[tuple(codes[:, parent] for parent in pair.parents)]
            cumulative = np.broadcast_to(cumulative, (rows, chances.shape[-1]))
            codes[:, pair.child] = np.minimum((drawn[:, None] >= cumulative).sum(1), chances.shape[-1] - 1)
        return codes


def conditional(table: np.ndarray) -> np.ndarray:
    """Chances of the child given its parents from counts that noise may have made negative; even where all are.

    >>> conditional(np.array([[3.0, 1.0], [-2.0, -1.0]]))
    array([[0.75, 0.25],
           [0.5 , 0.5 ]])
    """
    positive = np.maximum(table, 0.0)
    total = positive.sum(-1, keepdims=True)
    return np.where(total > 0, positive / np.where(total > 0, total, 1.0), 1.0 / table.shape[-1])


def counts(codes: np.ndarray, sizes: Sequence[int], columns: Sequence[int]) -> np.ndarray:
    """How often each combination of codes of these columns occurs."""
    shape = tuple(sizes[column] for column in columns)
    if math.prod(shape) > _MOST_CELLS:
        raise BadInput(
            f"columns {tuple(columns)}: a table of {math.prod(shape):,} cells is too large; use a smaller degree or "
            "fewer bins"
        )
    flat = np.ravel_multi_index(tuple(codes[:, column] for column in columns), shape)
    return np.bincount(flat, minlength=math.prod(shape)).reshape(shape)


def information(table: np.ndarray) -> float:
    """The mutual information, in nats, between the last axis of a table of counts and all others.

    >>> round(information(np.array([[5, 0], [0, 5]])), 4) == round(math.log(2), 4)
    True
    """
    joint = np.maximum(table.reshape(-1, table.shape[-1]), 0.0)
    total = joint.sum()
    if total <= 0:
        return 0.0
    joint = joint / total
    apart = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    positive = joint > 0
    return float((joint[positive] * np.log(joint[positive] / apart[positive])).sum())


def pairwise_information(tables: Sequence[np.ndarray], sizes: Sequence[int]) -> np.ndarray:
    """The mutual information between each column and every other, [child, parent].

    `tables` holds how often two codes occur in one row, [all codes, all codes]: one of all rows, or one for each
    class, and then the class is a parent too.
    """
    edges = np.concatenate([[0], np.cumsum(sizes)])[:-1]

    def blocks(table: np.ndarray) -> np.ndarray:
        return np.add.reduceat(np.add.reduceat(table, edges, 0), edges, 1)

    positive = [np.maximum(table, 0.0) for table in tables]
    total = np.maximum(sum(blocks(table) for table in positive), 1e-300)
    wide = np.repeat(np.repeat(total, sizes, 0), sizes, 1)
    whole = sum(positive) / wide
    child = np.add.reduceat(whole, edges, 1)  # [all codes, parent]: the child's own chances
    parents = [
        np.add.reduceat(table / wide, edges, 0) for table in positive
    ]  # [child, all codes], of each class
    of_child = np.add.reduceat(_surprise(child), edges, 0)
    of_parents = np.add.reduceat(sum(_surprise(each) for each in parents), edges, 1)
    return of_child + of_parents - sum(blocks(_surprise(table / wide)) for table in positive)


def _surprise(chances: np.ndarray) -> np.ndarray:
    """-p log p, 0 where p is 0."""
    return -chances * np.log(np.where(chances > 0, chances, 1.0))


def side_by_side(codes: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """How often each two codes occur in one row, [all codes, all codes]."""
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    flags = np.zeros((len(codes), sum(sizes)), dtype=np.float32)
    flags[np.arange(len(codes))[:, None], codes + starts] = 1.0
    return (flags.T @ flags).astype(np.float64)


class Scores(Protocol):
    """Scores of all pairs of a column that is left and parents that are placed already."""

    def values(self, placed: Sequence[int], left: Sequence[int]) -> np.ndarray:
        """A number for each pair."""

    def pair(self, place: int, placed: Sequence[int], left: Sequence[int]) -> AttributeParents:
        """The pair that the number at this place is for."""


def greedy(root: int, columns: int, scores: Scores, choose: Choose) -> Structure:
    """Add, one by one, the column and parents that `choose` takes from the scores (PrivBayes, Algorithm 2)."""
    structure: list[AttributeParents] = [AttributeParents(root, ())]
    placed, left = [root], [column for column in range(columns) if column != root]
    while left:
        chosen = scores.pair(choose(scores.values(placed, left)), placed, left)
        structure.append(chosen)
        placed.append(chosen.child)
        left.remove(chosen.child)
    return tuple(structure)


@dataclass(frozen=True)
class PairScores:
    """Scores for one parent, looked up in a matrix [child, parent]; `always` is a parent of all, beside it."""

    matrix: np.ndarray
    always: int | None = None

    def values(self, placed: Sequence[int], left: Sequence[int]) -> np.ndarray:
        """A number for each child and parent."""
        return self.matrix[np.ix_(left, placed)].ravel()

    def pair(self, place: int, placed: Sequence[int], left: Sequence[int]) -> AttributeParents:
        """The child and its parents."""
        child, parent = left[place // len(placed)], placed[place % len(placed)]
        if self.always is None or self.always == parent:
            return AttributeParents(child, (parent,))
        return AttributeParents(child, (self.always, parent))


@dataclass(frozen=True)
class SetScores:
    """Scores for up to `degree` parents, each asked of a function once."""

    degree: int
    score: Callable[[AttributeParents], float]
    known: dict[AttributeParents, float] = field(default_factory=dict)

    def values(self, placed: Sequence[int], left: Sequence[int]) -> np.ndarray:
        """A number for each child and set of parents."""
        pairs = self._pairs(placed, left)
        for pair in pairs:
            if pair not in self.known:
                self.known[pair] = self.score(pair)
        return np.array([self.known[pair] for pair in pairs])

    def pair(self, place: int, placed: Sequence[int], left: Sequence[int]) -> AttributeParents:
        """The child and its parents."""
        return self._pairs(placed, left)[place]

    def _pairs(self, placed: Sequence[int], left: Sequence[int]) -> list[AttributeParents]:
        sets = list(combinations(sorted(placed), min(self.degree, len(placed))))
        return [AttributeParents(child, parents) for child in left for parents in sets]
