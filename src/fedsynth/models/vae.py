"""Conditional variational autoencoders: for mixed-type rows and for images.

The decoder is all that is needed to make data, so it is what is shared; the encoder may stay with its client.
The label is given to both (Kingma and Welling 2013; conditional and with weight beta on the KL term, Higgins et
al. 2016). No layer has buffers or batch statistics, and no loss draws randomness: both would break vmap and DP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsynth.data.encode import Block
from fedsynth.models import image_stack
from fedsynth.models.deep_image import DeepDecoder, DeepEncoder
from fedsynth.models.layers import Conv2d, ConvTranspose2d
from fedsynth.models.model import Batch, Objective, Params, call, draw_rows, weighted_mean
from fedsynth.rng import Rng

_LOGIT_BOUND = 15.0  # keeps exp() and the loss finite, so that no client can make the sum explode


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Fully connected layers with SiLU between them."""
    layers: list[nn.Module] = []
    for before, after in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(before, after), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


def kl_to_standard_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL divergence of a diagonal Gaussian from N(0, I), for each row."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


def one_hot(y: Tensor, classes: int) -> Tensor:
    """Class numbers as 0/1 rows; by comparison, since F.one_hot is not allowed under vmap."""
    return (y[..., None] == torch.arange(classes, device=y.device)).to(torch.float32)


def encode(encoder: nn.Module, params: Params, inputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """A latent drawn with the given noise, and its KL divergence from the prior."""
    mean, log_variance = call(encoder, params, inputs).chunk(2, dim=-1)
    log_variance = log_variance.clamp(-10.0, 10.0)
    return mean + noise * torch.exp(0.5 * log_variance), kl_to_standard_normal(mean, log_variance)


def pixel_elbo(latent: int, channels: int, side: int) -> Mapping[str, Objective]:
    """The evidence lower bound of an image; reported up to the loss of guessing grey."""
    return {"elbo": Objective(noise=(latent,), bound=math.log(2.0) * (channels * side**2))}


class PixelAutoencoder:
    """Autoencoders of images: the decoder alone makes data, and training follows the evidence lower bound."""

    channels: int
    side: int
    latent: int
    generative: ClassVar[tuple[str, ...]] = ("decoder",)

    @cached_property
    def objectives(self) -> Mapping[str, Objective]:
        """The evidence lower bound."""
        return pixel_elbo(self.latent, self.channels, self.side)


def pixel_error(logits: Tensor, images: Tensor) -> Tensor:
    """The negative log-likelihood of each image under Bernoulli pixels, summed over them."""
    if logits.is_cuda:  # under vmap, torch takes its function apart into 36 passes over the pixels
        return (F.softplus(logits) - images * logits).flatten(1).sum(-1)
    return F.binary_cross_entropy_with_logits(logits, images, reduction="none").flatten(1).sum(-1)


@dataclass(frozen=True)
class TableVAE:
    """A conditional VAE whose heads follow the columns: each column is a choice among its categories or bins.

    Ordered columns (ordinal, integer, continuous) are modelled as a histogram over their public bounds, uniform
    within a bin: bounded gradients and no variance that could collapse, which is what noise asks for.
    """

    width: int
    blocks: tuple[Block, ...]
    classes: int
    latent: int = 16
    hidden: tuple[int, ...] = (64,)
    beta: float = 1.0
    generative: ClassVar[tuple[str, ...]] = ("decoder",)

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder of (row, label), decoder of (latent, label)."""
        return {
            "encoder": mlp([self.width + self.classes, *self.hidden, 2 * self.latent]),
            "decoder": mlp([self.latent + self.classes, *reversed(self.hidden), len(self._choices)]),
        }

    @cached_property
    def objectives(self) -> Mapping[str, Objective]:
        """The evidence lower bound; reported up to twice the loss of a uniform guess."""
        uniform = sum(math.log(block.size) for block in self.blocks)
        return {"elbo": Objective(noise=(self.latent,), bound=2.0 * uniform)}

    @cached_property
    def _choices(self) -> Tensor:
        """Where the one-hot entries lie in an encoded row: all but the positions of ordered columns."""
        return torch.cat([torch.arange(b.start, b.start + b.size) for b in self.blocks])

    @cached_property
    def _membership(self) -> Tensor:
        """[choices, blocks]: which block an entry belongs to."""
        owner = torch.repeat_interleave(
            torch.arange(len(self.blocks)), torch.tensor([b.size for b in self.blocks])
        )
        return one_hot(owner, len(self.blocks))

    def _constants(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Choices and membership on the device; kept there, since a recorded GPU step may not copy."""
        if device not in self._placed:
            self._placed[device] = (self._choices.to(device), self._membership.to(device))
        return self._placed[device]

    @cached_property
    def _placed(self) -> dict[torch.device, tuple[Tensor, Tensor]]:
        return {}

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The negative evidence lower bound, summed over columns, averaged over rows."""
        x, label = batch["x"], one_hot(batch["y"], self.classes)
        latent, divergence = encode(
            self.parts["encoder"], params["encoder"], torch.cat([x, label], -1), noise
        )
        logits = self._logits(params["decoder"], latent, label)
        choices, membership = self._constants(x.device)
        chosen = x.index_select(-1, choices)
        normalizer = torch.log(logits.exp() @ membership).sum(-1)
        reconstruction = normalizer - (chosen * logits).sum(-1)
        return weighted_mean(reconstruction + self.beta * divergence, batch["weight"])

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Encoded rows for the labels: a latent from the prior, then one choice a column."""
        generator = rng.at("sample").torch_generator()
        latent = torch.randn(len(labels), self.latent, generator=generator)
        logits = self._logits(params["decoder"], latent, one_hot(labels, self.classes))
        return draw_rows(logits, self.blocks, self.width, generator)

    def _logits(self, params: Params, latent: Tensor, label: Tensor) -> Tensor:
        raw = call(self.parts["decoder"], params, torch.cat([latent, label], -1))
        return _LOGIT_BOUND * torch.tanh(raw / _LOGIT_BOUND)


class ImageEncoder(nn.Module):
    """Two convolutions from an image and its label to `outputs` numbers."""

    def __init__(self, channels: int, side: int, classes: int, outputs: int, width: int) -> None:
        super().__init__()
        self.first = Conv2d(channels, width, 4, stride=2, padding=1)
        self.second = Conv2d(width, 2 * width, 4, stride=2, padding=1)
        self.head = nn.Linear(2 * width * (side // 4) ** 2 + classes, outputs)

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        """The numbers of each image."""
        features = F.relu(self.second(F.relu(self.first(image))))
        return self.head(torch.cat([features.flatten(1), label], -1))


class ImageDecoder(nn.Module):
    """Two transposed convolutions from a latent code and a label to an image's logits."""

    def __init__(self, channels: int, side: int, classes: int, latent: int, width: int) -> None:
        super().__init__()
        self.shape = (2 * width, side // 4, side // 4)
        self.stem = nn.Linear(latent + classes, math.prod(self.shape))
        self.first = ConvTranspose2d(2 * width, width, 4, stride=2, padding=1)
        self.second = ConvTranspose2d(width, channels, 4, stride=2, padding=1)

    def forward(self, latent: Tensor, label: Tensor) -> Tensor:
        """Logits of the pixels."""
        stem = F.relu(self.stem(torch.cat([latent, label], -1)))
        return self.second(F.relu(self.first(stem.unflatten(-1, self.shape))))


@dataclass(frozen=True)
class ImageVAE(PixelAutoencoder):
    """A conditional convolutional VAE for square images whose side is a multiple of four (28, 32), grey or RGB.

    `deep` are the channels of a deeper network in place of `width`.
    """

    channels: int
    side: int
    classes: int
    latent: int = 16
    width: int = 32
    beta: float = 1.0
    deep: tuple[int, ...] = ()

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """Two strided convolutions down, two transposed ones up; or as `deep` says."""
        if self.deep:
            deep = (self.channels, self.side, self.classes, self.latent, self.deep)
            return {"encoder": DeepEncoder(*deep), "decoder": DeepDecoder(*deep)}
        shape = (self.channels, self.side, self.classes)
        return {
            "encoder": ImageEncoder(*shape, 2 * self.latent, self.width),  # mean and log-variance
            "decoder": ImageDecoder(*shape, self.latent, self.width),
        }

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The negative evidence lower bound with a Bernoulli likelihood, summed over pixels."""
        x, label = batch["x"], one_hot(batch["y"], self.classes)
        mean, log_variance = call(self.parts["encoder"], params["encoder"], x, label).chunk(2, dim=-1)
        log_variance = log_variance.clamp(-10.0, 10.0)
        latent = mean + noise * torch.exp(0.5 * log_variance)
        logits = call(self.parts["decoder"], params["decoder"], latent, label)
        divergence = kl_to_standard_normal(mean, log_variance)
        return weighted_mean(pixel_error(logits, x) + self.beta * divergence, batch["weight"])

    def losses(
        self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor
    ) -> Tensor | None:
        """The same loss of each client in a stack, on a CPU; None where vmap is the better way."""
        x, weight = batch["x"], batch["weight"]
        if self.deep or x.is_cuda:
            return None
        label = one_hot(batch["y"], self.classes)
        outputs = image_stack.encode(params["encoder"], x, label)
        latent, divergence = image_stack.draw_latent(outputs, noise)
        logits = image_stack.decode(params["decoder"], latent, label, self.side)
        each = image_stack.pixel_error(logits, x) + self.beta * divergence
        return (each * weight).sum(1) / weight.sum(1).clamp(min=1e-12)

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Images in [0, 1] for the labels, [count, channels, side, side]."""
        generator = rng.at("sample").torch_generator()
        latent = torch.randn(len(labels), self.latent, generator=generator)
        label = one_hot(labels, self.classes)
        images = [
            torch.sigmoid(call(self.parts["decoder"], params["decoder"], z, c))
            for z, c in zip(latent.split(2000), label.split(2000), strict=True)
        ]
        return torch.cat(images)
