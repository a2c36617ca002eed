"""The networks of image GANs: small ones of our own, and PP-FedGAN's layers to the parameter.

A critic scores an image as plausible for its label (Miyato and Koyama 2018: one more direction of the features for
each class). Norms are over groups of channels of one image: nothing mixes records.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsynth.errors import BadInput
from fedsynth.models.layers import Conv2d, ConvTranspose2d

_SLOPE = 0.2  # of the leaky rectifier


class Critic(nn.Module):
    """Two strided convolutions and a linear score: few parameters, since each of them is noised."""

    def __init__(self, channels: int, side: int, classes: int, width: int) -> None:
        super().__init__()
        features = 2 * width * (side // 4) ** 2
        self.first = Conv2d(channels, width, 4, stride=2, padding=1)
        self.second = Conv2d(width, 2 * width, 4, stride=2, padding=1)
        self.score = nn.Linear(features, 1 + classes)

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        """One score an image."""
        hidden = F.leaky_relu(self.first(2 * image - 1), _SLOPE)
        hidden = F.leaky_relu(self.second(hidden), _SLOPE)
        scores = self.score(hidden.flatten(1))
        return scores[:, 0] + (scores[:, 1:] * label).sum(-1)


class Painter(nn.Module):
    """A generator that the server trains: its size costs no privacy."""

    def __init__(self, channels: int, side: int, classes: int, latent: int, width: int = 32) -> None:
        super().__init__()
        self.shape = (4 * width, side // 4, side // 4)
        self.stem = nn.Linear(latent + classes, math.prod(self.shape))
        self.norm = nn.GroupNorm(8, 4 * width)
        self.first = ConvTranspose2d(4 * width, 2 * width, 4, stride=2, padding=1)
        self.second_norm = nn.GroupNorm(8, 2 * width)
        self.second = ConvTranspose2d(2 * width, channels, 4, stride=2, padding=1)

    def forward(self, latent: Tensor, label: Tensor) -> Tensor:
        """Logits of the pixels."""
        stem = self.stem(torch.cat([latent, label], -1)).unflatten(-1, self.shape)
        hidden = self.first(F.relu(self.norm(stem)))
        return self.second(F.relu(self.second_norm(hidden)))


def _check_side(side: int) -> None:
    if side != 28:
        raise BadInput(
            f"images of {side}x{side}: PP-FedGAN's layers are for 28x28; resize them, or use another size"
        )


class PublishedCritic(nn.Module):
    """PP-FedGAN's discriminator: 109,440 parameters for grey images without labels.

    Its Table 1 says 4x4 everywhere, which does not give its Table 3's number; 3x3 in the third layer does. Its layers
    are matrix products, since each record has a gradient of its own: as convolutions they would have a group a record.
    """

    def __init__(self, channels: int, side: int, classes: int) -> None:
        super().__init__()
        _check_side(side)
        self.first = Conv2d(channels, 32, 4, stride=2, padding=1, bias=False, method="matmul")
        self.second = Conv2d(32, 64, 4, stride=2, padding=1, bias=False, method="matmul")
        self.second_norm = nn.GroupNorm(64, 64)
        self.third = Conv2d(64, 128, 3, stride=2, padding=1, bias=False, method="matmul")
        self.third_norm = nn.GroupNorm(64, 128)
        self.score = Conv2d(128, 1, 4, bias=False, method="matmul")
        self.direction = nn.Linear(128, classes, bias=False) if classes else None

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        """One score an image."""
        hidden = F.leaky_relu(self.first(2 * image - 1), _SLOPE)
        hidden = F.leaky_relu(self.second_norm(self.second(hidden)), _SLOPE)
        hidden = F.leaky_relu(self.third_norm(self.third(hidden)), _SLOPE)
        score = self.score(hidden).flatten()
        if self.direction is None:
            return score
        return score + (self.direction(hidden.mean((2, 3))) * label).sum(-1)


class PublishedPainter(nn.Module):
    """PP-FedGAN's generator: 312,256 parameters for grey images without labels at latent 100; 3x3 in the second."""

    def __init__(self, channels: int, side: int, classes: int, latent: int) -> None:
        super().__init__()
        _check_side(side)
        self.first = ConvTranspose2d(latent + classes, 128, 4, bias=False)
        self.first_norm = nn.GroupNorm(32, 128)
        self.second = ConvTranspose2d(128, 64, 3, stride=2, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(32, 64)
        self.third = ConvTranspose2d(64, 32, 4, stride=2, padding=1, bias=False)
        self.third_norm = nn.GroupNorm(32, 32)
        self.last = ConvTranspose2d(32, channels, 4, stride=2, padding=1, bias=False)

    def forward(self, latent: Tensor, label: Tensor) -> Tensor:
        """Logits of the pixels."""
        hidden = torch.cat([latent, label], -1)[:, :, None, None]
        hidden = F.relu(self.first_norm(self.first(hidden)))
        hidden = F.relu(self.second_norm(self.second(hidden)))
        hidden = F.relu(self.third_norm(self.third(hidden)))
        return self.last(hidden)
