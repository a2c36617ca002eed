"""Gaussian noise on a fixed-point grid: exact from the operating system for releases, seeded for simulation.

Floating-point Gaussian noise leaks through its low bits (Mironov 2012), so a release adds the discrete
Gaussian of Canonne, Kamath and Steinke (2020), by integers alone. docs/noise.md proves what is stated here:
a draw is within 2^-115 of the exact distribution, and `grid_noise` may be accounted as a continuous Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.privacy.clip import nearest_on_grid
from fedsynth.privacy.draw import ONE, PRECISION, CumulativeTable, refined, words
from fedsynth.rng import Rng, expand_normal

_TAIL = 13.5  # standard deviations; the mass beyond is under 2^-128
_BATCH = 1 << 16  # draws at once: what stays in the processor's cache
_MARGIN = 2.0**-40  # comparisons of floats closer than this are decided by integers
_SMOOTHING = 3.0  # grid steps of extra noise that make the continuous accounting an upper bound
_TAYLOR = tuple((-1) ** n / math.factorial(n) for n in range(16, -1, -1))


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The half line 0, 1, 2, ... in blocks of 2^bits numbers, and how often each block is proposed."""

    bits: int
    table: CumulativeTable
    rate: Decimal  # 1 / (2 sigma^2)


@lru_cache(maxsize=64)
def _blocks(sigma: float) -> _Blocks:
    """Blocks of sigma/32 to sigma/16: within one, the density falls by a factor of exp(-0.9) at most."""
    bits = max(0, math.frexp(sigma)[1] - 5)
    count = math.ceil(_TAIL * sigma / 2**bits) + 1
    with localcontext(PRECISION):
        rate = 1 / (2 * Decimal(sigma) ** 2)
        weights = [(-rate * Decimal(block << bits) ** 2).exp() for block in range(count)]
    return _Blocks(bits, CumulativeTable.of(weights), rate)


def discrete_gaussian(sigma: float, count: int, rng: Rng) -> np.ndarray:
    """`count` independent integers x [int64] with probability proportional to exp(-x^2 / (2 sigma^2)).

    Sigma is taken as the exact binary number it is. Draws from `rng.bytes` alone; the running time depends on
    the random bits, not on what is private. Each draw is within 2^-115 of exact (total variation).

    >>> discrete_gaussian(2.0, 5, Rng(1)).dtype
    dtype('int64')
    """
    if not 0 < sigma <= 2.0**50:
        raise BadInput(f"sigma={sigma}: the discrete Gaussian takes 0 < sigma <= 2^50 grid steps")
    blocks, drawn, missing = _blocks(float(sigma)), [np.empty(0, dtype=np.int64)], count
    batch = 0
    while missing > 0:
        proposals = min(missing + missing // 16 + 32, _BATCH)
        drawn.append(_accepted(blocks, proposals, rng.at("batch", batch))[:missing])
        missing -= len(drawn[-1])
        batch += 1
    return np.concatenate(drawn)


def _accepted(blocks: _Blocks, count: int, rng: Rng) -> np.ndarray:
    """The accepted of `count` random proposals: a block, a place within it, a sign; thinned to the exact density."""
    block_words, place_words, height_words = words(rng, 3 * count).reshape(3, count)
    start = blocks.table.choose(block_words, rng.at("block")).astype(np.int64) << blocks.bits
    place = (place_words & np.uint64((1 << blocks.bits) - 1)).astype(np.int64)
    keep = _thinned(blocks, start, place, height_words, rng.at("height"))
    value = start + place
    negative = (place_words >> np.uint64(63)).astype(bool)
    keep &= ~(negative & (value == 0))  # zero has one sign only, or it would come twice as often
    return np.where(negative, -value, value)[keep]


def _thinned(
    blocks: _Blocks, start: np.ndarray, place: np.ndarray, height: np.ndarray, rng: Rng
) -> np.ndarray:
    """True with probability exp(-(x^2 - start^2) / (2 sigma^2)), x = start + place."""
    if blocks.bits == 0:
        return np.ones(len(start), dtype=bool)
    exponent = place * (2.0 * start + place) * float(blocks.rate)
    excess = _exp_minus(exponent) - (height >> np.uint64(11)) * 2.0**-53
    keep = excess > 0
    for row in np.flatnonzero(np.abs(excess) < _MARGIN):
        keep[row] = refined(height[row], rng, int(row)) < _threshold(blocks, int(start[row]), int(place[row]))
    return keep


def _exp_minus(x: np.ndarray) -> np.ndarray:
    """exp(-x) for 0 <= x <= 0.9 to within 2^-46, by sums and products alone: their rounding is standard."""
    result = np.full_like(x, _TAYLOR[0])
    for coefficient in _TAYLOR[1:]:
        result *= x
        result += coefficient
    return result


def _threshold(blocks: _Blocks, start: int, place: int) -> int:
    """floor(2^128 exp(-(x^2 - start^2) / (2 sigma^2))), x = start + place."""
    with localcontext(PRECISION):
        return int((-blocks.rate * (place * (2 * start + place))).exp() * ONE)


def grid_sigma(scale: float, step: float) -> float:
    """The standard deviation in grid steps with which noise of `scale` may be accounted as a Gaussian.

    Three steps' worth of variance are added: the discrete Gaussian is then a function of a continuous one of
    `scale` (docs/noise.md), whatever the dimension, composition or sampling. On the grid of a clip this is a
    relative change of under 5e-12 / noise_multiplier^2.

    >>> grid_sigma(4.0, 1.0) > 5.0, round(grid_sigma(4.0, 1.0), 9)
    (True, 5.0)
    """
    return math.hypot(scale / step, _SMOOTHING) * (1.0 + 2.0**-50)


def grid_noise(count: int, scale: float, step: float, rng: Rng) -> Tensor:
    """Gaussian noise [count] of standard deviation `scale` on the multiples of `step`, float64.

    The operating system's randomness gives the exact discrete Gaussian; a seeded one gives rounded float
    noise, fast and for simulation only. A scale of 0 gives zeros.

    >>> noise = grid_noise(4, 1.0, 2.0**-20, Rng())
    >>> bool((noise * 2**20 == (noise * 2**20).round()).all())
    True
    """
    if scale == 0:
        return torch.zeros(count, dtype=torch.float64)
    if rng.reproducible:
        return nearest_on_grid(torch.from_numpy(rng.numpy().standard_normal(count) * scale), step)
    return torch.from_numpy(discrete_gaussian(grid_sigma(scale, step), count, rng) * step)


def client_noise(
    ids: Sequence[int] | np.ndarray,
    dim: int,
    scale: float,
    step: float,
    rng: Rng,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Noise [clients, dim] like `grid_noise`, each client's own: how clients are chunked changes nothing.

    >>> both = client_noise([3, 8], 2, 1.0, 0.25, Rng(1))
    >>> bool((both[1:] == client_noise([8], 2, 1.0, 0.25, Rng(1))).all())
    True
    """
    if scale > 0 and rng.reproducible:
        return nearest_on_grid(expand_normal(rng.keys(ids, device), (dim,)).to(torch.float64) * scale, step)
    return grid_noise(len(ids) * dim, scale, step, rng).reshape(len(ids), dim).to(device)
