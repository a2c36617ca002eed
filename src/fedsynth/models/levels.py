"""How bright pixels are: a public grid of levels, the share of pixels at each, and a curve that gives others the same.

Gaussians have no edges: a drawn picture is never quite black where real ones are, and what noise left in the moments
shows there as a texture that differs from class to class, which a classifier learns in place of the picture. The curve
maps every value of a drawn picture to the brightness of the same rank among real pixels: monotone, one for all classes
and places, and bought with a handful of numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BLACK = 0.5 / 255  # what a byte calls black
_STEPS = 40  # of bisection
_WIDEST = 4.0  # values of a drawn picture that are looked for


def level_edges(count: int, device: torch.device | None = None) -> Tensor:
    """The brightest value of each level [count]: black, then equal steps up to white.

    >>> level_edges(3).tolist()
    [0.0019607844296842813, 0.5, 1.0]
    """
    return torch.linspace(0, 1, count, device=device).clamp(min=_BLACK)


def level_shares(images: Tensor, count: int) -> Tensor:
    """The share of each image's pixels at each level, [..., count], of images [..., channels, side, side]."""
    pixels = images.flatten(-3)
    below = [(pixels <= edge).float().mean(-1) for edge in level_edges(count, images.device)[:-1]]
    reached = torch.stack([*below, torch.ones_like(below[0])], -1)
    return torch.diff(reached, dim=-1, prepend=torch.zeros_like(reached[..., :1]))


def curve(shares: Tensor, mean: Tensor, deviation: Tensor, weight: Tensor) -> Tensor:
    """The values [levels] up to which a drawn pixel belongs to each level.

    `shares` are noisy shares of the levels; drawn pixels are normal with `mean` and `deviation` [classes, pixels], and
    classes have `weight`.
    """
    likely = shares.double().clamp(min=1e-6)
    reached = (likely.cumsum(0) / likely.sum()).clamp(1e-4, 1 - 1e-4)
    weight = (weight / weight.sum()).double()
    low, high = torch.full_like(reached, -_WIDEST), torch.full_like(reached, _WIDEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        normal = (middle[:, None, None] - mean.double()) / deviation.double().clamp(min=1e-4)
        short = torch.special.ndtr(normal).mean(2) @ weight < reached
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return ((low + high) / 2).float()


def brightness(values: Tensor, bounds: Tensor) -> Tensor:
    """Each drawn value by the curve `bounds` [levels]: black up to the first, white from the last, straight between."""
    step = 1 / (len(bounds) - 1)  # a number, and no tensor of it: a recorded GPU step may not copy
    result = torch.zeros_like(values)
    for number in range(len(bounds) - 1):
        room = (bounds[number + 1] - bounds[number]).clamp(min=1e-6)
        passed = torch.minimum((values - bounds[number]).clamp(min=0), room)
        result = result + passed * (step / room)
    return result
