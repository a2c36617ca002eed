"""Networks of one kind trained at the same time, each on its own images: on a GPU one graph with a branch for each.

A small network leaves most of a GPU idle, and a step of it is many kernels that wait for one another. Five of them side
by side take about as long as one. The numbers are those of networks trained one after the other, up to the last bits
and the random numbers of dropout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

_WARM_UP = 3  # steps before recording, so that libraries have made their workspaces
_BATCH = 64


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
