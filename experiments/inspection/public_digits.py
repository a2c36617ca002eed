"""A public set of digits that lacks one, and a model of how far an image lies from what the set has."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.research.datasets import mnist

MISSING = "7"


def public_digits() -> np.ndarray:
    """The images of the public set: the test writers' digits without the missing one."""
    images, labels, _ = mnist("test")
    return images[labels != MISSING]


def public_subspaces(size: int = 20) -> tuple[Tensor, Tensor]:
    """The mean [classes, pixels] and the main directions [classes, size, pixels] of each public class."""
    images, labels, schema = mnist("test")
    means, axes = [], []
    for digit in schema.classes:
        if digit != MISSING:
            flat = images[labels == digit].reshape(-1, 784) / 255
            means.append(flat.mean(0))
            axes.append(np.linalg.svd(flat - flat.mean(0), full_matrices=False)[2][:size])
    return torch.tensor(np.stack(means)).float(), torch.tensor(np.stack(axes)).float()


class Subspaces(nn.Module):
    """Minus the squared distance from the nearest class's subspace: one number an image, small for strange ones."""

    def __init__(self, means: Tensor, axes: Tensor) -> None:
        super().__init__()
        self.register_buffer("means", means)
        self.register_buffer("axes", axes)

    def forward(self, rows: Tensor) -> Tensor:
        """[rows]."""
        apart = rows.flatten(1)[:, None] - self.means
        along = torch.einsum("rcp,csp->rcs", apart, self.axes)
        return -(apart.square().sum(2) - along.square().sum(2)).min(1).values


def usual_score(model: nn.Module, share: float = 0.05) -> float:
    """The score that so large a share of the public digits does not reach."""
    with torch.no_grad():
        scores = model(torch.from_numpy(public_digits())[:, None].float() / 255)
    return float(scores.quantile(share))
