"""Networks of one kind trained at the same time, each on its own images: on a GPU one graph with a branch for each.

A small network leaves most of a GPU idle, and a step of it is many kernels that wait for one another. Five of them side
by side take about as long as one. The numbers are those of networks trained one after the other, up to the last bits
and the random numbers of dropout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.assess.scores.image_utility import (
    LOGISTIC,
    NETWORKS,
    Labelled,
    chances_of,
    check_classes,
    image_performance,
)
from fedsynth.assess.scores.utility import Performance, measure
from fedsynth.rng import Rng

_WARM_UP = 3  # steps before recording, so that libraries have made their workspaces
_BATCH = 64


def image_performances(
    trains: Sequence[Labelled],
    test: Labelled,
    classes: int,
    classifier: str,
    seeds: Sequence[int],
    passes: int,
) -> list[Performance]:
    """Measure a classifier of each of several sets of equal size; on a GPU all learn at once."""
    together = len(trains) > 1 and classifier in NETWORKS
    if not trains[0][0].is_cuda or not (together or classifier == LOGISTIC):
        return [
            image_performance(train, test, classes, classifier, seed, passes)
            for train, seed in zip(trains, seeds, strict=True)
        ]
    for train in trains:
        check_classes(train)
    if classifier == LOGISTIC:
        chances = [_logistic_on_gpu(train, test, classes) for train in trains]
    else:
        chances = _networks(trains, test, classes, classifier, seeds, passes)
    return [measure(test[1].cpu().numpy(), each) for each in chances]


def _networks(
    trains: Sequence[Labelled],
    test: Labelled,
    classes: int,
    classifier: str,
    seeds: Sequence[int],
    passes: int,
) -> list[np.ndarray]:
    device = trains[0][0].device
    channels, height, width = trains[0][0].shape[1:]
    networks = []
    with torch.random.fork_rng(devices=[device]):
        for seed in seeds:
            torch.manual_seed(Rng(seed).at("image classifier").integer())  # for weights and dropout
            networks.append(NETWORKS[classifier]((channels, height, width), classes).to(device))
        generators = [Rng(seed).at("image batches").torch_generator() for seed in seeds]
        fit_side_by_side(networks, trains, passes, generators)
    return [chances_of(network.eval(), test[0]) for network in networks]


def _logistic_on_gpu(train: Labelled, test: Labelled, classes: int) -> np.ndarray:
    """The same regression (L2 penalty of weight 1, L-BFGS, 100 iterations) where the images are."""
    learn, judge = (x.flatten(1).float() / 255 for x in (train[0], test[0]))
    weights = torch.zeros(learn.shape[1], classes, device=learn.device, requires_grad=True)
    shift = torch.zeros(classes, device=learn.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, shift], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        error = nn.functional.cross_entropy(learn @ weights + shift, train[1])
        penalized = error + weights.square().sum() / (2 * len(learn))
        penalized.backward()  # type: ignore[no-untyped-call]
        return penalized

    optimizer.step(loss)  # type: ignore[arg-type]
    with torch.no_grad():
        return (judge @ weights + shift).double().softmax(1).cpu().numpy()


def fit_side_by_side(
    networks: Sequence[nn.Module],
    sets: Sequence[tuple[Tensor, Tensor]],
    passes: int,
    generators: Sequence[torch.Generator],
) -> None:
    """Train each network on its own bytes and classes, by Adam as `features.fit` does, all on one GPU.

    All sets have the same number of images; the last, shorter batch of a pass is left out.
    """
    optimizers = [
        torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-4, capturable=True, fused=True)
        for network in networks
    ]
    count = len(sets[0][0]) // _BATCH * _BATCH
    device = sets[0][0].device
    rows = torch.zeros(len(sets), _BATCH, dtype=torch.int64, device=device)

    def step(number: int) -> None:
        images, classes = sets[number]
        chosen = rows[number]
        logits = networks[number](images[chosen].float() / 255)
        loss = nn.functional.cross_entropy(logits, classes[chosen])
        optimizers[number].zero_grad()
        loss.backward()
        optimizers[number].step()

    def shuffled() -> Tensor:
        orders = [
            torch.randperm(len(s[0]), generator=g)[:count] for s, g in zip(sets, generators, strict=True)
        ]
        return torch.stack(orders).to(device).unflatten(1, (-1, _BATCH))  # [networks, steps, batch]

    for network in networks:
        network.train()
    rows.copy_(shuffled()[:, 0])
    play = _recorded([partial(step, number) for number in range(len(sets))])
    for _ in range(passes):
        for chosen in shuffled().unbind(1):
            rows.copy_(chosen)
            play()
    torch.cuda.synchronize(device)


def _recorded(steps: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """All steps as one launch, on branches that do not wait for one another."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            for step in steps:
                step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    branches = [torch.cuda.Stream() for _ in steps]
    with torch.cuda.graph(graph):
        trunk = torch.cuda.current_stream()
        for branch, step in zip(branches, steps, strict=True):
            branch.wait_stream(trunk)
            with torch.cuda.stream(branch):
                step()
        for branch in branches:
            trunk.wait_stream(branch)
    return graph.replay
