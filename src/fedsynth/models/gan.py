"""Generative adversarial networks, for images and for mixed-type rows, conditional on the label where there is one.

The discriminator is what sees real rows; the generator is trained against it alone, from noise and from labels drawn
at random, so it is as private as the discriminator (Augenstein et al. 2020, section 6). The losses are the improved
Wasserstein one with a gradient penalty (Gulrajani et al. 2017) and the logistic one of the first GANs. No layer has
batch statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad

from fedsynth.data.encode import Block
from fedsynth.models.dcgan import Critic, Painter, PublishedCritic, PublishedPainter
from fedsynth.models.model import Batch, Objective, Params, call, draw_rows, weighted_mean
from fedsynth.models.vae import mlp, one_hot
from fedsynth.rng import Rng

LossName = Literal["wasserstein", "logistic"]
_REPORTED = {"wasserstein": (-20.0, 20.0), "logistic": (0.0, 10.0)}


def objectives_of(loss: LossName, noise: int) -> dict[str, Objective]:
    """The two sides of the game; each row needs the generator's noise and one number more."""
    least, most = _REPORTED[loss]
    shown = Objective(noise=(noise + 1,), bound=most, least=least)
    return {"discriminate": shown, "generate": shown}


def uniform(normal: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) from standard normal ones."""
    return torch.special.ndtr(normal).clamp(max=1 - 1e-6)


def drawn_labels(normal: Tensor, classes: int) -> Tensor:
    """Classes drawn evenly, as 0/1 rows: a generator must not see which labels the rows have."""
    return one_hot((uniform(normal) * max(1, classes)).floor().to(torch.int64), classes)


@dataclass(frozen=True)
class AdversarialGame:
    """The losses of critic and generator, as functions of a critic `score(x, label)` that knows its parameters."""

    loss: LossName
    penalty: float

    def discriminate(
        self, score: CriticScore, real: Tensor, fake: Tensor, label: Tensor, mix: Tensor
    ) -> Tensor:
        """The critic's loss for each row."""
        if self.loss == "logistic":
            return F.softplus(-score(real, label)) + F.softplus(score(fake, label))
        share = mix.reshape(-1, *([1] * (real.dim() - 1)))
        between = share * real + (1 - share) * fake
        slope = grad(lambda x: score(x, label).sum())(between).flatten(1)
        steep = torch.sqrt(slope.square().sum(1) + 1e-8)
        return score(fake, label) - score(real, label) + self.penalty * (steep - 1).square()

    def generate(self, score: CriticScore, fake: Tensor, label: Tensor) -> Tensor:
        """The generator's loss for each row that it made."""
        scores = score(fake, label)
        return F.softplus(-scores) if self.loss == "logistic" else -scores


class CriticScore:
    """A critic with its parameters."""

    def __init__(self, critic: nn.Module, params: Params) -> None:
        self._critic, self._params = critic, params

    def __call__(self, x: Tensor, label: Tensor) -> Tensor:
        """Rows and labels in, scores out."""
        return call(self._critic, self._params, x, label)


@dataclass(frozen=True)
class ImageGAN:
    """A convolutional GAN for square images; `published` takes PP-FedGAN's layers (109,440 + 312,256 parameters)."""

    channels: int
    side: int
    classes: int
    latent: int = 64
    width: int = 16
    loss_name: LossName = "wasserstein"
    penalty: float = 10.0
    published: bool = False
    generative: ClassVar[tuple[str, ...]] = ("generator",)

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """The critic that clients train, and the generator."""
        if self.published:
            return {
                "discriminator": PublishedCritic(self.channels, self.side, self.classes),
                "generator": PublishedPainter(self.channels, self.side, self.classes, self.latent),
            }
        return {
            "discriminator": Critic(self.channels, self.side, self.classes, self.width),
            "generator": Painter(self.channels, self.side, self.classes, self.latent),
        }

    @cached_property
    def objectives(self) -> Mapping[str, Objective]:
        """The two sides of the game."""
        return objectives_of(self.loss_name, self.latent)

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The mean loss of a side; the generator's reads nothing of the batch but how many rows to make."""
        game = AdversarialGame(self.loss_name, self.penalty)
        score = CriticScore(self.parts["discriminator"], params["discriminator"])
        latent, extra = noise[:, : self.latent], noise[:, self.latent]
        if objective == "generate":
            label = drawn_labels(extra, self.classes)
            return game.generate(score, self._paint(params["generator"], latent, label), label).mean()
        label = one_hot(batch["y"], self.classes)
        fake = self._paint(params["generator"], latent, label)
        losses = game.discriminate(score, batch["x"], fake, label, uniform(extra))
        return weighted_mean(losses, batch["weight"])

    def _paint(self, params: Params, latent: Tensor, label: Tensor) -> Tensor:
        return torch.sigmoid(call(self.parts["generator"], params, latent, label))

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Images in [0, 1] for the labels, [count, channels, side, side]."""
        latent = torch.randn(len(labels), self.latent, generator=rng.at("sample").torch_generator())
        label = one_hot(labels, self.classes)
        pieces = zip(latent.split(2000), label.split(2000), strict=True)
        return torch.cat([self._paint(params["generator"], z, c) for z, c in pieces])


@dataclass(frozen=True)
class TableGAN:
    """A GAN for mixed-type rows: one head a column, each a choice among its categories or bins.

    The generator's choices are made by Gumbel noise (Jang et al. 2016): the critic sees choices made for good, as real
    rows have them, and the gradient passes as if they were soft, so that the critic can tell which way to go.
    """

    width: int
    blocks: tuple[Block, ...]
    classes: int
    latent: int = 64
    hidden: tuple[int, ...] = (64,)
    loss_name: LossName = "wasserstein"
    penalty: float = 10.0
    temperature: float = 0.5
    generative: ClassVar[tuple[str, ...]] = ("generator",)

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """The critic that clients train, and the generator, which is twice as wide: it costs no privacy."""
        return {
            "discriminator": _RowCritic(self._choices, self.classes, self.hidden),
            "generator": mlp([self.latent + self.classes, *self.generator_hidden, self._choices]),
        }

    @property
    def generator_hidden(self) -> tuple[int, int]:
        """The hidden layers of the generator."""
        return (2 * max(self.hidden), 2 * max(self.hidden))

    @cached_property
    def objectives(self) -> Mapping[str, Objective]:
        """The two sides of the game; soft choices need noise of their own."""
        return objectives_of(self.loss_name, self.latent + self._choices)

    @cached_property
    def _choices(self) -> int:
        return sum(block.size for block in self.blocks)

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The mean loss of a side; the generator's reads nothing of the batch but how many rows to make."""
        game = AdversarialGame(self.loss_name, self.penalty)
        score = CriticScore(self.parts["discriminator"], params["discriminator"])
        latent, gumbel, extra = noise[:, : self.latent], noise[:, self.latent : -1], noise[:, -1]
        if objective == "generate":
            label = drawn_labels(extra, self.classes)
            return game.generate(
                score, self._choose(params["generator"], latent, label, gumbel), label
            ).mean()
        label = one_hot(batch["y"], self.classes)
        fake = self._choose(params["generator"], latent, label, gumbel)
        real = torch.cat([batch["x"][:, b.start : b.start + b.size] for b in self.blocks], dim=-1)
        return weighted_mean(game.discriminate(score, real, fake, label, uniform(extra)), batch["weight"])

    def _logits(self, params: Params, latent: Tensor, label: Tensor) -> Tensor:
        return call(self.parts["generator"], params, torch.cat([latent, label], -1))

    def _choose(self, params: Params, latent: Tensor, label: Tensor, normal: Tensor) -> Tensor:
        """Rows of choices; a critic that saw soft ones would tell them from real rows by that alone."""
        gumbel = -torch.log(-torch.log(uniform(normal).clamp(min=1e-6)))
        soft = (self._logits(params, latent, label) + gumbel) / self.temperature
        heads = soft.split([block.size for block in self.blocks], dim=-1)
        return torch.cat([_made_for_good(F.softmax(head, dim=-1)) for head in heads], dim=-1)

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Encoded rows for the labels, each column's choice made."""
        generator = rng.at("sample").torch_generator()
        latent = torch.randn(len(labels), self.latent, generator=generator)
        logits = self._logits(params["generator"], latent, one_hot(labels, self.classes))
        return draw_rows(logits, self.blocks, self.width, generator)


def _made_for_good(soft: Tensor) -> Tensor:
    """The likeliest choice as 0/1, with the gradient of the soft one."""
    hard = one_hot(soft.argmax(-1), soft.shape[-1])
    return hard + (soft - soft.detach())


class _RowCritic(nn.Module):
    """A score for a row of choices and its label."""

    def __init__(self, choices: int, classes: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = mlp([choices + classes, *hidden, 1])

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        """One score a row."""
        scores: Tensor = self.layers(torch.cat([x, label], -1))
        return scores.squeeze(-1)
