"""Images by their lowest frequencies: a public basis in which natural pictures have few large numbers."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=16)
def cosine_basis(side: int, count: int, device: torch.device | None = None) -> Tensor:
    """The `count` lowest frequencies of the two-dimensional cosine transform, orthonormal, [side * side, count].

    >>> basis = cosine_basis(8, 10)
    >>> torch.allclose(basis.T @ basis, torch.eye(10), atol=1e-5)
    True
    """
    place = torch.arange(side, dtype=torch.float64) + 0.5
    down, across = _lowest(side, count)
    waves = torch.cos(math.pi / side * place[:, None] * torch.arange(side, dtype=torch.float64))
    waves = waves / waves.norm(dim=0)
    basis = waves[:, None, down] * waves[None, :, across]
    return basis.flatten(0, 1).to(device=device, dtype=torch.float32)


def _lowest(side: int, count: int) -> tuple[Tensor, Tensor]:
    """How many half waves the lowest frequencies have, down and across."""
    down, across = (axis.flatten() for axis in torch.meshgrid(*2 * [torch.arange(side)], indexing="ij"))
    order = torch.argsort(down.square() + across.square(), stable=True)[:count]
    return down[order], across[order]


@lru_cache(maxsize=16)
def frequencies(side: int, count: int, device: torch.device | None = None) -> Tensor:
    """The lowest frequencies in ascending order, in half waves, [count]."""
    down, across = _lowest(side, count)
    return (down.square() + across.square()).float().sqrt().to(device)


def spectrum(images: Tensor, count: int) -> Tensor:
    """The lowest frequencies of images [..., channels, side, side], one channel after the other, [..., numbers]."""
    basis = cosine_basis(images.shape[-1], count, images.device)
    return (images.flatten(-2) @ basis).flatten(-2)


def picture(numbers: Tensor, channels: int, side: int) -> Tensor:
    """The images [..., channels, side, side] that these frequencies make."""
    each = numbers.unflatten(-1, (channels, -1))
    basis = cosine_basis(side, each.shape[-1], numbers.device)
    return (each @ basis.T).unflatten(-1, (side, side))


def middle(channels: int, side: int, count: int) -> Tensor:
    """The frequencies of a soft bright spot: what pictures of single things have in common before any is seen."""
    place = (torch.arange(side) + 0.5) / side - 0.5
    spot = 0.5 * torch.exp(-(place[:, None].square() + place.square()) / (2 * 0.25**2))
    return spectrum(spot.expand(channels, side, side), count)
