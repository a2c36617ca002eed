"""A population whose truth is known: rows of yes-or-no columns from a mixture, as many as one likes.

Where a public data set runs out (DP-Fed-WAE, Figures 9 and 13, go to 10^6 records of Adult, which has 32,561), a
mixture of independent columns is fitted to it and rows are drawn from that. Nothing is repeated, however many there
are.
"""

from __future__ import annotations

import numpy as np
import torch

from fedsynth.models.latent_classes import LatentClasses
from fedsynth.rng import Rng

_PRIOR = 0.5  # rows of each value that every class is taken to have seen, so that no chance is 0 or 1


def fit_mixture(bits: np.ndarray, classes: int, steps: int, rng: Rng) -> LatentClasses:
    """Expectation-maximization for rows of zeros and ones [rows, columns]; for public rows only."""
    rows, columns = bits.shape
    known = bits.astype(np.float64)
    shares = np.full(classes, 1 / classes)
    chances = 0.25 + 0.5 * rng.at("start").uniforms(classes * columns).reshape(classes, columns)
    for _ in range(steps):
        member = np.exp(_log_joint(known, shares, chances))
        member /= member.sum(1, keepdims=True)
        weight = member.sum(0)
        shares = weight / rows
        chances = (member.T @ known + _PRIOR) / (weight[:, None] + 2 * _PRIOR)
    each = [torch.from_numpy(np.stack([1 - one, one], 1)).float() for one in chances.T]
    return LatentClasses(torch.from_numpy(shares).float(), tuple(each))


def _log_joint(rows: np.ndarray, shares: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Log-likelihood of each row in each class [rows, classes], up to a constant of the row."""
    logs = rows @ np.log(chances).T + (1 - rows) @ np.log1p(-chances).T + np.log(np.maximum(shares, 1e-300))
    return np.asarray(logs - logs.max(1, keepdims=True))
