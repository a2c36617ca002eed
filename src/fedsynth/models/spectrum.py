"""Images by their lowest frequencies: a public basis in which natural pictures have few large numbers."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

_WHITE = 255.0  # steps of a pixel
_WAVE = 2.0**17  # steps of a wave: with sides of up to 2048 pixels all sums stay below 2^53


@lru_cache(maxsize=16)
def cosine_basis(side: int, count: int, device: torch.device | None = None) -> Tensor:
    """The `count` lowest frequencies of the two-dimensional cosine transform, orthonormal, [side * side, count].

    >>> basis = cosine_basis(8, 10)
    >>> torch.allclose(basis.T @ basis, torch.eye(10), atol=1e-5)
    True
    """
    waves, (down, across) = _waves(side), _lowest(side, count)
    basis = waves[:, None, down] * waves[None, :, across]
    return basis.flatten(0, 1).to(device=device, dtype=torch.float32)


def _waves(side: int) -> Tensor:
    """The cosine transform of one dimension, orthonormal, float64, [places, half waves]."""
    place = torch.arange(side, dtype=torch.float64) + 0.5
    waves = torch.cos(math.pi / side * place[:, None] * torch.arange(side, dtype=torch.float64))
    return waves / waves.norm(dim=0)


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


def whole_spectrum(images: Tensor, count: int, steps: float) -> Tensor:
    """The same numbers in whole steps, `steps` to a unit, float64: those of a picture depend on no other picture.

    Products of matrices round by how many rows they have. Here pixels and waves are whole numbers and all sums of them
    below 2^53, so that nothing is rounded before the steps, in whatever order a processor adds up.
    """
    side = images.shape[-1]
    waves = (_waves(side) * _WAVE).round().to(images.device)
    pixels = (images.double().clamp(0, 1) * _WHITE).round()
    down, across = _lowest(side, count)
    exact = (waves.T @ pixels @ waves)[..., down, across].flatten(-2)
    return (exact * (steps / (_WHITE * _WAVE**2))).round()


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
