"""Rows of tables on images: a recipe trained on a public training split, scored on its test split."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors.torch import load_file
from torch import Tensor

from fedsynth.assess.scores.features import FeatureNetwork, LeNet, extract, lenet_features
from fedsynth.assess.scores.image_fidelity import frechet_distance
from fedsynth.assess.scores.score import Score, over_seeds
from fedsynth.assess.scores.utility import Performance
from fedsynth.data.clients import RawClients, image_clients_from
from fedsynth.data.image import Image
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.research.across_runs import across_runs
from fedsynth.research.datasets import celeba, celeba_identities, fashion_mnist, mnist, mnist_writers, svhn
from fedsynth.research.experiment_fit import Fit, Fitted, fit_recipe
from fedsynth.research.side_by_side import image_performances
from fedsynth.rng import Rng
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.training import Watch

SHOWN = 10  # images of a class in the grid
FID = "FID in features of a LeNet"
_COMPARED = 10_000  # images of a synthetic set
_UNBOUNDED = (0.0, float(2**31))
Images = tuple[np.ndarray, np.ndarray, Schema]


def small_mnist(split: str) -> Images:
    """MNIST with four pixels in one: what a network over all pairs of pixels can take."""
    images, labels, schema = mnist(split)
    squares = images.reshape(len(images), 14, 2, 14, 2).mean((2, 4))
    return squares.round().astype(np.uint8), labels, replace(schema, height=14, width=14)


IMAGE_DATA: dict[str, Callable[[str], Images]] = {
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "svhn": svhn,
    "celeba": celeba,
    "mnist_14": small_mnist,
}
OWNERS: dict[str, Callable[[str], np.ndarray]] = {"mnist": mnist_writers, "celeba": celeba_identities}


@dataclass(frozen=True)
class ImageTrial:
    """One training: what was trained, how long it took, and its synthetic sets."""

    fitted: Fitted
    seconds: float
    sets: list[tuple[np.ndarray, np.ndarray]]  # images and labels
    device: str


def kept_lenet(path: Path, schema: Schema, device: str = "cpu") -> FeatureNetwork:
    """The LeNet whose weights were kept in a file, so that distances of different rows are in the same features."""
    if not path.is_file():
        raise BadInput(f"lenet={str(path)!r}: not found; expected the weights of a LeNet (safetensors)")
    network = LeNet(schema.channels or 1, len(schema.classes))
    network.load_state_dict(load_file(path))
    return lenet_features(network.to(device))


class ImageJudge:
    """Trains and scores; what real images teach is measured once."""

    def __init__(
        self,
        data: str,
        classifiers: tuple[str, ...],
        sets: int,
        rows: int | None,
        passes: int,
        lenet: Path | None = None,
        device: str = "cpu",
    ) -> None:
        self._images, self._labels, self.schema = IMAGE_DATA[data]("train")
        if rows:
            self._images, self._labels = self._images[:rows], self._labels[:rows]
        self._data = data
        self._test = IMAGE_DATA[data]("test")[:2]
        self._classifiers, self._sets, self._passes = classifiers, sets, passes
        self._beside: dict[str, Performance] = {}
        self._network = kept_lenet(lenet, self.schema, device) if lenet else None

    @property
    def rows(self) -> int:
        """How many images are trained on, and as many are drawn."""
        return len(self._images)

    @property
    def test_rows(self) -> int:
        """How many images are tested on."""
        return len(self._test[0])

    def trial(self, request: Request, watch: Watch | None, fit: Fit = fit_recipe) -> ImageTrial:
        """One training and the synthetic sets that were drawn from it."""
        began = time.perf_counter()
        clients = self._clients(request)
        fitted = fit(request, clients, self.schema, watch)
        seconds = time.perf_counter() - began
        sets = []
        for number in range(self._sets):
            seed = None if request.seed is None else request.seed + 1000 * number
            images, labels = fitted.draw(self.rows, seed)
            sets.append((np.asarray(images), np.asarray(labels)))
        return ImageTrial(fitted, seconds, sets, request.device)

    def scores(self, trials: list[ImageTrial]) -> list[list[Score]]:
        """For each training the means of the scores of its sets; each set has classifiers of its own, all at once."""
        each = self._scores([one for trial in trials for one in trial.sets], trials[0].device)
        by_trial = [each[start : start + self._sets] for start in range(0, len(each), self._sets)]
        return [repeats[0] if len(repeats) == 1 else across_runs(repeats) for repeats in by_trial]

    def shown(self, trial: ImageTrial) -> np.ndarray:
        """The first images of each class for a picture, [classes * SHOWN, height, width], class by class."""
        images, labels = trial.sets[0]
        return np.concatenate([images[labels == name][:SHOWN] for name in self.schema.classes])

    def _clients(self, request: Request) -> RawClients:
        """As many simulated clients as were asked for, or else the natural ones."""
        if request.clients is None:
            if self._data not in OWNERS:
                raise BadInput(f"data={self._data!r}: has no natural clients; give clients = N under [run]")
            owners = OWNERS[self._data]("train")[: self.rows]
            return image_clients_from(self._images, self._labels, owners=owners)
        dealt = {"clients": request.clients, "split": request.split, "rng": Rng(request.seed).at("split")}
        return image_clients_from(self._images, self._labels, **dealt)  # type: ignore[arg-type]

    def _scores(self, sets: list[tuple[np.ndarray, np.ndarray]], device: str) -> list[list[Score]]:
        """The scores of each set; what real images teach is learned beside the first."""
        test, classes = self._labelled(*self._test, device), len(self.schema.classes)
        synthetic = [self._labelled(*each, device) for each in sets]
        scores: list[list[Score]] = [[] for _ in sets]
        for name in self._classifiers:
            first = [] if name in self._beside else [self._labelled(self._images, self._labels, device)]
            seeds = [*[0] * len(first), *range(len(sets))]
            performances = image_performances([*first, *synthetic], test, classes, name, seeds, self._passes)
            if first:
                self._beside[name] = performances.pop(0)
            detail = {"train_on_real": self._beside[name].accuracy, "passes": self._passes}
            for number, each in enumerate(performances):
                value = over_seeds(f"{name}: accuracy", [each.accuracy], (number,), detail=detail)
                scores[number].append(value)
        if self._network:
            self._alike(self._network, [images for images, _ in synthetic], test[0], scores)
        return scores

    def _alike(
        self, network: FeatureNetwork, synthetic: list[Tensor], test: Tensor, scores: list[list[Score]]
    ) -> None:
        """Add to the scores of each set how far its features lie from those of the test images."""
        real = extract(network, test).values
        for number, images in enumerate(synthetic):
            distance = frechet_distance(real, extract(network, images[:_COMPARED]).values)
            detail = {
                "setting": {**network.setting(), "real": len(test), "synthetic": min(len(images), _COMPARED)}
            }
            scores[number].append(Score(FID, distance, "min", _UNBOUNDED, detail=detail))

    def _labelled(self, images: np.ndarray, labels: np.ndarray, device: str) -> tuple[Tensor, Tensor]:
        """Bytes with a channel axis and class numbers, where the classifiers are trained."""
        pixels, codes = Image(self.schema).encode((images, labels))
        return pixels.to(device), codes.to(device)
