"""From noisy sums over records to the components of a mixture: counts, centers and spread, shrunk as noise demands."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsynth.models.covariance import shrunk_factors
from fedsynth.models.mixture import Components, MixtureForm
from fedsynth.models.spectrum import frequencies

_APART = 0.7  # how far the first centers lie from their class's mean, in its standard deviations
_SPLIT = 0.4  # and new ones from the center that they are split off
_BAND = 2.0  # half waves in a band of frequencies that are shrunk alike
_REACH, _LOW_REACH = 0.65, 0.8  # of the root mean square distance of records from the mean of their class
_LEAST_SIZE = 0.1  # of the public radius: spread may not be mistaken for none
_FEW = 3.0  # standard deviations of a count: fewer records cannot be told from none


@dataclass(frozen=True)
class MixtureAnswer:
    """A noisy sum as numbers of records and pictures."""

    counts: Tensor  # [groups, components]
    shift: Tensor  # [groups, components, numbers]: from the center to the mean of its records
    blur: Tensor  # [groups, components]: standard deviation of each number of the shift
    few: float  # records that cannot be told from none
    second: Tensor | None  # [groups, moments, moments]: mean products about centers
    second_blur: Tensor  # [groups]


def read_answer(
    form: MixtureForm,
    asked: Components,
    total: Tensor,
    noise: float,
    scale: tuple[float, float, float],
) -> MixtureAnswer:
    """Read a sum over all records, where `noise` is the standard deviation of each number of it."""
    count, place, product = scale
    each = total[: form.places].double().view(form.groups, form.components, 1 + form.numbers)
    counts = each[..., 0] / count
    few = max(1.0, _FEW * noise / count)
    divisor = counts.clamp(min=few)
    shift = each[..., 1:] * (asked.reach / place) / divisor[..., None]
    group_counts = counts.sum(1).clamp(min=few)
    second = None
    if asked.spread:
        sums = total[form.places :].double().view(form.groups, form.products)
        second = _symmetric(sums, form.moments) * (asked.low_reach**2 / product / group_counts[:, None, None])
    second_blur = noise * asked.low_reach**2 / max(product, 1e-9) / group_counts
    return MixtureAnswer(counts, shift, noise * asked.reach / place / divisor, few, second, second_blur)


def _symmetric(products: Tensor, size: int) -> Tensor:
    """The matrices [groups, size, size] of products in the order of their upper triangle."""
    row, column = torch.triu_indices(size, size)
    scaled = products / torch.where(row == column, 1.0, math.sqrt(2.0)).to(products)
    full = products.new_zeros(len(products), size, size)
    full[:, row, column] = scaled
    full[:, column, row] = scaled
    return full


def shrunk_shift(form: MixtureForm, answer: MixtureAnswer) -> Tensor:
    """The shifts of centers, each band of frequencies drawn to none as far as noise explains it."""
    band = (frequencies(form.side, form.frequencies) / _BAND).long().repeat_interleave(form.channels)
    variance = answer.blur.square()
    shift = answer.shift.clone()
    for one in band.unique().tolist():
        inside = answer.shift[..., band == one]
        signal = (inside.square().mean(-1) - variance).mean().clamp(min=0)
        shift[..., band == one] = inside * (signal / (signal + variance).clamp(min=1e-30))[..., None]
    return shift


def spread_factor(form: MixtureForm, answer: MixtureAnswer, shift: Tensor) -> Tensor:
    """The factor of each group's covariance about its moved centers, without what noise explains."""
    assert answer.second is not None
    counts = answer.counts.clamp(min=0)
    shares = counts / counts.sum(1, keepdim=True).clamp(min=answer.few)
    low = shift[..., : form.moments]
    covariance = answer.second - torch.einsum("gk,gki,gkj->gij", shares, low, low)
    groups = counts.sum(1).clamp(min=answer.few)
    return shrunk_factors(covariance, groups / groups.sum(), answer.second_blur.square() / 2, form.moments)


def reaches(form: MixtureForm, factor: Tensor) -> tuple[float, float]:
    """How far records may lie from centers, and their lowest numbers, given how they spread about their class's mean.

    Components lie nearer to their records than classes do, and the noise of an answer is as large as its reach.
    """
    size = float(factor.square().sum((1, 2)).mean().sqrt())
    size = min(max(size, _LEAST_SIZE * form.radius), form.radius)
    return _REACH * size, _LOW_REACH * size


def first_centers(center: Tensor, factor: Tensor, components: int, draw: torch.Generator) -> Tensor:
    """Centers [groups, components, numbers] drawn about each group's mean [groups, numbers] by its spread."""
    return center[:, None] + _about(factor, components, center.shape[1], _APART, draw)


def _about(factor: Tensor, count: int, numbers: int, apart: float, draw: torch.Generator) -> Tensor:
    """Ways [groups, count, numbers] of a covariance's size."""
    groups, moments, _ = factor.shape
    normal = torch.randn(groups, count, moments, generator=draw, dtype=torch.float64)
    ways = torch.zeros(groups, count, numbers, dtype=torch.float64)
    ways[..., :moments] = apart * torch.einsum("gij,gkj->gki", factor, normal)
    return ways


def split_large(centers: Tensor, counts: Tensor, few: float, factor: Tensor, draw: torch.Generator) -> Tensor:
    """The centers, those with too few records moved next to those of their group that have most."""
    ways = _about(factor, centers.shape[1], centers.shape[2], _SPLIT, draw)
    moved = centers.clone()
    for group, own in enumerate(counts):
        small = (own < few).nonzero()[:, 0]
        largest = own.argsort(descending=True)[: max(1, len(own) - len(small))]
        for place, component in enumerate(small.tolist()):
            from_center = centers[group, largest[place % len(largest)]]
            moved[group, component] = from_center + ways[group, component]
    return moved
