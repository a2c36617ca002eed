"""Bound what one client can contribute, in exact arithmetic, and put it on the grid that noise is drawn on.

The noise of every mechanism reads its scale from the `Clip` that clipped, so that the two cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.models import gpu_kernels

# A clip bound spans 2^20 to 2^21 grid steps: exact in float32, and 2^32 of them sum exactly in float64.
GRID_BITS = 20

# More than all rounding of a norm and a product in float32 together (docs/noise.md): the bound holds exactly.
_SHRINK = 1.0 - 2.0**-21


def clip_l2(x: Tensor, bound: Tensor | float) -> Tensor:
    """Scale each row of x [clients, dim] down to L2 norm at most `bound`; shorter rows are left as they are.

    The bound holds for the numbers that come out, in exact arithmetic: rounding never lifts a row over it.
    A row with an entry that is not finite becomes a row of zeros, so that no client can poison a sum.

    >>> clip_l2(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    >>> clip_l2(torch.tensor([[float("nan"), 4.0]]), 1.0)
    tensor([[0., 0.]])
    """
    x = x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)
    norms = row_norms(x)
    factor = _rounded_down(torch.clamp(bound * _SHRINK / norms, max=1.0), x.dtype)
    return (x * factor[:, None]).masked_fill_(~torch.isfinite(norms)[:, None], 0.0)


def _rounded_down(factor: Tensor, dtype: torch.dtype) -> Tensor:
    """The float64 factor in another precision, never above it: tiny ones would else round up by a lot."""
    rounded = factor.to(dtype)
    return torch.where(rounded > factor, torch.nextafter(rounded, torch.zeros_like(rounded)), rounded)


def row_norms(x: Tensor) -> Tensor:
    """The L2 norm of each row in float64; not finite if an entry is not."""
    return torch.linalg.vector_norm(x, dim=1, dtype=torch.float64)


def to_grid(x: Tensor, step: float) -> Tensor:
    """Truncate toward zero onto the multiples of `step`, a power of two; no norm increases.

    >>> to_grid(torch.tensor([0.9, -0.9, 0.2]), 0.25)
    tensor([ 0.7500, -0.7500,  0.0000])
    """
    if math.frexp(step)[0] != 0.5:
        raise BadInput(f"step={step}: a grid step is a power of two, else multiples of it are not exact")
    steps = (x / step).trunc_()
    return steps.mul_(step).add_(0.0)  # turns -0.0, which would travel as another number, into 0.0


def nearest_on_grid(x: Tensor, step: float) -> Tensor:
    """The nearest multiples of `step`."""
    return torch.round(x / step) * step


@dataclass(frozen=True)
class Clip:
    """An L2 bound on one client's contribution, as a whole or shared out over consecutive blocks.

    `blocks` is ((size, fraction), ...): each block is clipped to `bound * fraction` by itself and the squares
    of the fractions sum to at most 1, so that the whole still has norm at most `bound`. For one model a
    class, S / sqrt(C) each; or for carrying a bounded loss value beside an update.

    >>> Clip(1.0, blocks=((2, 0.8), (1, 0.6))).apply(torch.tensor([[3.0, 4.0, 9.0]]))
    tensor([[0.4800, 0.6400, 0.6000]])
    """

    bound: float
    blocks: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        if not 2.0**-60 <= self.bound <= 2.0**60:
            raise BadInput(f"bound={self.bound}: a clip bound is a positive number between 2^-60 and 2^60")
        if any(size < 1 or not 0 < fraction <= 1 for size, fraction in self.blocks):
            raise BadInput(f"blocks={self.blocks}: sizes are at least 1 and fractions lie in (0, 1]")
        squares = math.fsum(fraction**2 for _, fraction in self.blocks)
        if squares > 1.0 + 2.0**-30:
            raise BadInput(
                f"blocks={self.blocks}: the squares of the fractions sum to {squares:.6g}, which would "
                f"let one client exceed the bound; at most 1 is allowed (C equal blocks: 1 / sqrt(C) each)"
            )

    @property
    def step(self) -> float:
        """The spacing of the grid for this bound: the power of two in (bound * 2^-21, bound * 2^-20]."""
        return math.ldexp(0.5, math.frexp(self.bound)[1] - GRID_BITS)

    def apply(self, x: Tensor) -> Tensor:
        """Clip each row of x [clients, dim]."""
        if not self.blocks:
            return clip_l2(x, self.bound)
        sizes = [size for size, _ in self.blocks]
        if sum(sizes) != x.shape[1]:
            raise BadInput(
                f"blocks={self.blocks}: sizes sum to {sum(sizes)}, but a contribution has {x.shape[1]}"
            )
        parts = zip(torch.split(x, sizes, dim=1), self.blocks, strict=True)
        clipped = torch.cat([clip_l2(part, self.bound * fraction) for part, (_, fraction) in parts], dim=1)
        return torch.where(torch.isfinite(row_norms(x))[:, None], clipped, 0.0)

    def apply_on_grid(self, x: Tensor) -> Tensor:
        """Clip each row, then truncate it onto the grid: what a mechanism may add up without rounding."""
        return to_grid(self.apply(x), self.step)

    def sum_on_grid(self, x: Tensor, counted: Tensor) -> Tensor:
        """The sum [clients, dim] of those rows of x [clients, rows, dim] that count, each as `apply_on_grid` has it.

        In float64 and exact, whatever the order. Works in place: x is overwritten.
        """
        flat = x.flatten(0, 1)
        blocks = self.blocks or ((x.shape[2], 1.0),)
        parts = torch.split(flat, [size for size, _ in blocks], dim=1)
        factors = self._factors([row_norms(part) for part in parts], counted.flatten(), x.dtype)
        for part, factor in zip(parts, factors, strict=True):
            part.mul_(factor[:, None])
        # what is not finite stays so when multiplied by zero, and is left out
        return flat.trunc_().reshape(x.shape).nansum(1, dtype=torch.float64) * self.step

    def sum_of_blocks(self, blocks: Sequence[Sequence[Tensor]], counted: Tensor) -> Tensor:
        """The same on a GPU, of rows in pieces [clients, rows, size] by block: each is read twice and never written."""
        squares = [torch.stack([gpu_kernels.squares(piece) for piece in block]).sum(0) for block in blocks]
        factors = self._factors([square.sqrt() for square in squares], counted, torch.float32)
        pieces = [(piece, factor) for block, factor in zip(blocks, factors, strict=True) for piece in block]
        return torch.cat([gpu_kernels.whole_sums(*piece) for piece in pieces], dim=1) * self.step

    def _factors(self, norms: Sequence[Tensor], counted: Tensor, kind: torch.dtype) -> list[Tensor]:
        """For each block, what makes clipped rows of whole grid steps; zero for rows that do not count."""
        sound = torch.isfinite(torch.stack(list(norms))).all(dim=0) & (counted != 0)
        shares = [fraction for _, fraction in self.blocks] or [1.0]
        factors = (
            _rounded_down(torch.clamp(self.bound * fraction * _SHRINK / norm, max=1.0), kind)
            for norm, fraction in zip(norms, shares, strict=True)
        )
        return [torch.where(sound, factor / self.step, 0.0) for factor in factors]  # a power of two: exact
