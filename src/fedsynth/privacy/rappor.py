"""RAPPOR (Erlingsson et al. 2014): noisy bits of all columns of a row, and what a server reads from their sums.

Each value becomes a Bloom filter, each bit is replaced by a coin with probability f. All columns are sent, so the
budget of a client is divided over all of them: epsilon = 2 c h ln((2 - f) / f) for c columns and h hash functions
(equation 7 of DP-Fed-WAE), which is why f is close to 1 for many columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.privacy.draw import below, client_words
from fedsynth.privacy.events import EpsilonDeltaDpEvent
from fedsynth.privacy.mechanism import Release, State
from fedsynth.rng import Rng

_AT_ONCE = 4000  # clients whose bits are multiplied in one step
_COINS = 2**31  # a bit is replaced where 31 random bits are below a threshold; one more bit is the coin
_PENALTY = 1e-4  # of the Lasso for each bit, relative to shares
_STEPS, _STILL = 400, 1e-7  # of the Lasso's descent: the most, and a change that ends it


@dataclass(frozen=True)
class Bits:
    """The sum of bit reports: how many there are, how often each bit is set, and each two bits together."""

    bits: int
    kind: str = "bits"

    @property
    def dim(self) -> int:
        """How many numbers the sum has."""
        return 1 + self.bits + self.bits**2

    def zero(self) -> Tensor:
        """The empty sum."""
        return torch.zeros(self.dim, dtype=torch.float64)

    def add(self, total: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """The sum with a chunk of messages [clients, bytes] added, each times its weight."""
        total = total.clone()
        single, both = total[1 : 1 + self.bits], total[1 + self.bits :].view(self.bits, self.bits)
        for part, weight in zip(messages.split(_AT_ONCE), weights.split(_AT_ONCE), strict=True):
            reports = np.unpackbits(part.cpu().numpy(), axis=1, count=self.bits).astype(np.float32)
            each = weight.cpu().numpy().astype(np.float32)[:, None]
            total[0] += float(each.sum())
            single += torch.from_numpy((reports * each).sum(0))
            both += torch.from_numpy((reports * each).T @ reports)
        return total

    def fits(self, messages: Tensor, clients: int) -> bool:
        """A report of each client, eight bits a byte."""
        return messages.dtype == torch.uint8 and tuple(messages.shape) == (clients, -(-self.bits // 8))


@dataclass(frozen=True)
class Rappor:
    """Each client reports the bits of all columns: `hashes` bits of a column's filter are set by each value.

    `privatize` takes one row of codes a client, [clients, columns]. A client with no row (codes of -1) reports values
    that it draws: bits that are all coins would differ from those of any row by more than epsilon.
    Infinite epsilon is the truth, and no privacy.

    >>> Rappor((2, 3), epsilon=2.0).release.trust
    'local'
    """

    sizes: tuple[int, ...]
    epsilon: float
    hashes: int = 4

    def __post_init__(self) -> None:
        if self.hashes < 1:
            raise BadInput(f"hashes={self.hashes}: a Bloom filter needs at least one hash function")
        if not self.epsilon > 0:
            raise BadInput(f"epsilon={self.epsilon}: noisy bits take a positive number")

    @property
    def flip(self) -> float:
        """The probability f that a bit is replaced by a coin.

        >>> round(Rappor((2,) * 124, epsilon=8.0).flip, 4)
        0.996
        """
        if math.isinf(self.epsilon):
            return 0.0
        exact = 2.0 / (1.0 + math.exp(self.epsilon / (2 * len(self.sizes) * self.hashes)))
        return math.ceil(exact * (1 + 2.0**-40) * _COINS) / _COINS  # rounded up: never less noise than stated

    @property
    def release(self) -> Release | None:
        """Pure epsilon for each client that reports, in its own ledger."""
        if math.isinf(self.epsilon):
            return None
        return Release("noisy bits of all columns", "client", "local", EpsilonDeltaDpEvent(self.epsilon))

    def length(self, size: int) -> int:
        """Bits of a column's filter: about half of them are set if all values occur."""
        return max(2 * self.hashes, math.ceil(size * self.hashes / math.log(2)))

    @cached_property
    def patterns(self) -> list[np.ndarray]:
        """For each column, the filter [values, bits] of each value, no two alike; public, the same at every client."""
        patterns = []
        for column, size in enumerate(self.sizes):
            length, draw = self.length(size), Rng(0).at("filter", column).numpy()
            chosen: dict[tuple[int, ...], None] = {}
            while len(chosen) < size:
                chosen[tuple(sorted(draw.choice(length, self.hashes, replace=False).tolist()))] = None
            filters = np.zeros((size, length), dtype=np.uint8)
            for value, bits in enumerate(chosen):
                filters[value, list(bits)] = 1
            patterns.append(filters)
        return patterns

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each column's bits begin, and where the last one's end."""
        return np.concatenate([[0], np.cumsum([self.length(size) for size in self.sizes])])

    def wire(self, dim: int) -> Bits:
        """The bits of all columns."""
        if dim != len(self.sizes):
            raise BadInput(f"dim={dim}: expected one code for each of {len(self.sizes)} columns")
        return Bits(int(self.starts[-1]))

    def init(self) -> State:
        """No state."""
        return {}

    def privatize(self, x: Tensor, state: State, rng: Rng, ids: np.ndarray) -> Tensor:
        """The noisy bits of rows of codes [clients, columns], eight a byte."""
        codes = x.cpu().numpy().astype(np.int64)
        if (codes < 0).any():
            sizes = np.broadcast_to(np.asarray(self.sizes), codes.shape).ravel()
            words = client_words(rng.at("no row"), ids, len(self.sizes)).ravel()
            codes = np.where(
                codes < 0, below(sizes, words, rng.at("no row more")).reshape(codes.shape), codes
            )
        bits = np.concatenate([f[codes[:, c]] for c, f in enumerate(self.patterns)], axis=1)
        count = bits.shape[1]
        halves = client_words(rng, ids, -(-count // 2)).astype("<u8").view("<u4")[:, :count]
        replaced = (halves >> 1) < round(self.flip * _COINS)
        noisy_bits = np.where(replaced, halves & 1, bits).astype(np.uint8)
        return torch.from_numpy(np.packbits(noisy_bits, axis=1))

    def estimate(self, total: Tensor, denominator: float, state: State, rng: Rng) -> tuple[Tensor, State]:
        """The sum as it is: `columns` and `joint` read it."""
        return total, state

    @cached_property
    def extremes(self) -> np.ndarray:
        """Two rows [2, columns] whose filters have as few bits in common as any."""
        furthest = [
            np.unravel_index((each @ each.T.astype(int)).argmin(), (len(each),) * 2) for each in self.patterns
        ]
        return np.array(furthest, dtype=np.int64).T

    def contrast(self, messages: Tensor) -> np.ndarray:
        """How much more each message speaks for the second of the extremes than for the first."""
        first, second = (
            np.concatenate([each[code] for each, code in zip(self.patterns, row, strict=True)]).astype(float)
            for row in self.extremes
        )
        return np.asarray(np.unpackbits(messages.numpy(), axis=1, count=len(first)) @ (second - first))

    def columns(self, total: Tensor) -> list[np.ndarray]:
        """The distribution of each column."""
        share, _ = self._shares(total)
        unbiased = (share - self.flip / 2) / (1 - self.flip)
        spans = zip(self.patterns, self.starts, self.starts[1:], strict=False)
        return [lasso(each, unbiased[start:stop, None])[:, 0] for each, start, stop in spans]

    def joint(self, total: Tensor, first: int, second: int) -> np.ndarray:
        """The distribution of two columns, from the products of their bits."""
        share, together = self._shares(total)
        one, other = (slice(self.starts[c], self.starts[c + 1]) for c in (first, second))
        shift = self.flip / 2
        product = together[one, other] - shift * (share[one, None] + share[None, other]) + shift**2
        return lasso(self.patterns[first], product / (1 - self.flip) ** 2, self.patterns[second])

    def _shares(self, total: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """How often each bit is set, and each two together, as shares of all reports."""
        flat, bits = total.cpu().numpy(), int(self.starts[-1])
        shares = flat[1:] / max(1.0, flat[0])
        return shares[:bits], shares[bits:].reshape(bits, bits)


def lasso(first: np.ndarray, observed: np.ndarray, second: np.ndarray | None = None) -> np.ndarray:
    """Non-negative shares [values, values] whose filters explain the observed bits; even where all vanish.

    The bits of a pair of values are the products of the filters of both, so all steps are of small matrices
    (accelerated gradient descent, Beck and Teboulle 2009).

    >>> filters = np.array([[1, 1, 0], [0, 1, 1]])
    >>> lasso(filters, filters.T @ np.array([[0.3], [0.7]])).round(2)[:, 0]
    array([0.3, 0.7])
    """
    one = first.astype(np.float64)
    other = np.ones((1, 1)) if second is None else second.astype(np.float64)
    scale = max(1.0, float(np.abs(observed).max()))
    left, right = one @ one.T, other @ other.T
    pull = one @ (observed / scale) @ other.T - _PENALTY * observed.size
    step = 1 / (np.linalg.norm(left, 2) * np.linalg.norm(right, 2))
    shares = ahead = np.zeros_like(pull)
    speed = 1.0
    for _ in range(_STEPS):
        moved = np.maximum(ahead - step * (left @ ahead @ right - pull), 0.0)
        faster = (1 + math.sqrt(1 + 4 * speed**2)) / 2
        ahead = moved + (speed - 1) / faster * (moved - shares)
        change, shares, speed = float(np.abs(moved - shares).max()), moved, faster
        if change < _STILL:
            break
    total = shares.sum()
    return shares / total if total > 0 else np.full(pull.shape, 1.0 / pull.size)
