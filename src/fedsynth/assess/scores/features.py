"""Networks that turn images into features, on which images are compared. A score always names its network.

Distances in the features of one network say nothing about those of another: scores can only be compared if network,
weights, reference set, numbers of images and resize are the same, which `compare` sees to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.assess.scores.score import Score
from fedsynth.errors import BadInput, Incompatible
from fedsynth.rng import Rng

INCEPTION_URL = (
    "https://nvlabs-fi-cdn.nvidia.com/stylegan2-ada-pytorch/pretrained/metrics/inception-2015-12-05.pt"
)
_BATCH = 128
_LENET_ROWS = 10_000  # training images
_LENET_PASSES = 4
_SIDE = 32  # that LeNet looks at, whatever the size of the images


@dataclass(frozen=True)
class FeatureNetwork:
    """A network by name; `weights` is the hash of its parameters, `resize` the side of the images it sees.

    `run` takes bytes [rows, channels, height, width] and gives features [rows, width] and logits of classes.
    """

    name: str
    weights: str
    resize: int | None
    run: Callable[[Tensor], tuple[Tensor, Tensor]]

    def setting(self) -> dict[str, Any]:
        """The facts about the network that a score must state."""
        return {"network": self.name, "weights": self.weights, "resize": self.resize}


@dataclass(frozen=True)
class Features:
    """Features [rows, width] and chances of classes [rows, classes] of images, both float64."""

    values: np.ndarray
    chances: np.ndarray


def extract(network: FeatureNetwork, images: Tensor) -> Features:
    """Features of all images, a batch at a time."""
    values, chances = [], []
    with torch.no_grad():
        for batch in images.split(_BATCH):
            features, logits = network.run(batch)
            values.append(features.double().cpu())
            chances.append(logits.double().softmax(dim=1).cpu())
    return Features(torch.cat(values).numpy(), torch.cat(chances).numpy())


def compare(one: Score, other: Score) -> float:
    """The value of `one` minus that of `other`; refused if they were not measured in the same setting."""
    if one.name != other.name:
        raise Incompatible(f"{one.name!r} and {other.name!r} are different scores")
    if one.value is None or other.value is None:
        raise BadInput(f"{one.name!r} failed ({one.failed or other.failed}), so there is nothing to compare")
    ours, theirs = (score.detail.get("setting") or {} for score in (one, other))
    differing = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    if differing:
        settings = ", ".join(f"{key} {ours.get(key)} and {theirs.get(key)}" for key in differing)
        raise Incompatible(f"{one.name!r} was measured with {settings}; measure both in the same setting")
    return one.value - other.value


def weights_hash(tensors: Iterable[Tensor]) -> str:
    """A hash of parameters, the same for the same numbers."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


class LeNet(nn.Module):
    """LeNet-5 (LeCun et al. 1998) with ReLU and max pooling; the 84 numbers before the last layer are features."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits of images [rows, channels, 32, 32] in [0, 1]."""
        features = self.body(x)
        return features, self.head(features)


def lenet(
    images: Tensor, classes: Tensor, count: int, *, seed: int = 0, passes: int = _LENET_PASSES
) -> FeatureNetwork:
    """A LeNet trained on real images; its features are of this data set alone.

    Feature spaces of other data sets, seeds or versions of torch are different ones: the hash of the weights
    in a score shows it.
    """
    return lenet_features(trained_lenet(images, classes, count, seed=seed, passes=passes))


def lenet_features(network: LeNet) -> FeatureNetwork:
    """A trained LeNet as a network of features."""
    network.eval()
    return FeatureNetwork(
        "lenet", weights_hash(network.parameters()), _SIDE, lambda x: network(resized(x, _SIDE))
    )


def trained_lenet(
    images: Tensor, classes: Tensor, count: int, *, seed: int = 0, passes: int = _LENET_PASSES
) -> LeNet:
    """The network behind `lenet`, for who wants to keep its weights."""
    if len(torch.unique(classes)) < 2:
        raise BadInput("the real images have fewer than 2 classes to train LeNet on; use another network")
    generator = Rng(seed).at("lenet").torch_generator()
    kept = torch.randperm(len(images), generator=generator)[:_LENET_ROWS]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(Rng(seed).at("lenet weights").integer())
        network = LeNet(images.shape[1], count)
    fit(
        network,
        lambda x: network(resized(x, _SIDE))[1],
        images[kept],
        classes[kept],
        passes,
        generator,
    )
    return network


def fit(
    network: nn.Module,
    logits: Callable[[Tensor], Tensor],
    images: Tensor,
    classes: Tensor,
    passes: int,
    generator: torch.Generator,
    batch: int = 64,
) -> None:
    """Train by Adam on batches of 64: learning rate 0.001, weight decay 1e-4 (DPD-fVAE, appendix C.2)."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-4)
    network.train()
    for _ in range(passes):
        for rows in torch.randperm(len(images), generator=generator).to(images.device).split(batch):
            loss = nn.functional.cross_entropy(logits(images[rows]), classes[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def resized(images: Tensor, side: int, channels: int | None = None) -> Tensor:
    """Bytes as numbers in [0, 1], scaled to a square, gray repeated where three channels are expected.

    >>> resized(torch.full((1, 1, 28, 28), 255, dtype=torch.uint8), 32, channels=3).shape
    torch.Size([1, 3, 32, 32])
    """
    x = images.float() / 255
    if x.shape[-2:] != (side, side):
        x = nn.functional.interpolate(x, (side, side), mode="bilinear", align_corners=False, antialias=True)
    return x.expand(-1, channels, -1, -1) if channels and x.shape[1] == 1 else x


def inception_from_hub() -> FeatureNetwork:
    """Inception-v3 of the published FID, fetched once into the folder of torch.hub; needs the internet."""
    target = Path(torch.hub.get_dir()) / "checkpoints" / INCEPTION_URL.rpartition("/")[2]
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(INCEPTION_URL, str(target), progress=False)
        except OSError as error:
            raise BadInput(
                f"the network inception-v3 cannot be fetched from {INCEPTION_URL} ({error}); without internet give "
                "its file (--network inception-2015-12-05.pt), or use efficientnet-lite0 or lenet"
            ) from None
    return inception(target)


def inception(path: Path | str) -> FeatureNetwork:
    """Inception-v3 as a TorchScript file, the form in which the network of the published FID is passed around.

    Its interface: bytes [rows, 3, height, width] in, 2048 features out with `return_features=True`, else the
    chances of classes; it scales images to 299 by itself (`inception-2015-12-05.pt`).
    """
    source = Path(path)
    if not source.is_file():
        raise BadInput(f"{source}: there is no such file; give the TorchScript file of Inception-v3")
    try:
        network = torch.jit.load(str(source), map_location="cpu").eval()
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInput(
            f"{source}: is not a TorchScript file ({reason}); expected Inception-v3 in this form"
        ) from None

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        colored = x.expand(-1, 3, -1, -1)
        return network(colored, return_features=True), network(colored).clamp_min(1e-12).log()

    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    return FeatureNetwork("inception-v3", digest, 299, run)
