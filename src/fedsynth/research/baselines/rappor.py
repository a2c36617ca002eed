"""RAPPOR bits for every column (Erlingsson et al. 2014), and what the server can read from them with a Lasso.

Each value becomes a Bloom filter, each bit is replaced by a coin with probability f. All columns are sent, so the
budget of a client is divided over all of them: epsilon = 2 c h ln((2 - f) / f) for c columns and h hash functions
(equation 7 of DP-Fed-WAE), which is why f is close to 1 for many columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsynth.rng import Rng

_AT_ONCE = 4000  # clients
_PENALTY = 1e-4  # of the Lasso, relative to shares


@dataclass(frozen=True)
class Rappor:
    """The bits of all columns side by side: `hashes` bits of `length` are set by each value."""

    sizes: tuple[int, ...]
    epsilon: float
    hashes: int = 4

    @property
    def flip(self) -> float:
        """The probability f that a bit is replaced by a coin.

        >>> round(Rappor((2,) * 124, epsilon=8.0).flip, 4)
        0.996
        """
        if math.isinf(self.epsilon):
            return 0.0
        return 2.0 / (1.0 + math.exp(self.epsilon / (2 * len(self.sizes) * self.hashes)))

    def length(self, size: int) -> int:
        """Bits of a column's filter: about half of them are set if all values occur."""
        return max(2 * self.hashes, math.ceil(size * self.hashes / math.log(2)))

    @cached_property
    def patterns(self) -> list[np.ndarray]:
        """For each column, the filter [values, bits] of each value; public, the same at every client."""
        patterns = []
        for column, size in enumerate(self.sizes):
            filters = np.zeros((size, self.length(size)), dtype=np.float32)
            for value in range(size):
                draw = Rng(0).at("filter", column, value).numpy()
                filters[value, draw.choice(filters.shape[1], self.hashes, replace=False)] = 1.0
            patterns.append(filters)
        return patterns

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each column's bits begin."""
        return np.concatenate([[0], np.cumsum([filters.shape[1] for filters in self.patterns])])

    def report(self, rows: np.ndarray, rng: Rng) -> np.ndarray:
        """The noisy bits of rows of codes [clients, columns], as float32 [clients, bits]."""
        bits = np.concatenate(
            [filters[np.maximum(rows[:, c], 0)] for c, filters in enumerate(self.patterns)], 1
        )
        threshold = math.ceil(self.flip * 2**31)  # never less noise than stated
        words = np.frombuffer(rng.bytes(4 * bits.size), dtype="<u4").reshape(bits.shape)
        replaced = (words >> 1) < threshold
        coin = (words & 1).astype(np.float32)
        return np.where(replaced | (rows[:, :1] < 0), coin, bits)

    def moments(self, rows: np.ndarray, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
        """How often each bit is set and each two bits together, as unbiased shares: [bits] and [bits, bits]."""
        bits = int(self.starts[-1])
        single, both = np.zeros(bits), np.zeros((bits, bits))
        for number, start in enumerate(range(0, len(rows), _AT_ONCE)):
            reports = self.report(rows[start : start + _AT_ONCE], rng.at("bits", number))
            single += reports.sum(0)
            both += reports.T @ reports
        keep, shift = 1 - self.flip, self.flip / 2
        share = single / len(rows)
        joint_share = both / len(rows)
        unbiased = (share - shift) / keep
        together = (joint_share - shift * (share[:, None] + share[None, :]) + shift**2) / keep**2
        return unbiased, together

    def shares(self, single: np.ndarray, column: int) -> np.ndarray:
        """The distribution of a column."""
        bits = single[self.starts[column] : self.starts[column + 1]]
        return lasso(self.patterns[column].T, bits)

    def joint(self, together: np.ndarray, first: int, second: int) -> np.ndarray:
        """The distribution of two columns."""
        a, b = self.patterns[first], self.patterns[second]
        block = together[
            self.starts[first] : self.starts[first + 1], self.starts[second] : self.starts[second + 1]
        ]
        design = np.einsum("xi,yj->ijxy", a, b).reshape(block.size, len(a) * len(b))
        return lasso(design, block.ravel()).reshape(len(a), len(b))


def lasso(design: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Non-negative shares that explain the observed bits, by the Lasso; even where all vanish."""
    from sklearn.linear_model import Lasso

    scale = max(1.0, float(np.abs(observed).max()))
    model = Lasso(alpha=_PENALTY, positive=True, fit_intercept=False, max_iter=2000, tol=1e-3)
    weights = model.fit(design, observed / scale).coef_ * scale
    total = weights.sum()
    return weights / total if total > 0 else np.full(design.shape[1], 1.0 / design.shape[1])


def pearson(joint: np.ndarray) -> float:
    """The correlation of the codes of two columns with this joint distribution.

    >>> float(pearson(np.array([[0.5, 0.0], [0.0, 0.5]])))
    1.0
    """
    first, second = joint.sum(1), joint.sum(0)
    a, b = np.arange(len(first)), np.arange(len(second))
    mean_a, mean_b = first @ a, second @ b
    spread = math.sqrt(max(0.0, first @ a**2 - mean_a**2) * max(0.0, second @ b**2 - mean_b**2))
    return float((a @ joint @ b - mean_a * mean_b) / spread) if spread > 1e-12 else 0.0


def information(joint: np.ndarray) -> float:
    """The mutual information of two columns, in nats."""
    apart = np.outer(joint.sum(1), joint.sum(0))
    positive = joint > 0
    return float((joint[positive] * np.log(joint[positive] / apart[positive])).sum())


def all_pairs(columns: int) -> Sequence[tuple[int, int]]:
    """Every two columns, the smaller number first."""
    return [(a, b) for a in range(columns) for b in range(a + 1, columns)]
