"""Mean and covariance of each class from one noisy answer: what to ask, and what to believe of what comes back.

The answer's noise is known, so each number is drawn towards what it has in common with the others by as much as the
noise explains (empirical Bayes): class means towards the overall mean, correlations towards zero, the covariance of a
class towards that of all classes. Many weak numbers then do no harm, and nothing has to be tuned to the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.models.covariance import shrunk_factors

_LEAST_SHARE = 2e-3  # a class is taken to be no rarer
Features = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Gaussians:
    """A class's share, mean and a factor whose square is its covariance."""

    shares: Tensor  # [classes]
    mean: Tensor  # [classes, numbers]
    factor: Tensor  # [classes, numbers, rank]


@dataclass(frozen=True)
class Weights:
    """How much a contribution says of some of its parts, where its pictures and their products count as 1."""

    count: float = 0.3
    level: float = 0.3  # of brightness, where levels are asked for


@dataclass(frozen=True)
class _Moments:
    """The question to a unit: class, features and their products about a public reference."""

    features: Features
    numbers: int
    classes: int
    reference: Tensor
    radius: float
    about_mean: bool = False
    levels: Features | None = None
    weights: Weights = Weights()

    @property
    def width(self) -> int:
        """How many numbers describe a class."""
        return 2 + self.numbers + self.numbers * (self.numbers + 1) // 2


@dataclass(frozen=True)
class RecordMoments(_Moments):
    """For each record: its class, its features and their products, about a public reference, in a vector near 1 long.

    `radius` is how far records usually lie from the reference. A record that lies farther is scaled down with its own
    count, which makes the moments weighted ones and leaves them means. With `levels`, the shares that these give an
    image stand behind the moments of all classes.
    """

    def __call__(self, data: Padded) -> Tensor:
        """[records, classes * width], of data with one row a unit."""
        x = (self.features(data.x[:, 0]) - self.reference.to(data.x.device)) / self.radius
        one = torch.full_like(x[:, :1], self.weights.count)
        each = torch.cat([one, one, x, products(x[:, :, None] * x[:, None, :])], dim=1)
        own = indicator(data.y, data.mask, self.classes)[:, 0]
        moments = (own[:, :, None] * each[:, None, :]).flatten(1)
        if self.levels is None:
            return moments
        return torch.cat([moments, self.weights.level * data.mask * self.levels(data.x[:, 0])], dim=1)


@dataclass(frozen=True)
class ClientMoments(_Moments):
    """For each client: its shares of the classes, and the mean and scatter of each, as a vector of length 1.

    The scatter is about the client's own means, which are private to it as everything else is. All clients weigh
    the same; only ratios are read from the sum, so the scale that is lost does not matter.
    """

    about_mean: bool = True

    def __call__(self, data: Padded) -> Tensor:
        """[clients, classes * width]."""
        x = (self.features(data.x) - self.reference.to(data.x.device)) / self.radius
        own = indicator(data.y, data.mask, self.classes)  # [clients, rows, classes]
        rows = own.sum(1).clamp(min=1e-9)
        total = own.sum((1, 2)).clamp(min=1)[:, None]
        sums = own.transpose(1, 2) @ x
        apart = x - (own[..., None] * (sums / rows[..., None])[:, None]).sum(2)
        scatter = torch.stack(
            [apart.mul(own[..., c : c + 1]).transpose(1, 2) @ apart for c in range(self.classes)], 1
        )
        counts = torch.stack([own.sum(1), (own.sum(1) - 1).clamp(min=0)], -1)
        each = torch.cat([self.weights.count * counts, sums, products(scatter)], -1)
        whole = (each / total[..., None]).flatten(1)
        if self.levels is not None:
            shares = (self.levels(data.x) * data.mask[..., None]).sum(1) / total
            whole = torch.cat([whole, self.weights.level * shares], dim=1)
        return whole / whole.norm(dim=1, keepdim=True).clamp(min=1e-12)


def indicator(y: Tensor, mask: Tensor, classes: int) -> Tensor:
    """Which class each row counts for, [..., classes]."""
    same = y.clamp(0, classes - 1)[..., None] == torch.arange(classes, device=y.device)
    return (same & mask[..., None]).to(torch.float32)


def products(matrix: Tensor) -> Tensor:
    """The upper triangle as a vector of the same length (L2) as the symmetric matrix, [..., n (n + 1) / 2]."""
    i, j = torch.triu_indices(matrix.shape[-1], matrix.shape[-1], device=matrix.device)
    return matrix[..., i, j] * torch.where(i == j, 1.0, math.sqrt(2.0))


def symmetric(products: Tensor, size: int) -> Tensor:
    """The symmetric matrix back from its upper triangle."""
    i, j = torch.triu_indices(size, size)
    values = products / torch.where(i == j, 1.0, math.sqrt(2.0))
    full = products.new_zeros(*products.shape[:-1], size, size)
    full[..., i, j] = values
    full[..., j, i] = values
    return full


def gaussians(statistic: RecordMoments | ClientMoments, answer: Tensor, noise: float, rank: int) -> Gaussians:
    """Read each class's Gaussian out of a noisy sum, where `noise` is the standard deviation of each of its numbers."""
    size = statistic.numbers
    per_class = answer.double()[: statistic.classes * statistic.width].reshape(statistic.classes, -1)
    least = max(1e-9, noise * math.sqrt(statistic.classes))  # what the noise alone makes of nobody
    units = per_class[:, 0].sum().clamp(min=least) / statistic.weights.count
    per_class, level = per_class / units, noise / units
    shares, loose = (per_class[:, :2] / statistic.weights.count).clamp(min=_LEAST_SHARE).unbind(1)
    # a rarer class cannot be told from noise, which must not be blown up
    least_share = level / statistic.weights.count
    mean = per_class[:, 2 : 2 + size] / shares.clamp(min=least_share)[:, None]
    mean = shrunk_means(mean, shares, (level / shares.mean()) ** 2)
    second = symmetric(per_class[:, 2 + size :] / loose[:, None], size)
    if not statistic.about_mean:
        second = second - mean[:, :, None] * mean[:, None, :]
    factor = shrunk_factors(second, shares, (level / loose) ** 2 / 2, min(rank, size))
    located = mean * statistic.radius + statistic.reference
    return Gaussians((shares / shares.sum()).float(), located.float(), (factor * statistic.radius).float())


def class_weights(
    statistic: RecordMoments | ClientMoments, answer: Tensor, noise: float
) -> tuple[Tensor, float]:
    """How much of the units' weight each class has [classes], and the standard deviation of that."""
    counted = answer.double()[: statistic.classes * statistic.width : statistic.width]
    return counted / statistic.weights.count, noise / statistic.weights.count


def levels_of(statistic: RecordMoments | ClientMoments, answer: Tensor) -> Tensor:
    """The noisy shares of the levels of brightness, up to a factor; negative ones are noise."""
    return answer.double()[statistic.classes * statistic.width :].clamp(min=0)


def shrunk_means(mean: Tensor, shares: Tensor, variance: Tensor) -> Tensor:
    """Class means drawn to the overall mean, number by number, as far as noise explains their differences."""
    overall = (mean * shares[:, None]).sum(0) / shares.sum()
    apart = mean - overall
    signal = (apart.square().mean(0) - variance).clamp(min=0)
    signal = F.avg_pool1d(signal[None], 9, 1, 4, count_include_pad=False)[0]  # neighbors are alike
    return overall + apart * signal / (signal + variance).clamp(min=1e-30)
