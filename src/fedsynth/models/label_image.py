"""The convolutional autoencoder of the thesis on federated VAEs (section 4.4.3): the label enters the decoder alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsynth.models.layers import Conv2d, ConvTranspose2d
from fedsynth.models.model import Batch, Params, call, weighted_mean
from fedsynth.models.vae import PixelAutoencoder, encode, one_hot, pixel_error
from fedsynth.rng import Rng

_LOGIT_BOUND = 15.0  # keeps the loss finite whatever a client holds (section 4.4.4)


def bounded(logits: Tensor) -> Tensor:
    """Logits within what keeps a loss finite."""
    return _LOGIT_BOUND * torch.tanh(logits / _LOGIT_BOUND)


def pixels(logits: Tensor, drawn: bool, generator: torch.Generator) -> Tensor:
    """Images in [0, 1]: each pixel's chance as a shade of gray, or black and white drawn by it."""
    chances = torch.sigmoid(logits)
    return torch.bernoulli(chances, generator=generator) if drawn else chances


class _Encoder(nn.Module):
    def __init__(self, channels: int, side: int, latent: int, width: int) -> None:
        super().__init__()
        self.first = Conv2d(channels, width, 3, stride=2, padding=1)
        self.second = Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.third = Conv2d(2 * width, 2 * width, 3, stride=2, padding=1)
        self.head = nn.Linear(2 * width * math.ceil(side / 8) ** 2, 2 * latent)

    def forward(self, image: Tensor) -> Tensor:
        """Mean and log-variance of the latent."""
        for layer in (self.first, self.second, self.third):
            image = F.relu(layer(image))
        return self.head(image.flatten(1))


class _Decoder(nn.Module):
    def __init__(self, channels: int, side: int, inputs: int, width: int) -> None:
        super().__init__()
        self.shape = (width, side // 4, side // 4)
        self.stem = nn.Linear(inputs, math.prod(self.shape))
        self.first = ConvTranspose2d(width, width, 3, padding=1)
        self.second = ConvTranspose2d(width, 2 * width, 3, padding=1)
        self.third = ConvTranspose2d(2 * width, 2 * width, 4, stride=2, padding=1)
        self.fourth = ConvTranspose2d(2 * width, width, 4, stride=2, padding=1)
        self.last = ConvTranspose2d(width, channels, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of the pixels."""
        image = F.relu(self.stem(inputs)).unflatten(-1, self.shape)
        for layer in (self.first, self.second, self.third, self.fourth):
            image = F.relu(layer(image))
        return self.last(image)


@dataclass(frozen=True)
class LabelImageVAE(PixelAutoencoder):
    """Three strided convolutions down; a dense layer and five transposed convolutions up, given the label.

    For square images whose side is a multiple of four. The thesis has a width of 32 and 8 latent numbers.
    """

    channels: int
    side: int
    classes: int
    latent: int = 8
    width: int = 32
    beta: float = 1.0
    drawn: bool = False  # pixels are drawn by their chance

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder of an image, decoder of (latent, label)."""
        return {
            "encoder": _Encoder(self.channels, self.side, self.latent, self.width),
            "decoder": _Decoder(self.channels, self.side, self.latent + self.classes, self.width),
        }

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The negative evidence lower bound with a Bernoulli likelihood, summed over pixels."""
        latent, divergence = encode(self.parts["encoder"], params["encoder"], batch["x"], noise)
        logits = self._logits(params["decoder"], latent, batch["y"])
        return weighted_mean(pixel_error(logits, batch["x"]) + self.beta * divergence, batch["weight"])

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Images in [0, 1] for the labels, [count, channels, side, side]."""
        generator = rng.at("sample").torch_generator()
        latent = torch.randn(len(labels), self.latent, generator=generator)
        pieces = zip(latent.split(2000), labels.split(2000), strict=True)
        logits = [self._logits(params["decoder"], z, y) for z, y in pieces]
        return pixels(torch.cat(logits), self.drawn, generator)

    def _logits(self, params: Params, latent: Tensor, labels: Tensor) -> Tensor:
        inputs = torch.cat([latent, one_hot(labels, self.classes)], -1)
        return bounded(call(self.parts["decoder"], params, inputs))
