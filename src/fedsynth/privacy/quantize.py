"""From a clipped vector to integers whose norm is known, for sums in Z_2^b.

Stochastic rounding is unbiased but can lengthen a vector, so it is repeated until the integers keep a stated bound
(conditional rounding, Kairouz, Liu and Steinke 2021). The bound is checked on the integers themselves: it holds in
exact arithmetic whatever the floats before it did. A random rotation spreads a vector evenly over its coordinates, so
that sums of many need fewer bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.rng import Rng

Uniforms = Callable[[int], Tensor]  # attempt -> numbers in [0, 1), of the shape of what is rounded

_TRIES = 8
_AGAIN = 0.01  # chance that rounding a vector of the full length exceeds the limit and is repeated
LARGEST = 2**26  # coordinates whose squares still sum exactly in float64
_PADDING = 32  # a rotation makes a vector longer by at most this fraction of it


def norm_limit(steps: float, dim: int) -> int:
    """The largest squared norm of integers that a vector of norm `steps` may be rounded to.

    The expected squared norm grows by up to dim / 4; the rest makes repetitions rare (Kairouz, Liu and Steinke 2021,
    Proposition 22), and no rounding can exceed (steps + sqrt(dim))^2.

    >>> norm_limit(1000.0, 4)
    1003...
    """
    likely = math.sqrt(2.0 * math.log(1.0 / _AGAIN)) * (steps + math.sqrt(dim) / 2)
    return math.floor(min((steps + math.sqrt(dim)) ** 2, steps**2 + dim / 4 + likely))


def round_within(x: Tensor, limit: int, uniforms: Uniforms) -> Tensor:
    """Round each row of x [rows, dim] at random to integers (float64) of squared norm at most `limit`.

    A row that is still too long after a few tries is cut toward zero, and dropped if even that is too long: its
    contribution may then be wrong, but never larger than what was accounted.

    >>> round_within(torch.tensor([[0.5, 2.0]]), 5, lambda attempt: torch.tensor([[0.7, 0.7]]))
    tensor([[0., 2.]], dtype=torch.float64)
    """
    if not limit < LARGEST**2:
        raise BadInput(f"limit={limit}: a squared norm below 2^52 can be checked exactly; use a coarser grid")
    whole = x.floor()
    part = x - whole
    rounded = torch.zeros(1, dtype=torch.float64, device=x.device)
    waiting = torch.ones(len(x), dtype=torch.bool, device=x.device)
    for attempt in range(_TRIES):
        drawn = (whole + (uniforms(attempt) < part)).to(torch.float64)
        fits = waiting & _within(drawn, limit)  # what is not finite never fits
        if bool(fits.all()):
            return drawn
        rounded = torch.where(fits[:, None], drawn, rounded)
        waiting &= ~fits
        if not bool(waiting.any()):
            return rounded
    cut = x.trunc().to(torch.float64)
    return torch.where((waiting & _within(cut, limit))[:, None], cut, rounded)


def _within(integers: Tensor, limit: int) -> Tensor:
    """Whether each row of integers keeps the limit; sums of squares below 2^53 are exact, larger ones fail anyway."""
    return integers.square().sum(dim=1) <= float(limit)


@dataclass(frozen=True)
class HadamardRotation:
    """Random signs and a Walsh-Hadamard transform of each block of coordinates; `block=1` leaves a vector as it is.

    The signs are public and change with every round (`turn`). A coordinate of what comes out is a random signed sum:
    it exceeds `spread(p)` times the norm of what went in with probability at most p.

    >>> HadamardRotation(100, 4).length, HadamardRotation.for_dim(421_696).block
    (100, 8192)
    """

    dim: int
    block: int = 1

    @classmethod
    def for_dim(cls, dim: int) -> HadamardRotation:
        """The largest blocks that lengthen a vector by at most about 3%."""
        return cls(dim, 2 ** max(0, (dim // _PADDING).bit_length() - 1))

    @property
    def length(self) -> int:
        """Coordinates after the rotation: whole blocks."""
        return -(-self.dim // self.block) * self.block

    def spread(self, chance: float) -> float:
        """How much of a vector's norm one coordinate can hold, except with this chance.

        >>> HadamardRotation(10).spread(1e-9), round(HadamardRotation(65536, 65536).spread(1e-9), 4)
        (1.0, 0.0256)
        """
        return min(1.0, math.sqrt(2.0 * math.log(2.0 / chance) / self.block))

    def apply(self, x: Tensor, turn: int) -> Tensor:
        """Rotate each row of x [rows, dim]; norms stay as they are."""
        if self.block == 1:
            return x
        padded = torch.nn.functional.pad(x, (0, self.length - self.dim))
        return self._transform(padded * self._signs(turn).to(x))

    def undo(self, total: Tensor, turn: int) -> Tensor:
        """The vector [dim] whose rotation is `total`."""
        if self.block == 1:
            return total
        return (self._transform(total[None])[0] * self._signs(turn).to(total))[: self.dim]

    def _signs(self, turn: int) -> Tensor:
        public = Rng(0).at("rotation", turn).bytes(-(-self.length // 8))
        bits = np.unpackbits(np.frombuffer(public, dtype=np.uint8))[: self.length]
        return torch.from_numpy(bits.astype(np.float32) * 2.0 - 1.0)

    def _transform(self, x: Tensor) -> Tensor:
        """The orthonormal Walsh-Hadamard transform of each block; it is its own inverse."""
        rows, half = len(x), 1
        while half < self.block:
            pairs = x.reshape(rows, -1, 2, half)
            x = torch.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], dim=2)
            half *= 2
        return x.reshape(rows, -1) / math.sqrt(self.block)
