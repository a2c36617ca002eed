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

import torch
from torch import Tensor, nn

from fedsynth.models.model import Params
from fedsynth.models.spectrum import cosine_basis, frequencies, picture, spectrum

_SMOOTH = 10  # lowest frequencies: light and shade, which hide a pattern
_USUAL_SKEWNESS, _USUAL_INSIDE = 0.45, 0.15  # about their standard deviations over photographs
_HIGH, _WIDE = 0.3, 0.12  # of the window in the middle, in sides
_LEAST_CONTRAST, _USUAL_CONTRAST, _LARGEST_CONTRAST = 0.01, 0.1, 0.35
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
    """The mean numbers of each class, and how far pictures of all classes spread about them."""

    def __init__(self, classes: int, numbers: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.empty(classes, numbers))
        self.spread = nn.Parameter(torch.empty(numbers))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Before anything is known: no pattern in particular."""
        with torch.no_grad():
            self.mean.zero_()
            self.spread.fill_(0.1)


@dataclass(frozen=True)
class PatternStart:
    """Class means of patterns in the `frequencies` lowest of a square image, and one spread of each number.

    A picture's numbers are the frequencies of its pattern but the lowest, the logarithm of its contrast, and the color
    of its ground.
    """

    channels: int
    side: int
    classes: int
    frequencies: int = 100

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
        """Random numbers of a drawn picture: one for each of its numbers, and one for its polarity."""
        return self.numbers + 1

    @property
    def levels(self) -> int:
        """None: what is drawn is as bright as its ground and contrast say."""
        return 0

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """What the server fills in once."""
        return {"prior": Ground(self.groups, self.numbers)}

    def scale(self, device: torch.device | None = None) -> Tensor:
        """What raises each number to about the size of the others, [numbers]."""
        each = 1 + frequencies(self.side, self.frequencies, device)
        pattern = _PATTERN_WEIGHT / self.side * each[1:] / each[min(4, len(each) - 1)]
        ground = [_CONTRAST_WEIGHT, 1.0, *[_COLOR_WEIGHT] * (self.channels - 1)]
        return torch.cat([pattern, torch.tensor(ground, device=device)])

    def features(self, images: Tensor) -> Tensor:
        """The numbers of images [..., channels, side, side], raised by `scale`, [..., numbers]."""
        light = images.mean(-3)
        contrast = light.flatten(-2).std(-1).clamp(min=_LEAST_CONTRAST)
        pattern = spectrum(light.unsqueeze(-3), self.frequencies)[..., 1:]
        pattern = pattern * (polarity(light) / contrast)[..., None]
        ground = (images.mean((-1, -2)) - _GRAY) @ _opponents(self.channels, images.device)[0]
        told = torch.cat([pattern, (contrast / _USUAL_CONTRAST).log()[..., None], ground], -1)
        return told * self.scale(images.device)

    def drawn(self, params: Mapping[str, Params], latent: Tensor, label: Tensor) -> Tensor:
        """The pictures [rows, channels, side, side] that latent numbers stand for; not cut to [0, 1]."""
        prior = params["prior"]
        numbers = label @ prior["mean"] + latent[:, :-1] * prior["spread"]
        pattern, strength, ground = numbers.split([self.frequencies - 1, 1, self.channels], dim=1)
        contrast = _USUAL_CONTRAST * strength.clamp(max=math.log(_LARGEST_CONTRAST / _USUAL_CONTRAST)).exp()
        lighter = torch.where(latent[:, -1:] < 0, -1.0, 1.0)
        shape = torch.cat([torch.zeros_like(strength), pattern * (lighter * contrast)], dim=1)
        color = ground @ _opponents(self.channels, numbers.device)[1] + _GRAY
        return color[:, :, None, None] + picture(shape, 1, self.side)
