"""Covariances of classes from noisy second moments: what to believe of them, and factors to draw by."""

from __future__ import annotations

import torch
from torch import Tensor


def shrunk_factors(second: Tensor, shares: Tensor, variance: Tensor, rank: int) -> Tensor:
    """Factors [classes, numbers, rank] of noisy class covariances, within the main directions of all classes.

    `variance` [classes] is that of the noise of a number beside the diagonal. Correlations are drawn to zero, and the
    covariance of a class towards that of all classes, each by as much as noise explains it (empirical Bayes).
    """
    weights = (shares / shares.sum())[:, None, None]
    pooled = _shrunk_correlations((second * weights).sum(0), (variance * weights[:, 0, 0] ** 2).sum())
    values, vectors = torch.linalg.eigh(pooled)
    main, axes = values.flip(0)[:rank].clamp(min=1e-9), vectors.flip(1)[:, :rank]
    apart = axes.T @ (second - pooled) @ axes
    size = torch.outer(main, main)
    room = variance[:, None, None]
    signal = ((apart.square() - room).sum() / (size.sum() * len(apart))).clamp(min=1e-12)
    apart = apart * (signal * size / (signal * size + room))
    values, vectors = torch.linalg.eigh(torch.diag(main) + apart)
    return _signed(axes @ (vectors * values.clamp(min=0).sqrt()[:, None, :]))


def _signed(factor: Tensor) -> Tensor:
    """The same directions, each turned so that its largest number is positive: an eigenvector's sign is arbitrary."""
    largest = factor.abs().argmax(dim=1, keepdim=True)
    return factor * torch.where(factor.gather(1, largest) < 0, -1.0, 1.0)


def _shrunk_correlations(matrix: Tensor, variance: Tensor) -> Tensor:
    """A covariance whose off-diagonal numbers are drawn to zero as far as noise explains them."""
    diagonal = matrix.diagonal().clamp(min=1e-9)
    size = torch.outer(diagonal, diagonal)
    beside = matrix - torch.diag(matrix.diagonal())
    off = size.sum() - size.diagonal().sum()
    signal = ((beside.square().sum() - variance * beside.numel()) / off.clamp(min=1e-30)).clamp(min=1e-12)
    return torch.diag(diagonal) + beside * (signal * size / (signal * size + variance))
