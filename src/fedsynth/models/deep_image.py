"""The larger of DPD-fVAE's two image networks (Pfitzner and Arnrich 2022, Figure 10), with group norm.

The figure is lost; its caption and the repository it cites leave five convolutions down to 512 channels, the first of
stride 1 and the others of stride 2, the same way up, LeakyReLU(0.01), and about 3.85 million variables. Batch norm
mixes records and keeps statistics that nobody pays for, so group norm stands in its place.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsynth.models.layers import Conv2d, ConvTranspose2d

LARGE = (32, 64, 128, 256, 512)  # channels
_GROUPS = 8  # at most
_SLOPE = 0.01


class DeepEncoder(nn.Module):
    """From an image and its label to mean and log-variance of the latent code."""

    def __init__(self, channels: int, side: int, classes: int, latent: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        pairs = zip((channels, *widths), widths, strict=False)
        self.layers = nn.ModuleList(
            Conv2d(before, after, 3, stride=1 if number == 0 else 2, padding=1)
            for number, (before, after) in enumerate(pairs)
        )
        self.norms = nn.ModuleList(_norm(width) for width in widths)
        self.head = nn.Linear(widths[-1] * _sides(side, len(widths))[-1] ** 2 + classes, 2 * latent)

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        """Mean and log-variance of the latent."""
        for layer, norm in zip(self.layers, self.norms, strict=True):
            image = F.leaky_relu(norm(layer(image)), _SLOPE)
        return self.head(torch.cat([image.flatten(1), label], -1))


class DeepDecoder(nn.Module):
    """From a latent code and a label to an image's logits."""

    def __init__(self, channels: int, side: int, classes: int, latent: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        sides = _sides(side, len(widths))
        self.shape = (widths[-1], sides[-1], sides[-1])
        self.stem = nn.Linear(latent + classes, math.prod(self.shape))
        down = list(zip(widths, widths[1:], sides, strict=False))  # narrow, wide, side of the narrow
        self.layers = nn.ModuleList(
            ConvTranspose2d(wide, narrow, 3, stride=2, padding=1, output_padding=1 - across % 2)
            for narrow, wide, across in reversed(down)
        )
        self.norms = nn.ModuleList(_norm(narrow) for narrow, _, _ in reversed(down))
        self.last = Conv2d(widths[0], channels, 3, padding=1)

    def forward(self, latent: Tensor, label: Tensor) -> Tensor:
        """Logits of the pixels."""
        image = F.leaky_relu(self.stem(torch.cat([latent, label], -1)), _SLOPE).unflatten(-1, self.shape)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            image = F.leaky_relu(norm(layer(image)), _SLOPE)
        return self.last(image)


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(math.gcd(_GROUPS, channels), channels)


def _sides(side: int, layers: int) -> list[int]:
    """The sides of the maps after each layer; the first keeps the image's.

    >>> _sides(28, 5)
    [28, 14, 7, 4, 2]
    """
    return [math.ceil(side / 2**number) for number in range(layers)]
