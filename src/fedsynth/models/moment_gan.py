"""An image GAN whose generator starts from each class's moments, and whose critic judges detail.

The generator draws a picture as a Gaussian of its class, in the lowest frequencies or in what tells a photograph's
pattern (the part `prior`, filled once from a noisy answer of the clients), and retouches it by a convolutional network,
which is trained by the game. What a digit looks like is then known from the start; the critic, whose every parameter is
noised, has to learn only in what the pictures differ from real ones, for which few parameters do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsynth.models.dcgan import Critic
from fedsynth.models.gan import AdversarialGame, CriticScore, LossName, drawn_labels, objectives_of, uniform
from fedsynth.models.layers import Conv2d, ConvTranspose2d
from fedsynth.models.model import Batch, Objective, Params, call, weighted_mean
from fedsynth.models.vae import one_hot
from fedsynth.rng import Rng

_SLOPE = 0.2  # of the leaky rectifier


class PatchCritic(nn.Module):
    """Scores each patch of an image by itself and takes the mean: a few thousand parameters, which know no label."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = Conv2d(channels, width, 4, stride=2, padding=1)
        self.second = Conv2d(width, 2 * width, 4, stride=2, padding=1)
        self.score = Conv2d(2 * width, 1, 3, padding=1, method="matmul")  # one channel a client is thin too

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        """One score an image."""
        hidden = F.leaky_relu(self.first(2 * image - 1), _SLOPE)
        hidden = F.leaky_relu(self.second(hidden), _SLOPE)
        return self.score(hidden).mean((1, 2, 3))


class Retoucher(nn.Module):
    """A network that computes the change to a picture from the picture, its label and fresh noise."""

    def __init__(self, channels: int, side: int, inputs: int, width: int) -> None:
        super().__init__()
        self.shape = (2 * width, side // 2, side // 2)
        self.given = nn.Linear(inputs, 2 * width)
        self.first = Conv2d(channels, width, 3, padding=1)
        self.down = Conv2d(width, 2 * width, 4, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 2 * width)
        self.middle = Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = ConvTranspose2d(2 * width, width, 4, stride=2, padding=1)
        self.last = Conv2d(width, channels, 3, padding=1)

    def forward(self, image: Tensor, condition: Tensor) -> Tensor:
        """One change a pixel."""
        fine = F.leaky_relu(self.first(2 * image - 1), _SLOPE)
        coarse = self.norm(self.down(fine)) + self.given(condition)[:, :, None, None]
        coarse = F.leaky_relu(coarse, _SLOPE)
        coarse = coarse + F.leaky_relu(self.middle(coarse), _SLOPE)
        return self.last(F.leaky_relu(fine + self.up(coarse), _SLOPE))


def bounded(image: Tensor) -> Tensor:
    """The image cut to [0, 1]; a gradient passes as if it were not, so that a black pixel can become brighter."""
    return image.detach().clamp(0, 1) + (image - image.detach())


class GeneratorStart(Protocol):
    """The interface of what draws a picture before the generator retouches it."""

    @property
    def channels(self) -> int:
        """Of an image."""

    @property
    def side(self) -> int:
        """Of an image."""

    @property
    def classes(self) -> int:
        """That it is told; 0 where there is no label."""

    @property
    def groups(self) -> int:
        """Classes, or one for all."""

    @property
    def latent(self) -> int:
        """Random numbers of a picture."""

    @property
    def informative(self) -> int:
        """How many of them, from the first, the generator is told when it retouches."""

    @property
    def gain(self) -> float:
        """How much of what an untrained generator would add is added."""

    @property
    def levels(self) -> int:
        """Levels of brightness; 0 where there is no part for them."""

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """`prior`, and `levels` if there are any."""

    def drawn(self, params: Mapping[str, Params], latent: Tensor, label: Tensor) -> Tensor:
        """Pictures of random numbers and labels."""


@dataclass(frozen=True)
class MomentGAN:
    """Pictures from class moments, retouched by what the critic teaches."""

    start: GeneratorStart
    width: int = 8
    patches: bool = True
    painter: int = 32
    loss_name: LossName = "wasserstein"
    penalty: float = 10.0
    anchor: float = 0.0

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """The critic that clients train; what the server fills in once; what it trains."""
        start = self.start
        critic = (
            PatchCritic(start.channels, self.width)
            if self.patches
            else Critic(start.channels, start.side, start.classes, self.width)
        )
        inputs = start.informative + start.groups
        curve = {"levels": start.parts["levels"]} if start.levels else {}
        return {
            "discriminator": critic,
            "prior": start.parts["prior"],
            **curve,
            "generator": Retoucher(start.channels, start.side, inputs, self.painter),
        }

    @property
    def generative(self) -> tuple[str, ...]:
        """The moments, how bright pixels are, and what retouches them."""
        return tuple(part for part in self.parts if part != "discriminator")

    @cached_property
    def objectives(self) -> Mapping[str, Objective]:
        """The two sides of the game."""
        return objectives_of(self.loss_name, self.start.latent)

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The mean loss of a side; the generator's reads nothing of the batch but how many rows to make."""
        game = AdversarialGame(self.loss_name, self.penalty)
        score = CriticScore(self.parts["discriminator"], params["discriminator"])
        latent, extra = noise[:, :-1], noise[:, -1]
        classes = self.start.classes
        if objective == "generate":
            label = drawn_labels(extra, classes)
            drawn, change = self._draw(params, latent, label)
            strayed = change.square().flatten(1).sum(1)
            return (game.generate(score, bounded(drawn + change), label) + self.anchor * strayed).mean()
        label = one_hot(batch["y"], classes)
        fake = self._paint(params, latent, label)
        losses = game.discriminate(score, batch["x"], fake, label, uniform(extra))
        return weighted_mean(losses, batch["weight"])

    def _draw(self, params: Mapping[str, Params], latent: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Pictures from the moments, and what is to be added to them."""
        label = label if self.start.classes else latent.new_ones(len(latent), 1)
        drawn = self.start.drawn(params, latent, label)
        condition = torch.cat([latent[:, : self.start.informative], label], -1)
        return drawn, self.start.gain * call(self.parts["generator"], params["generator"], drawn, condition)

    def _paint(self, params: Mapping[str, Params], latent: Tensor, label: Tensor) -> Tensor:
        drawn, change = self._draw(params, latent, label)
        return bounded(drawn + change)

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Images in [0, 1] for the labels, [count, channels, side, side]."""
        latent = torch.randn(len(labels), self.start.latent, generator=rng.at("sample").torch_generator())
        label = one_hot(labels, self.start.classes)
        pieces = zip(latent.split(2000), label.split(2000), strict=True)
        return torch.cat([self._paint(params, z, c) for z, c in pieces])
