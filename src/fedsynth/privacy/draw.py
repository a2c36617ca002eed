"""Exact discrete draws from random bytes, by comparisons of integers that are refined until they are decided.

Every random decision of a real release comes down to comparing a uniform number with a known one. Here 64
random bits are compared first; where they do not decide (less than once in 2^50 draws), 64 more are drawn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property

import numpy as np

from fedsynth.rng import Rng

PRECISION = Context(prec=70)  # decimal digits: what is compared to 128 bits is known to more than 200
ONE = 1 << 128


def words(rng: Rng, count: int) -> np.ndarray:
    """`count` uniform 64-bit words of a stream."""
    return np.frombuffer(rng.bytes(8 * count), dtype="<u8")


def refined(word: int, rng: Rng, row: int) -> int:
    """The 128-bit uniform number whose upper half is `word`."""
    return (int(word) << 64) | int.from_bytes(rng.at("refined", row).bytes(8), "little")


@dataclass(frozen=True, eq=False)
class CumulativeTable:
    """A distribution on 0, 1, ..., n whose cumulative probabilities are known to 128 bits.

    The distribution drawn differs from the exact one by at most n * 2^-128 in total variation.
    """

    cumulative: tuple[int, ...]  # floor(2^128 P(value <= i)) for i < n

    @classmethod
    def of(cls, weights: Sequence[Decimal | Fraction | int]) -> CumulativeTable:
        """The table of a distribution proportional to `weights`.

        >>> CumulativeTable.of([1, 1, 2]).choose(np.array([0, 2**62, 2**63, 2**64 - 1], dtype=np.uint64), Rng(1))
        array([0, 1, 2, 2])
        """
        with localcontext(PRECISION):
            parts = [Fraction(weight) for weight in weights]
        most = max(parts)
        scaled = [
            (part.numerator * most.denominator << 192) // (part.denominator * most.numerator)
            for part in parts
        ]
        total, running, cumulative = sum(scaled), 0, []
        for part in scaled[:-1]:
            running += part
            cumulative.append(running * ONE // total)
        return cls(tuple(cumulative))

    @cached_property
    def _upper(self) -> np.ndarray:
        bounds = [min(bound >> 64, 2**64 - 1) for bound in self.cumulative]
        return np.array(bounds, dtype=np.uint64)

    def choose(self, uniform: np.ndarray, rng: Rng) -> np.ndarray:
        """The value for each uniform 64-bit word; `rng` lends more bits where one falls onto a boundary."""
        chosen = np.searchsorted(self._upper, uniform, side="left")
        at_most = np.append(self._upper, self._upper[-1:])[chosen] if len(self._upper) else ~uniform
        for row in np.flatnonzero(at_most == uniform):
            chosen[row] = bisect_right(self.cumulative, refined(uniform[row], rng, int(row)))
        return chosen


def client_words(rng: Rng, ids: Sequence[int] | np.ndarray, count: int) -> np.ndarray:
    """Uniform 64-bit words [clients, count], each client's own: how clients are chunked changes nothing."""
    if not rng.reproducible:
        return words(rng, len(ids) * count).reshape(len(ids), count)
    streams = [rng.at(int(client)).bytes(8 * count) for client in ids]
    return np.frombuffer(b"".join(streams), dtype="<u8").reshape(len(ids), count)


def below(limits: np.ndarray, uniform: np.ndarray, rng: Rng) -> np.ndarray:
    """Integers uniform in [0, limit), exactly, from 64-bit words; one that would favor some is redrawn.

    >>> below(np.array([10, 3]), np.array([25, 25], dtype=np.uint64), Rng(1))
    array([5, 1])
    """
    limits = limits.astype(np.uint64)
    greatest = np.uint64(2**64 - 1)
    fair = greatest - (greatest % limits + np.uint64(1)) % limits
    uniform = uniform.copy()
    for row in np.flatnonzero(uniform > fair):
        attempt = 0
        while uniform[row] > fair[row]:
            uniform[row] = int.from_bytes(rng.at("again", int(row), attempt).bytes(8), "little")
            attempt += 1
    return (uniform % limits).astype(np.int64)
