"""Do images look alike: distances in the features of a network, and how near synthetic images come to real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsynth.errors import BadInput
from fedsynth.rng import Rng

_NEIGHBORS = 3  # that span the manifold around an image
_KERNEL_SETS, _KERNEL_ROWS = 50, 1000
_SPLITS = 10  # of the images, for the spread of the Inception Score


def frechet_distance(real: np.ndarray, synthetic: np.ndarray) -> float:
    """Distance of two Gaussians fitted to features [rows, width]: FID if the network is Inception (Heusel 2017).

    >>> points = np.array([[0.0], [2.0]])
    >>> round(frechet_distance(points, points + 3), 6)
    9.0
    """
    _require(real, synthetic, 2)
    means, covariances = zip(
        *((x.mean(axis=0), np.atleast_2d(np.cov(x.T))) for x in (real, synthetic)), strict=True
    )
    root = _square_root(covariances[0])
    # tr((A B)^(1/2)) is that of A^(1/2) B A^(1/2), which is symmetric: stable where features are dependent
    shared = np.sqrt(np.clip(np.linalg.eigvalsh(root @ covariances[1] @ root), 0, None)).sum()
    difference = means[0] - means[1]
    traces = np.trace(covariances[0] + covariances[1]) - 2 * shared
    return max(0.0, float(difference @ difference + traces))


def _square_root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T


def kernel_distance(real: np.ndarray, synthetic: np.ndarray, seed: int = 0) -> tuple[float, float | None]:
    """Mean and spread over subsets of the unbiased squared MMD with the kernel (x·y / width + 1)^3: KID.

    Binkowski et al. 2018. It can be a little below 0.
    """
    size = min(len(real), len(synthetic), _KERNEL_ROWS)
    _require(real, synthetic, 2)
    sets = 1 if size == len(real) == len(synthetic) else _KERNEL_SETS
    random = Rng(seed).at("kernel").numpy()
    values = [
        _squared_discrepancy(*(x[random.choice(len(x), size, replace=False)] for x in (real, synthetic)))
        for _ in range(sets)
    ]
    return float(np.mean(values)), float(np.std(values, ddof=1)) if sets > 1 else None


def _squared_discrepancy(one: np.ndarray, other: np.ndarray) -> float:
    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a @ b.T / a.shape[1] + 1) ** 3

    size = len(one)
    within = sum(
        (k.sum() - np.trace(k)) / (size * (size - 1)) for k in (kernel(one, one), kernel(other, other))
    )
    return float(within - 2 * kernel(one, other).mean())


def inception_score(chances: np.ndarray) -> tuple[float, float | None]:
    """Exponential of the mean divergence of an image's class from the mean class (Salimans et al. 2016).

    >>> inception_score(np.eye(2).repeat(10, axis=0)[np.argsort(np.arange(20) % 10, kind="stable")])
    (2.0, 0.0)
    """
    splits = _SPLITS if len(chances) >= _SPLITS * 2 else 1
    values = []
    for part in np.array_split(chances, splits):
        ratio = np.log(np.clip(part, 1e-12, None)) - np.log(np.clip(part.mean(axis=0), 1e-12, None))
        values.append(float(np.exp((part * ratio).sum(axis=1).mean())))
    return round(float(np.mean(values)), 9), round(float(np.std(values, ddof=1)), 9) if splits > 1 else None


def precision_and_recall(
    real: np.ndarray, synthetic: np.ndarray, neighbors: int = _NEIGHBORS
) -> tuple[float, float]:
    """Share of synthetic images within the manifold of the real ones, and the other way round.

    The manifold is the union of balls that reach to each image's third nearest (Kynkaanniemi et al. 2019).
    """
    _require(real, synthetic, neighbors + 1)
    one, other = (torch.from_numpy(np.ascontiguousarray(x)).float() for x in (real, synthetic))
    return _within(other, one, neighbors), _within(one, other, neighbors)


def _within(points: Tensor, manifold: Tensor, neighbors: int) -> float:
    """The share of points that lie in a ball around some point of the manifold."""
    reach = torch.cat(
        [torch.cdist(part, manifold).kthvalue(neighbors + 1, dim=1).values for part in manifold.split(1000)]
    )
    inside = [(torch.cdist(part, manifold) <= reach).any(dim=1) for part in points.split(1000)]
    return float(torch.cat(inside).float().mean())


def nearest_images(images: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Which known image is nearest to each, and its distance: root mean square over pixels, 0 to 1."""
    rows, distances = [], []
    flat = known.flatten(1).float() / 255
    for part in images.split(500):
        apart = torch.cdist(part.flatten(1).float() / 255, flat, compute_mode="donot_use_mm_for_euclid_dist")
        distance, row = apart.min(dim=1)
        rows.append(row)
        distances.append(distance / flat.shape[1] ** 0.5)
    return torch.cat(rows), torch.cat(distances)


def shown_neighbors(rows: Tensor, distances: Tensor, count: int) -> list[dict[str, Any]]:
    """The synthetic images that come nearest to a real one, nearest first."""
    order = distances.argsort()[:count].tolist()
    return [{"synthetic": i, "real": int(rows[i]), "distance": float(distances[i])} for i in order]


def _require(real: np.ndarray, synthetic: np.ndarray, rows: int) -> None:
    if min(len(real), len(synthetic)) < rows:
        counts = f"{len(real)} real and {len(synthetic)} synthetic images"
        raise BadInput(f"{counts}; expected at least {rows} of each")
