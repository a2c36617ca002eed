"""MNIST by writer with a bug of our own making: pixels inverted at some clients, and a primary model that suffers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from fedsynth.data.clients import RawClients, image_clients_from
from fedsynth.research.datasets import mnist, mnist_writers
from fedsynth.rng import Rng

STEPS = 60  # of the primary model's training: few, so that writers differ in accuracy


def primary_network(steps: int = STEPS) -> nn.Module:
    """A CNN trained weakly on the digits of the 297 test writers; it sees no client."""
    images, labels, _ = mnist("test")
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)
    )
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    x = torch.from_numpy(images)[:, None].float() / 255
    y = torch.from_numpy(labels.astype(int))
    draw = torch.Generator().manual_seed(0)
    for _ in range(steps):
        chosen = torch.randint(len(x), (64,), generator=draw)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[chosen]), y[chosen]).backward()
        optimizer.step()
    return network.eval()


def scores_of(network: nn.Module) -> Callable[[np.ndarray], np.ndarray]:
    """The network as a function of images, as a site would have it installed."""

    def scores(images: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return network(torch.from_numpy(images)[:, None].float() / 255).numpy()

    return scores


def writers(split: str = "train") -> RawClients:
    """The writers as clients."""
    images, labels, _ = mnist(split)
    return image_clients_from(images, labels, owners=mnist_writers(split))


def inverted(raw: RawClients, share: float, seed: int) -> RawClients:
    """The same clients, a share of whom, drawn by chance, holds negatives of their images."""
    assert raw.data[0] is not None
    affected = Rng(seed).at("affected").numpy().permutation(raw.count)[: round(share * raw.count)]
    at = np.isin(raw.owner, affected)
    images = raw.data[0].copy()
    images[at] = 255 - images[at]
    return RawClients(raw.owner, raw.count, raw.names, data=(images, raw.data[1]))
