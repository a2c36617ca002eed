"""A decoder that starts from each class's mean and covariance, and needs no encoder.

An image is drawn as a Gaussian of its class in the lowest frequencies (the part `prior`, filled from a noisy answer of
the clients), plus a correction by a small convolutional decoder that is trained. The latent code of an image is the
posterior mean under the prior: it follows from that image and what has been released alone. So the gradient of a
record depends on no other record, which an encoder trained on the same records would break.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsynth.models.levels import brightness, level_edges
from fedsynth.models.model import Batch, Objective, Params, call, weighted_mean
from fedsynth.models.spectrum import cosine_basis, frequencies, picture, spectrum
from fedsynth.models.vae import ImageDecoder, one_hot
from fedsynth.rng import Rng

_GAIN = 0.1  # of the correction, which starts untrained
_REST = 0.02  # variance of a pixel that the prior leaves to noise
_WOBBLE = torch.tensor(
    [[0.12], [0.1], [0.06], [0.04], [0.04]]
)  # radians, slope, share, and halves of the side
_BEND = 0.08  # root mean square of how far a pixel is moved, in halves of the side
_STRAIGHT = 3  # lowest frequencies, which shift, size and shear
_BENDS = 19  # and with them those that bend
_USUAL_LOSS = 0.05  # of a pixel; larger losses are reported as this


class Prior(nn.Module):
    """The mean of each class, the factor of its covariance, and the way back from frequencies to the latent code.

    The way back follows from the factor (`inverse`); it is kept beside it because it is needed for every record.
    """

    def __init__(self, classes: int, numbers: int, rank: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.empty(classes, numbers))
        self.factor = nn.Parameter(torch.empty(classes, numbers, rank))
        self.inverse = nn.Parameter(torch.empty(classes, rank, numbers))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Before anything is known: a grey picture with the usual falling spectrum."""
        numbers, rank = self.factor.shape[1:]
        with torch.no_grad():
            self.mean.zero_()
            self.factor.copy_(torch.eye(numbers, rank) / (1 + torch.arange(numbers)[:, None]).sqrt())
            self.inverse.copy_(inverse(self.factor))


def inverse(factor: Tensor) -> Tensor:
    """The matrix from an image's frequencies, less its class's mean, to the posterior mean of its latent code."""
    inner = factor.transpose(1, 2) @ factor + _REST * torch.eye(factor.shape[2], device=factor.device)
    return torch.linalg.solve(inner, factor.transpose(1, 2))


class Levels(nn.Module):
    """The curve from what is drawn to how bright a pixel is (`levels.curve`)."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.bounds = nn.Parameter(torch.empty(count))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Before anything is known: as it is drawn."""
        with torch.no_grad():
            self.bounds.copy_(level_edges(len(self.bounds)))


@dataclass(frozen=True)
class MomentVAE:
    """Class Gaussians in the `frequencies` lowest of a square image, corrected by a convolutional decoder.

    With `levels`, what is drawn is taken for ranks, and a curve of so many levels gives pixels their brightness. With
    `wobble`, drawn pictures are turned, sheared, sized and shifted a little at random, for what noise has hidden of it,
    and with `bend` smoothly bent.
    """

    channels: int
    side: int
    classes: int
    frequencies: int = 100
    latent: int = 60
    width: int = 8
    levels: int = 0
    wobble: float = 0.0
    bend: float = 0.0

    @property
    def numbers(self) -> int:
        """How many frequencies an image has, over its channels."""
        return self.channels * self.frequencies

    @property
    def groups(self) -> int:
        """Classes, or one for all where there is no label."""
        return max(1, self.classes)

    @property
    def informative(self) -> int:
        """Of the numbers of a latent code, how many a network that retouches is told: all."""
        return self.latent

    @property
    def gain(self) -> float:
        """How much of what an untrained network would add is added."""
        return _GAIN

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """The prior and levels, which the server fills in once, and the decoder, which is trained."""
        decoder = ImageDecoder(self.channels, self.side, self.groups, self.latent, self.width)
        curve = {"levels": Levels(self.levels)} if self.levels else {}
        return {"prior": Prior(self.groups, self.numbers, self.latent), **curve, "decoder": decoder}

    @property
    def generative(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self.parts)

    @cached_property
    def objectives(self) -> Mapping[str, Objective]:
        """Squared error of the image that is made from an image's own latent code."""
        return {"error": Objective(noise=(1,), bound=_USUAL_LOSS * self.channels * self.side**2)}

    def features(self, images: Tensor) -> Tensor:
        """The frequencies of images, the higher ones raised to about the size of the lower [..., numbers]."""
        return spectrum(images, self.frequencies) * self.scale(images.device)

    def scale(self, device: torch.device | None = None) -> Tensor:
        """By how much `features` raises each frequency: in pictures they fall about so."""
        each = 1 + frequencies(self.side, self.frequencies, device)
        return (each / each[min(4, len(each) - 1)]).repeat(self.channels)

    def latents(self, prior: Params, images: Tensor, label: Tensor) -> Tensor:
        """The posterior mean of each image's latent code under its class's Gaussian, [rows, latent]."""
        apart = spectrum(images, self.frequencies) - label @ prior["mean"]
        return torch.einsum("rc,cln,rn->rl", label, prior["inverse"], apart)

    def drawn(self, params: Mapping[str, Params], latent: Tensor, label: Tensor) -> Tensor:
        """The pictures of the Gaussians alone; not cut to [0, 1]."""
        prior = params["prior"]
        numbers = label @ prior["mean"] + torch.einsum("rc,cnl,rl->rn", label, prior["factor"], latent)
        image = picture(numbers, self.channels, self.side)
        return brightness(image, params["levels"]["bounds"]) if self.levels else image

    def decode(self, params: Mapping[str, Params], latent: Tensor, label: Tensor) -> Tensor:
        """The images [rows, channels, side, side] that latent codes stand for; not cut to [0, 1]."""
        prior = params["prior"]
        numbers = label @ prior["mean"] + torch.einsum("rc,cnl,rl->rn", label, prior["factor"], latent)
        correction: Tensor = call(self.parts["decoder"], params["decoder"], latent, label)
        drawn = picture(numbers, self.channels, self.side) + _GAIN * correction
        return brightness(drawn, params["levels"]["bounds"]) if self.levels else drawn

    def _label(self, classes: Tensor) -> Tensor:
        return one_hot(classes.clamp(0, self.groups - 1), self.groups)

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """Half the squared error, summed over pixels."""
        x, label = batch["x"], self._label(batch["y"])
        decoded = self.decode(params, self.latents(params["prior"], x, label), label)
        return weighted_mean(0.5 * (decoded - x).square().flatten(1).sum(-1), batch["weight"])

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Images in [0, 1] for the labels, [count, channels, side, side]."""
        generator = rng.at("sample").torch_generator()
        latent = torch.randn(len(labels), self.latent, generator=generator)
        label = self._label(labels)
        pieces = zip(latent.split(2000), label.split(2000), strict=True)
        images = (self.decode(params, z, c).clamp(0, 1) for z, c in pieces)
        return torch.cat([wobbled(each, self.wobble, generator, self.bend) for each in images])


def wobbled(images: Tensor, strength: float, generator: torch.Generator, bend: float = 0.0) -> Tensor:
    """The images [rows, channels, side, side], each under a small random affine map; at 1 by about 7 degrees.

    With `bend` every pixel is moved as well, each image's by smooth random waves (Simard et al. 2003); at 1 by
    about one of 28 pixels. With neither the images are left as they are.
    """
    if not strength and not bend:
        return images
    turn, shear, size, down, across = strength * _WOBBLE * torch.randn(5, len(images), generator=generator)
    rows = [
        torch.stack([(1 + size) * turn.cos(), shear - turn.sin(), across], 1),
        torch.stack([turn.sin(), (1 + size) * turn.cos(), down], 1),
    ]
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    if bend:
        grid = grid + bend * _bent(len(images), images.shape[-1], generator)
    return F.grid_sample(images, grid, align_corners=False).clamp(0, 1)


def _bent(rows: int, side: int, generator: torch.Generator) -> Tensor:
    """How far each pixel is moved across and down, [rows, side, side, 2]: waves that are lower the finer they are."""
    size = 1 / frequencies(side, _BENDS)[_STRAIGHT:]
    waves = cosine_basis(side, _BENDS)[:, _STRAIGHT:] * (_BEND * side * size / size.norm())
    moved = torch.randn(rows, 2, waves.shape[1], generator=generator) @ waves.T
    return moved.unflatten(-1, (side, side)).permute(0, 2, 3, 1)
