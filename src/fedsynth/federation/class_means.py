"""The mean of each class and one spread for all from one noisy answer: few numbers, for where covariances drown.

A covariance has the square of as many numbers as a mean, and each costs the same noise. Where units are too few for
that, the variance of each number over all classes is asked for instead, and nothing of how two go together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.federation.moments import Features, indicator, shrunk_means

_COUNT = 0.3  # share of a contribution that counts; the rest locates
_LEAST_SHARE = 2e-3  # a class is taken to be no rarer
_LEAST_VARIANCE = 1e-5


@dataclass(frozen=True)
class ClassMeans:
    """A class's share and mean, and the standard deviation of each number about them."""

    shares: Tensor  # [classes]
    mean: Tensor  # [classes, numbers]
    spread: Tensor  # [numbers]


@dataclass(frozen=True)
class _Means:
    """The question to a unit: the number of its features and classes gives the length of an answer."""

    features: Features
    numbers: int
    classes: int

    @property
    def width(self) -> int:
        """How many numbers an answer has."""
        return self.classes * (1 + self.numbers) + self.numbers


@dataclass(frozen=True)
class RecordMeans(_Means):
    """For each record: its class, its features and their squares, in a vector near 1 long.

    A record with larger features is scaled down with its own count, which leaves means weighted means.
    """

    def __call__(self, data: Padded) -> Tensor:
        """[records, width], of data with one row a unit."""
        return _contributions(self.features(data.x), data, self.classes)[:, 0]


@dataclass(frozen=True)
class ClientMeans(_Means):
    """For each client: the mean of what its records say, as a vector of length 1, so that all weigh the same."""

    def __call__(self, data: Padded) -> Tensor:
        """[clients, width]."""
        whole = _contributions(self.features(data.x), data, self.classes).sum(1)
        return whole / whole.norm(dim=1, keepdim=True).clamp(min=1e-12)


def _contributions(x: Tensor, data: Padded, classes: int) -> Tensor:
    """The contribution of each row, [units, rows, width]; zero for rows that are not there."""
    own = indicator(data.y, data.mask, classes)
    each = torch.cat([torch.full_like(x[..., :1], _COUNT), x], -1)
    squares = x.square() * data.mask[..., None]
    return torch.cat([(own[..., None] * each[..., None, :]).flatten(-2), squares], -1)


def class_counts(statistic: RecordMeans | ClientMeans, answer: Tensor, noise: float) -> tuple[Tensor, float]:
    """How much of the units' weight each class has [classes], and the standard deviation of that."""
    return _by_class(statistic, answer)[:, 0] / _COUNT, noise / _COUNT


def class_means(statistic: RecordMeans | ClientMeans, answer: Tensor, noise: float) -> ClassMeans:
    """Read each class's means out of a noisy sum, where `noise` is the standard deviation of each of its numbers."""
    by_class, squares = _by_class(statistic, answer), answer.double()[-statistic.numbers :]
    least = max(1e-9, noise * math.sqrt(statistic.classes))  # what the noise alone makes of nobody
    units = by_class[:, 0].sum().clamp(min=least) / _COUNT
    level = noise / units
    shares = (by_class[:, 0] / units / _COUNT).clamp(min=_LEAST_SHARE)
    least_share = level / _COUNT  # a rarer class cannot be told from noise, which must not be blown up
    mean = by_class[:, 1:] / units / shares.clamp(min=least_share)[:, None]
    mean = shrunk_means(mean, shares, (level / shares.mean()) ** 2)
    shares = shares / shares.sum()
    variance = (squares / units - shares @ mean.square()).clamp(min=_LEAST_VARIANCE)
    return ClassMeans(shares.float(), mean.float(), variance.sqrt().float())


def _by_class(statistic: RecordMeans | ClientMeans, answer: Tensor) -> Tensor:
    """Count and sum of each class, [classes, 1 + numbers]."""
    sums = answer.double()[: statistic.classes * (1 + statistic.numbers)]
    return sums.reshape(statistic.classes, -1)
