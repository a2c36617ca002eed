"""Are images useful: train a classifier on synthetic images, test it on real ones, beside one trained on real.

Logistic regression, MLP and CNN of DPD-fVAE (appendix C.2), and the student network of the thesis (section 4.4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.assess.scores.classifiers import calmly
from fedsynth.assess.scores.features import fit
from fedsynth.assess.scores.score import Score, failure, over_seeds
from fedsynth.assess.scores.utility import MEASURES, Performance, measure
from fedsynth.errors import BadInput, nearest
from fedsynth.rng import Rng

Shape = tuple[int, int, int]  # channels, height, width
Labelled = tuple[Tensor, Tensor]  # bytes [rows, channels, height, width], classes [rows]


def mlp(shape: Shape, classes: int) -> nn.Module:
    """One hidden layer of 100 neurons."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(int(np.prod(shape)), 100), nn.ReLU(), nn.Linear(100, classes)
    )


def cnn(shape: Shape, classes: int) -> nn.Module:
    """Three convolutions of 32, 64 and 128 kernels, pooling and dropout after the first two, then 128 neurons."""
    channels, height, width = shape
    flat = 128 * (height // 4) * (width // 4)
    if not flat:
        raise BadInput(
            f"images of {height} x {width} pixels; the CNN halves them twice, so give at least 4 x 4"
        )
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1), nn.MaxPool2d(2), nn.Dropout(0.5), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.MaxPool2d(2), nn.Dropout(0.5), nn.ReLU(),
        nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(flat, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes),
    )  # fmt: skip


def student(shape: Shape, classes: int) -> nn.Module:
    """The thesis's: a convolution of 32 kernels, pooling, 100 neurons."""
    channels, height, width = shape
    flat = 32 * ((height - 2) // 2) * ((width - 2) // 2)
    if flat <= 0:
        raise BadInput(f"images of {height} x {width} pixels; the student network needs at least 4 x 4")
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(flat, 100), nn.ReLU(), nn.Linear(100, classes),
    )  # fmt: skip


NETWORKS: dict[str, Callable[[Shape, int], nn.Module]] = {"mlp": mlp, "cnn": cnn, "student network": student}
LOGISTIC = "logistic regression"
IMAGE_CLASSIFIERS = (LOGISTIC, *NETWORKS)


def image_performance(
    train: Labelled, test: Labelled, classes: int, classifier: str, seed: int, passes: int
) -> Performance:
    """Train on `train`, measure on `test`; refused with the reason if `train` cannot teach anything."""
    if classifier not in IMAGE_CLASSIFIERS:
        raise BadInput(f"classifier {classifier!r}: unknown; {nearest(classifier, IMAGE_CLASSIFIERS)}")
    check_classes(train)
    if classifier == LOGISTIC:
        chances = _logistic(train, test, classes, seed)
    else:
        chances = _network(train, test, classes, NETWORKS[classifier], seed, passes)
    return measure(test[1].cpu().numpy(), chances)


def check_classes(train: Labelled) -> None:
    """Refuse images that teach nothing."""
    if not len(train[0]) or len(torch.unique(train[1])) < 2:
        raise BadInput("the training images have fewer than two classes, so nothing can be learned from them")


def _network(
    train: Labelled,
    test: Labelled,
    classes: int,
    build: Callable[[Shape, int], nn.Module],
    seed: int,
    passes: int,
) -> np.ndarray:
    """Return what a network trained on `train` says of the test images, [rows, classes]."""
    device = train[0].device
    channels, height, width = train[0].shape[1:]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(Rng(seed).at("image classifier").integer())  # for weights and dropout
        network = build((channels, height, width), classes).to(device)
        if device.type != "cuda":  # faster by a sixth
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in its stubs
        fit(
            network, partial(_bytes, network), *train, passes, Rng(seed).at("image batches").torch_generator()
        )
    return chances_of(network.eval(), test[0])


def _bytes(network: nn.Module, images: Tensor) -> Tensor:
    logits: Tensor = network(images.float() / 255)
    return logits


def chances_of(network: nn.Module, images: Tensor) -> np.ndarray:
    """Return the chances of classes [rows, classes], 500 images at a time."""
    with torch.no_grad():
        parts = [_bytes(network, part).double().softmax(1).cpu() for part in images.split(500)]
    return torch.cat(parts).numpy()


def _logistic(train: Labelled, test: Labelled, classes: int, seed: int) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    learn, judge = ((x.flatten(1).float() / 255).numpy() for x in (train[0], test[0]))
    chances = np.zeros((len(judge), classes))
    with calmly():
        model = LogisticRegression(max_iter=100, random_state=seed).fit(learn, train[1].numpy())
        chances[:, model.classes_] = model.predict_proba(judge)
    return chances


def image_utility(
    real: Labelled,
    synthetic: Labelled,
    test: Labelled,
    classes: int,
    classifier: str,
    *,
    seeds: Sequence[int] = (0, 1),
    passes: int = 5,
) -> list[Score]:
    """Accuracy, F1 and AUC of one classifier trained on synthetic images, with the same for real ones beside it."""
    on_real = [image_performance(real, test, classes, classifier, seed, passes) for seed in seeds]
    frequent = int(torch.bincount(real[1], minlength=classes).argmax())
    majority = measure(test[1].cpu().numpy(), np.tile(np.eye(classes)[frequent], (len(test[1]), 1)))
    on_synthetic, reason = [], None
    try:
        on_synthetic = [
            image_performance(synthetic, test, classes, classifier, seed, passes) for seed in seeds
        ]
    except BadInput as error:
        reason = str(error)
    scores = []
    for name in MEASURES:
        beside = [getattr(each, name) for each in on_real]
        detail = {
            "train_on_real": float(np.mean(beside)),
            "majority": getattr(majority, name),
            "rows": {"real": len(real[1]), "synthetic": len(synthetic[1]), "test": len(test[1])},
            "passes": None if classifier == LOGISTIC else passes,
        }
        called = f"{classifier}: {name}"
        if reason is None:
            scores.append(
                over_seeds(called, [getattr(each, name) for each in on_synthetic], seeds, detail=detail)
            )
        else:
            scores.append(failure(called, reason, seeds, detail=detail))
    return scores
