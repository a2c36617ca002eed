"""Photographs as a light or dark pattern on a colored ground: what the pictures of a class have in common then.

A house number is as often dark on light as light on dark, so the mean picture of a digit is gray and says nothing. Told
as a pattern of unit contrast that is lighter than what is around it, with its contrast, its ground's color and whether
it was lighter apart, most of what a class looks like lies in the mean of few numbers, which little noise hides. Each of
these follows from a picture alone, so asking for them costs what asking for pixels does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedsynth.models.model import Params
from fedsynth.models.spectrum import cosine_basis, frequencies, picture, spectrum

_SMOOTH = 10  # lowest frequencies: light and shade, which hide a pattern
_USUAL_SKEWNESS, _USUAL_INSIDE = 0.45, 0.15  # about their standard deviations over photographs
_HIGH, _WIDE = 0.3, 0.12  # of the window in the middle, in sides
_LEAST_CONTRAST, _USUAL_CONTRAST = 0.01, 0.1
_STRONGEST = math.log(3.5)  # contrast that is drawn, over the usual one
_LAST, _FALL = 20, 2.0  # frequencies that finer ones are told by, and the power of their fall
_LOOSE = 0.4  # share of the spread that is drawn
_NUDGES, _SHIFT, _SIZE = 4, 1.0, 0.1  # ways to move a pattern, by pixels and by shares of its size
_GAIN = 0.01  # of a generator that retouches
_GRAY = 0.45  # the ground of a usual photograph
_PATTERN_WEIGHT, _CONTRAST_WEIGHT, _COLOR_WEIGHT = 0.45, 0.3, 4.0  # that make a usual record about 1 long
_OPPONENTS = {1: [[1.0]], 3: [[1 / 3, 1 / 3, 1 / 3], [0.5, -0.5, 0.0], [0.25, 0.25, -0.5]]}


def polarity(light: Tensor) -> Tensor:
    """1 where the thing in a picture [..., side, side] is lighter than what is around it, -1 where it is darker.

    A thing is taken for the smaller part of a picture (pixels are skewed to its side) and for what is in the middle.
    """
    side = light.shape[-1]
    basis = cosine_basis(side, _SMOOTH, light.device)
    flat = light.flatten(-2)
    detail = flat - (flat @ basis) @ basis.T
    skewness = detail.pow(3).mean(-1) / detail.square().mean(-1).clamp(min=1e-8).pow(1.5)
    inside = (detail @ _window(side, light.device)) / detail.norm(dim=-1).clamp(min=1e-4)
    return torch.where(skewness / _USUAL_SKEWNESS + inside / _USUAL_INSIDE < 0, -1.0, 1.0)


@lru_cache(maxsize=16)
def _window(side: int, device: torch.device | None = None) -> Tensor:
    """A soft upright window in the middle, of mean 0 and length 1, [side * side]."""
    place = (torch.arange(side) + 0.5) / side - 0.5
    window = torch.exp(-((place[:, None] / _HIGH).square() + (place / _WIDE).square()) / 2)
    window = window - window.mean()
    return (window / window.norm()).flatten().to(device)


@lru_cache(maxsize=16)
def _opponents(channels: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """From channels to light and differences of color, and back."""
    there = torch.tensor(_OPPONENTS[channels])
    return there.T.to(device), torch.linalg.inv(there).T.to(device)


class Ground(nn.Module):
    """The mean numbers of each class, how far pictures of all classes spread about them, and how grainy they are."""

    def __init__(self, classes: int, numbers: int, finer: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.empty(classes, numbers))
        self.spread = nn.Parameter(torch.empty(numbers))
        self.grain = nn.Parameter(torch.empty(finer))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Before anything is known: no pattern in particular."""
        with torch.no_grad():
            self.mean.zero_()
            self.spread.fill_(0.1)
            self.grain.zero_()


@dataclass(frozen=True)
class PatternStart:
    """Class means of patterns in the `frequencies` lowest of a square image, and one spread of each number.

    A picture's numbers are the frequencies of its pattern but the lowest, the logarithm of its contrast, and the color
    of its ground. Things vary by where and how large they are more than by independent numbers, which make noise of
    them: patterns are drawn a little moved and sized, and with less than the spread that was asked for. Finer
    frequencies are drawn at random, falling on from the last (`grain`): who learns from pictures that have none takes
    the grain of real ones for something. A drawn pattern has the contrast that was drawn for it.
    """

    channels: int
    side: int
    classes: int
    frequencies: int = 100
    gain: ClassVar[float] = _GAIN  # next to nothing: photographs have no black to hide it
    levels: ClassVar[int] = 0  # what is drawn is as bright as its ground and contrast say

    @property
    def numbers(self) -> int:
        """How many numbers a picture has."""
        return self.frequencies + self.channels

    @property
    def groups(self) -> int:
        """Classes, or one for all where there is no label."""
        return max(1, self.classes)

    @property
    def latent(self) -> int:
        """Random numbers of a drawn picture: its own, for its polarity and for how it is moved, and for its grain."""
        return self.informative + self.finer

    @property
    def informative(self) -> int:
        """Random numbers that say anything of a picture: all but those of its grain."""
        return self.numbers + 1 + _NUDGES

    @property
    def finer(self) -> int:
        """Frequencies that are not asked for."""
        return self.side**2 - self.frequencies

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """The prior, which the server fills in once."""
        return {"prior": Ground(self.groups, self.numbers, self.finer)}

    def scale(self, device: torch.device | None = None) -> Tensor:
        """The factors that bring all numbers to about the same size, [numbers]."""
        each = 1 + frequencies(self.side, self.frequencies, device)
        pattern = _PATTERN_WEIGHT / self.side * each[1:] / each[min(4, len(each) - 1)]
        ground = [_CONTRAST_WEIGHT, 1.0, *[_COLOR_WEIGHT] * (self.channels - 1)]
        return torch.cat([pattern, torch.tensor(ground, device=device)])

    def features(self, images: Tensor) -> Tensor:
        """The numbers of images [..., channels, side, side], raised by `scale`, [..., numbers]."""
        light = images.mean(-3)
        contrast = _deviation(light.flatten(-2))
        pattern = spectrum(light.unsqueeze(-3), self.frequencies)[..., 1:]
        pattern = pattern * (polarity(light) / contrast)[..., None]
        ground = (images.mean((-1, -2)) - _GRAY) @ _opponents(self.channels, images.device)[0]
        numbers = torch.cat([pattern, (contrast / _USUAL_CONTRAST).log()[..., None], ground], -1)
        return numbers * self.scale(images.device)

    def grain(self, spread: Tensor) -> Tensor:
        """How strong finer frequencies are [finer], given those that were asked for: they fall on from the last."""
        waves = frequencies(self.side, self.side**2, spread.device)
        last = slice(max(1, self.frequencies - _LAST), self.frequencies)
        pattern = torch.cat([spread.new_zeros(1), spread[: self.frequencies - 1]])
        level = (pattern[last] * waves[last] ** _FALL).mean()
        return level / waves[self.frequencies :] ** _FALL

    def drawn(self, params: Mapping[str, Params], latent: Tensor, label: Tensor) -> Tensor:
        """The pictures [rows, channels, side, side] that latent numbers stand for; not cut to [0, 1]."""
        prior, pattern = params["prior"], self.frequencies - 1
        own, lighter, nudge, fine = latent.split([self.numbers, 1, _NUDGES, self.finer], dim=1)
        usual, apart = label @ prior["mean"], own * prior["spread"]
        flat = torch.zeros_like(lighter)
        shape = moved(picture(torch.cat([flat, usual[:, :pattern]], 1), 1, self.side), nudge)
        rest = torch.cat([flat, apart[:, :pattern], fine * prior["grain"]], 1)
        shape = shape + _LOOSE * picture(rest, 1, self.side)
        strength, ground = (usual + apart)[:, pattern:].split([1, self.channels], dim=1)
        contrast = _USUAL_CONTRAST * strength.clamp(max=_STRONGEST).exp()
        contrast = torch.where(lighter < 0, -contrast, contrast) / _deviation(shape.flatten(1))[:, None]
        color = ground @ _opponents(self.channels, latent.device)[1] + _GRAY
        return color[:, :, None, None] + contrast[:, :, None, None] * shape


def _deviation(pixels: Tensor) -> Tensor:
    """The standard deviation of a picture's pixels [..., pixels], never quite 0."""
    return pixels.std(-1).clamp(min=_LEAST_CONTRAST)


def moved(images: Tensor, nudge: Tensor) -> Tensor:
    """Images [rows, 1, side, side], a little across, down, wider and taller by `nudge` [rows, 4], to first order."""
    place = _places(images.shape[-1], images.device)
    across, down = _slope(images), _slope(images.mT).mT
    ways = torch.cat([across, down, across * place, down * place[:, None]], 1)  # [rows, 4, side, side]
    far = torch.cat([_SHIFT * nudge[:, :2], _SIZE * nudge[:, 2:]], 1)
    return images + (far[:, :, None, None] * ways).sum(1, keepdim=True)


def _slope(images: Tensor) -> Tensor:
    """How fast pixels change across."""
    wide = torch.cat([images[..., :1], images, images[..., -1:]], -1)
    return (wide[..., 2:] - wide[..., :-2]) / 2


@lru_cache(maxsize=16)
def _places(side: int, device: torch.device | None = None) -> Tensor:
    """Where pixels lie, from the middle."""
    return torch.arange(side, dtype=torch.float32, device=device) - (side - 1) / 2
