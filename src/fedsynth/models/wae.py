"""Wasserstein autoencoders with a maximum mean discrepancy penalty (Tolstikhin et al. 2018), for rows and for images.

As in DP-Fed-WAE (Jiang, Zhou and Grossklags 2022, section 3.1): the encoder gives one latent code a row, with no noise
of its own; the decoder makes the whole row from it, the label included, which is one more column. The loss is the mean
cross-entropy over the columns plus the discrepancy between codes and the standard normal prior.

A column of two categories is one number, a larger one a number for each category. Adult's 124 binary attributes thus
give 18,188 parameters with the paper's layers; its Table 2 says 16,060 because it leaves the latent layers out.
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
from fedsynth.models.layers import ConvTranspose2d
from fedsynth.models.model import Batch, Objective, Params, call, draw_rows, weighted_mean
from fedsynth.models.vae import ImageEncoder, one_hot
from fedsynth.rng import Rng

OBJECTIVE = "wasserstein"
_LOGIT_BOUND = 15.0  # keeps the loss finite whatever a client holds
_SHARPEST = 1e4  # times the logits: the likeliest choice is the only one


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Fully connected layers with rectifiers between them, as in the paper's Figure 3."""
    layers: list[nn.Module] = []
    for before, after in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def discrepancy(codes: Tensor, prior: Tensor, weight: Tensor) -> Tensor:
    """The squared maximum mean discrepancy of equation 4 between codes and prior draws [rows, latent].

    Kernel k(x, y) = c / (c + |x - y|^2) with c = 2 latent. Rows of weight 0 do not count. A single row has no
    other to keep away from, so its code is only drawn to the prior.
    """
    count = weight.sum()
    both = weight[:, None] * weight[None, :]
    apart = both * (1 - torch.eye(len(weight), device=weight.device))
    pairs = (count * (count - 1)).clamp(min=1)
    within = (apart * _kernel(prior, prior)).sum() + (apart * _kernel(codes, codes)).sum()
    across = (both * _kernel(prior, codes)).sum()
    return within / pairs - 2 * across / (count * count).clamp(min=1)


def _kernel(x: Tensor, y: Tensor) -> Tensor:
    lengths = x.square().sum(-1)[:, None] + y.square().sum(-1)[None, :]
    distance = (lengths - 2 * x @ y.T).clamp(min=0)
    scale = 2.0 * x.shape[-1]
    return scale / (scale + distance)


def with_labels(chances: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
    """For each wanted label, the place of a candidate, drawn by how likely its row has that label.

    A model of rows and labels together is thus asked for rows of a given label (importance resampling).
    """
    places = torch.zeros_like(labels)
    for label in labels.unique().tolist():
        wanted = labels == label
        weights = chances[:, label] + 1e-9
        places[wanted] = torch.multinomial(weights, int(wanted.sum()), replacement=True, generator=generator)
    return places


@dataclass(frozen=True)
class TableWAE:
    """Rows of categories (ordered columns are cut into their bins), and the label as the last of them.

    `label_weight` is how many columns the label counts for in the loss; 1 is the paper's. `decode` draws each value
    by its chance ("drawn"), or takes the likeliest as the paper does ("likeliest").
    """

    width: int
    blocks: tuple[Block, ...]
    classes: int
    latent: int = 16
    hidden: tuple[int, ...] = (64,)
    penalty: float = 1.0
    label_weight: float = 1.0
    decode: str = "drawn"
    generative: ClassVar[tuple[str, ...]] = ("decoder",)

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder of a row, decoder of a latent code."""
        inside, units = self.hidden, len(self._kept)
        return {
            "encoder": mlp([units, *inside, self.latent]),
            "decoder": mlp([self.latent, *reversed(inside), units]),
        }

    @cached_property
    def objectives(self) -> Mapping[str, Objective]:
        """The loss of equation 3; bounded by twice that of a uniform guess."""
        uniform = sum(math.log(size) * weight for size, weight in zip(self.sizes, self._weights, strict=True))
        return {OBJECTIVE: Objective(noise=(self.latent,), bound=2.0 * (uniform / len(self.sizes) + 1.0))}

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many choices each column has, the label's last."""
        return (*(block.size for block in self.blocks), *((self.classes,) if self.classes else ()))

    @property
    def _weights(self) -> list[float]:
        return [1.0] * len(self.blocks) + [self.label_weight] * bool(self.classes)

    @cached_property
    def _kept(self) -> Tensor:
        """The choices that have a number of their own: the second of two, all of more."""
        starts = [sum(self.sizes[:column]) for column in range(len(self.sizes))]
        return torch.cat(
            [
                torch.arange(start + (size == 2), start + size)
                for start, size in zip(starts, self.sizes, strict=True)
            ]
        )

    @cached_property
    def _columns(self) -> Tensor:
        """[choices, columns]: which column a choice belongs to."""
        owner = torch.repeat_interleave(torch.arange(len(self.sizes)), torch.tensor(self.sizes))
        return one_hot(owner, len(self.sizes))

    @cached_property
    def _features(self) -> Tensor:
        """Where the choices of the columns other than the label lie in an encoded row."""
        return torch.cat([torch.arange(b.start, b.start + b.size) for b in self.blocks])

    def _constants(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Index and weight tensors on the device; kept there, since a recorded GPU step may not copy."""
        if device not in self._placed:
            spread = one_hot(self._kept, sum(self.sizes))
            weights = torch.tensor(self._weights) / len(self.sizes)
            constants = (self._features, spread, self._columns, weights)
            self._placed[device] = tuple(each.to(device) for each in constants)  # type: ignore[assignment]
        return self._placed[device]

    @cached_property
    def _placed(self) -> dict[torch.device, tuple[Tensor, Tensor, Tensor, Tensor]]:
        return {}

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """Mean cross-entropy of the columns plus the penalty on the codes; `noise` is the draw from the prior."""
        features, spread, columns, weights = self._constants(noise.device)
        chosen = batch["x"].index_select(-1, features)
        if self.classes:
            chosen = torch.cat([chosen, one_hot(batch["y"], self.classes)], -1)
        codes = call(self.parts["encoder"], params["encoder"], chosen @ spread.T)
        logits = self._logits(params["decoder"], codes) @ spread
        cross_entropy = torch.log(logits.exp() @ columns) - (chosen * logits) @ columns
        return weighted_mean(cross_entropy @ weights, batch["weight"]) + self.penalty * discrepancy(
            codes, noise, batch["weight"]
        )

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Encoded rows for the labels: codes from the prior, kept by how likely they decode to the label."""
        generator = rng.at("sample").torch_generator()
        candidates = len(labels) if self.classes < 2 else 4 * len(labels) + 1000
        codes = torch.randn(candidates, self.latent, generator=generator)
        spread = one_hot(self._kept, sum(self.sizes))
        logits = self._logits(params["decoder"], codes) @ spread
        if self.classes > 1:
            chances = F.softmax(logits[:, -self.classes :], dim=-1)
            logits = logits[with_labels(chances, labels, generator)]
        if self.decode == "likeliest":
            logits = logits * _SHARPEST
        return draw_rows(logits, self.blocks, self.width, generator)

    def _logits(self, params: Params, codes: Tensor) -> Tensor:
        raw = call(self.parts["decoder"], params, codes)
        return _LOGIT_BOUND * torch.tanh(raw / _LOGIT_BOUND)


class _ImageDecoder(nn.Module):
    def __init__(self, channels: int, side: int, classes: int, latent: int, width: int) -> None:
        super().__init__()
        self.width, self.side = width, side // 4
        self.grid = nn.Linear(latent, 2 * width * self.side**2 + classes)
        self.first = ConvTranspose2d(2 * width, width, 4, stride=2, padding=1)
        self.second = ConvTranspose2d(width, channels, 4, stride=2, padding=1)

    def forward(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """An image in [0, 1], and the logits of its label."""
        pixels, label = self.grid(code).tensor_split([2 * self.width * self.side**2], dim=-1)
        features = F.relu(pixels).unflatten(1, (2 * self.width, self.side, self.side))
        return torch.sigmoid(self.second(F.relu(self.first(features)))), label


@dataclass(frozen=True)
class ImageWAE:
    """Images (section 5.1): convolutions, and the squared error in place of the cross-entropy."""

    channels: int
    side: int
    classes: int
    latent: int = 16
    width: int = 16
    penalty: float = 1.0
    label_weight: float = 1.0
    generative: ClassVar[tuple[str, ...]] = ("decoder",)

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder of an image and its label, decoder of a latent code."""
        shape = (self.channels, self.side, self.classes, self.latent, self.width)
        return {"encoder": ImageEncoder(*shape), "decoder": _ImageDecoder(*shape)}

    @property
    def objectives(self) -> Mapping[str, Objective]:
        """The loss of equation 3 with the squared error of a pixel."""
        label_loss = self.label_weight * math.log(max(2, self.classes)) * 0.1
        return {OBJECTIVE: Objective(noise=(self.latent,), bound=2.0 * (label_loss + 1.0))}

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """Mean squared error, a tenth of the label's cross-entropy, and the penalty on the codes."""
        label = one_hot(batch["y"], self.classes)
        codes = call(self.parts["encoder"], params["encoder"], batch["x"], label)
        image, logits = call(self.parts["decoder"], params["decoder"], codes)
        missed = (image - batch["x"]).square().flatten(1).mean(1)
        if self.classes > 1:
            logits = _LOGIT_BOUND * torch.tanh(logits / _LOGIT_BOUND)
            cross_entropy = torch.logsumexp(logits, -1) - (label * logits).sum(-1)
            missed = missed + 0.1 * self.label_weight * cross_entropy
        return weighted_mean(missed, batch["weight"]) + self.penalty * discrepancy(
            codes, noise, batch["weight"]
        )

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Images for the labels: codes from the prior, kept by how likely they decode to the label."""
        generator = rng.at("sample").torch_generator()
        candidates = len(labels) if self.classes < 2 else 2 * len(labels) + 200
        codes = torch.randn(candidates, self.latent, generator=generator)
        decoder = self.parts["decoder"]
        pieces = [call(decoder, params["decoder"], piece) for piece in codes.split(2000)]
        images, logits = (torch.cat(each) for each in zip(*pieces, strict=True))
        if self.classes < 2:
            return images
        return images[with_labels(F.softmax(logits, dim=-1), labels, generator)]
