"""Randomized response on a few columns of a row at once: a client's answer about a small, randomly chosen view.

Each client answers for the joint value of a few columns (its view) with its whole budget, by generalized randomized
response: the true cell with probability proportional to exp(epsilon), any other cell with probability proportional to
1. Which columns it was is no secret: they were drawn without looking at the row. Many views together tell the
distribution of every two columns (CALM, Zhang et al. 2018, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.privacy.draw import PRECISION, CumulativeTable, below, client_words
from fedsynth.privacy.events import EpsilonDeltaDpEvent
from fedsynth.privacy.mechanism import Release, State
from fedsynth.rng import Rng

_TOO_MANY = 2**40  # cells of a view: their numbers must fit in 64 bits, with room
_SPARED = Decimal(2) ** -40  # share of epsilon kept back, so that rounding a table to 128 bits stays below it


def honesty(epsilon: float, cells: int) -> float:
    """The share of answers that are the truth; the others are drawn evenly from all cells.

    >>> round(honesty(math.log(3), 2), 3), honesty(math.inf, 8)
    (0.5, 1.0)
    """
    return 1.0 if math.isinf(epsilon) else math.expm1(epsilon) / (math.expm1(epsilon) + cells)


def best_view(sizes: Sequence[int], always: Sequence[int], epsilon: float) -> int:
    """How many random columns a view should have so that answers tell most, for columns of about equal size.

    >>> best_view([2] * 124, [123], 8.0), best_view([2] * 124, [123], 1.0), best_view([2, 2], [1], 8.0)
    (7, 1, 1)
    """
    others = [size for column, size in enumerate(sizes) if column not in always]
    typical = math.exp(sum(math.log(size) for size in others) / max(1, len(others)))
    fixed = math.prod(sizes[column] for column in always)
    gains = [
        drawn * honesty(epsilon, max(2, round(fixed * typical**drawn))) ** 2
        for drawn in range(1, min(len(others), 16) + 1)
        if drawn == 1 or _most_cells(sizes, len(always) + drawn) < _TOO_MANY
    ]
    return 1 + gains.index(max(gains)) if gains else 0


def _most_cells(sizes: Sequence[int], columns: int) -> int:
    """The cells of the largest view with so many columns."""
    return math.prod(sorted(sizes)[-columns:])


@dataclass(frozen=True)
class Answers:
    """The sum of answers: how often two categories were reported together, for every two of them.

    A message is the view's columns and the number of the reported cell. The sum holds, side by side, the weighted
    counts [categories, categories] and two weights [columns, columns], from which `joint` removes the random answers.
    """

    sizes: tuple[int, ...]
    columns: int  # in a view
    epsilon: float
    kind: str = "answers"

    @property
    def dim(self) -> int:
        """How many numbers the sum has."""
        return sum(self.sizes) ** 2 + 2 * len(self.sizes) ** 2

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each column's categories begin."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    def zero(self) -> Tensor:
        """The empty sum."""
        return torch.zeros(self.dim, dtype=torch.float64)

    def add(self, total: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """The sum with a chunk of messages [clients, columns + 1] added, each times its weight."""
        answers = messages.cpu().numpy()
        views, cells = answers[:, :-1], answers[:, -1]
        each = np.asarray(self.sizes)[views]  # [clients, columns]
        honest = np.array([honesty(self.epsilon, int(size)) for size in each.prod(1)])
        codes = unravel(cells, each)
        flags = np.zeros((len(answers), sum(self.sizes)))
        in_view = np.zeros((len(answers), len(self.sizes)))
        rows = np.arange(len(answers))[:, None]
        flags[rows, self.starts[views] + codes] = 1.0
        in_view[rows, views] = 1.0
        weight = weights.cpu().numpy().astype(np.float64)[:, None]
        pieces = (
            (flags * weight * honest[:, None]).T @ flags,
            (in_view * weight * honest[:, None] ** 2).T @ in_view,
            (in_view * weight * (honest * (1 - honest))[:, None]).T @ in_view,
        )
        sums = np.concatenate([piece.ravel() for piece in pieces])
        return total + torch.from_numpy(sums).to(total.device)

    def fits(self, messages: Tensor, clients: int) -> bool:
        """A view of each client and the number of a cell in it."""
        if messages.dtype != torch.int64 or tuple(messages.shape) != (clients, self.columns + 1):
            return False
        views, cells = messages[:, :-1], messages[:, -1]
        if not bool(((views >= 0) & (views < len(self.sizes))).all()):
            return False
        most = torch.tensor(self.sizes)[views].prod(1)
        return bool(((cells >= 0) & (cells < most)).all())

    def joint(self, total: Tensor, first: int, second: int) -> np.ndarray:
        """The unbiased estimate of the joint distribution of two columns (of one, on the diagonal, if equal)."""
        counts, weight, chance = self._pieces(total)
        block = counts[
            self.starts[first] : self.starts[first + 1], self.starts[second] : self.starts[second + 1]
        ]
        if first == second:
            block = np.diag(block)
        if weight[first, second] <= 0:
            return np.full(block.shape, 1.0 / block.size)
        return (block - chance[first, second] / block.size) / weight[first, second]

    def pairs(self, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All at once: distributions of columns [categories], of two columns, and the inverse variances of the latter.

        Variances are those of randomized response if the two columns were independent; 0 stands for unknown, and
        within a column.
        """
        counts, weight, chance = self._pieces(total)
        owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
        size = np.asarray(self.sizes, dtype=np.float64)[owner]
        worth, random = weight[np.ix_(owner, owner)], chance[np.ix_(owner, owner)]
        cells = size[:, None] * size[None, :]
        joint = (counts - random / cells) / np.maximum(worth, 1e-9)
        own = np.maximum((np.diag(counts) - np.diag(random) / size) / np.maximum(np.diag(worth), 1e-9), 1e-4)
        own /= np.bincount(owner, own)[owner]
        honest = worth / np.maximum(worth + random, 1e-9)
        expected = honest * np.outer(own, own) + (1 - honest) / cells
        known = (worth > 1) & (owner[:, None] != owner[None, :])
        precision = np.where(known, worth / np.maximum(expected * (1 - expected), 1e-9), 0.0)
        return tuple(torch.from_numpy(x).to(torch.float32) for x in (own, joint, precision))  # type: ignore[return-value]

    def answered(self, total: Tensor) -> np.ndarray:
        """For each two columns, of how many honest answers the estimate is worth, [columns, columns]."""
        return self._pieces(total)[1]

    def honest(self, total: Tensor) -> np.ndarray:
        """For each two columns, the share of answers that were true, on average, [columns, columns]."""
        _, weight, chance = self._pieces(total)
        return np.where(weight > 0, weight / np.maximum(weight + chance, 1e-300), 1.0)

    def _pieces(self, total: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        flat = total.cpu().numpy()
        categories, columns = sum(self.sizes), len(self.sizes)
        counts, weight, chance = np.split(flat, [categories**2, categories**2 + columns**2])
        square = (columns, columns)
        return counts.reshape(categories, categories), weight.reshape(square), chance.reshape(square)


@dataclass(frozen=True)
class Views:
    """Each client answers for the columns in `always` and `drawn` others, drawn for it at random.

    `privatize` takes one row of codes a client, [clients, columns]; a client with no row (codes of -1) answers at
    random. Infinite epsilon is the truth, and no privacy.

    >>> Views((2, 2, 3), always=(2,), drawn=1, epsilon=2.0).release.trust
    'local'
    """

    sizes: tuple[int, ...]
    always: tuple[int, ...]
    drawn: int
    epsilon: float

    def __post_init__(self) -> None:
        others = len(self.sizes) - len(self.always)
        if not 0 <= self.drawn <= others:
            raise BadInput(f"columns={self.drawn}: a view has between 0 and all {others} other columns")
        if not self.drawn and not self.always:
            raise BadInput("columns=0: a view without a label needs at least one column")
        if not self.epsilon > 0:
            raise BadInput(f"epsilon={self.epsilon}: randomized response takes a positive number")
        if _most_cells(self.sizes, len(self.always) + self.drawn) >= _TOO_MANY:
            raise BadInput(f"columns={self.drawn}: so large a view has over 2^40 cells; use fewer columns")

    @property
    def release(self) -> Release | None:
        """Pure epsilon for each client that answers, in its own ledger."""
        if math.isinf(self.epsilon):
            return None
        event = EpsilonDeltaDpEvent(self.epsilon)
        return Release("randomized answer for a few columns", "client", "local", event)

    def wire(self, dim: int) -> Answers:
        """The columns asked for and one cell."""
        if dim != len(self.sizes):
            raise BadInput(f"dim={dim}: expected one code for each of {len(self.sizes)} columns")
        return Answers(self.sizes, len(self.always) + self.drawn, self.epsilon)

    def init(self) -> State:
        """No state."""
        return {}

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """The messages [clients, columns of a view + 1]: which columns, and which cell was reported."""
        words = client_words(rng, ids, self.drawn + 2)
        views = self._views(words[:, 2:], rng.at("view"))
        sizes = np.asarray(self.sizes)[views]
        cells = sizes.prod(1)
        codes = np.take_along_axis(x.cpu().numpy().astype(np.int64), views, axis=1)
        empty = (codes < 0).any(1)
        true = ravel(np.maximum(codes, 0), sizes)
        keep = np.ones(len(ids), dtype=bool)
        if not math.isinf(self.epsilon):
            for size in np.unique(cells):
                alike = np.flatnonzero(cells == size)
                keep[alike] = _coin(int(size), self.epsilon).choose(words[alike, 0], rng.at("keep")) == 1
        random = below(cells, words[:, 1], rng.at("cell"))
        sent = np.where(keep & ~empty, true, random)
        return torch.from_numpy(np.concatenate([views, sent[:, None]], axis=1))

    def _views(self, words: np.ndarray, rng: Rng) -> np.ndarray:
        """Distinct columns for each client, ascending (Floyd's algorithm), those in `always` included."""
        others = np.array([c for c in range(len(self.sizes)) if c not in self.always], dtype=np.int64)
        places = np.full((len(words), self.drawn), -1, dtype=np.int64)
        for number in range(self.drawn):
            last = len(others) - self.drawn + number
            place = below(np.full(len(words), last + 1), words[:, number], rng.at(number))
            taken = (places[:, :number] == place[:, None]).any(axis=1)
            places[:, number] = np.where(taken, last, place)
        fixed = np.broadcast_to(np.array(self.always, dtype=np.int64), (len(words), len(self.always)))
        return np.sort(np.concatenate([others[places], fixed], axis=1), axis=1)

    @property
    def extremes(self) -> np.ndarray:
        """Two rows [2, columns] that differ in every column."""
        return np.stack([np.zeros(len(self.sizes), dtype=np.int64), np.asarray(self.sizes) - 1])

    def contrast(self, messages: Tensor) -> np.ndarray:
        """How much more each message speaks for the second of the extremes than for the first."""
        views, cells = messages.numpy()[:, :-1], messages.numpy()[:, -1]
        sizes = np.asarray(self.sizes)[views]
        first, second = (ravel(row[views], sizes) == cells for row in self.extremes)
        return second.astype(float) - first

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The sum as it is: what it tells is read by `Answers.joint`."""
        return total, state


@lru_cache(maxsize=4096)
def _coin(cells: int, epsilon: float) -> CumulativeTable:
    """0: a random cell, 1: the truth; a random cell is the truth once in `cells` draws."""
    with localcontext(PRECISION):
        gain = (Decimal(epsilon) * (1 - _SPARED)).exp() - 1
        return CumulativeTable.of([Decimal(cells), gain])


def ravel(codes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The number of a cell from the codes of its columns, [clients, columns] each."""
    cell = np.zeros(len(codes), dtype=np.int64)
    for column in range(codes.shape[1]):
        cell = cell * sizes[:, column] + codes[:, column]
    return cell


def unravel(cells: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The codes of a cell's columns: the inverse of `ravel`."""
    codes = np.zeros_like(sizes)
    left = cells.copy()
    for column in reversed(range(sizes.shape[1])):
        codes[:, column] = left % sizes[:, column]
        left //= sizes[:, column]
    return codes
