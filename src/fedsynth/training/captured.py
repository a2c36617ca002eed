"""Local training on a GPU: what a phase draws, and its step, recorded as CUDA graphs and replayed.

Rows and noise of many steps are laid out in memory first; a step then takes its own by a counter that lies on the GPU,
so a step is one launch instead of hundreds. Recording costs as much as several rounds of a small model: draws, whose
sizes depend on the number of rows, are recorded when the same come a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from fedsynth.data.clients import Padded
from fedsynth.training.recording import Played, Recording

_STAGE_BYTES = 2**26  # of rows and noise that wait for their step
_MOST_STEPS, _MOST_PLAYS = 32, 16  # recordings that are kept
_PLAYED_BYTES = 2**24  # the most that a recorded result may take


@dataclass(frozen=True)
class Draws:
    """The rows, weights and noise of many steps, [steps, clients, batch, ...] each."""

    index: Tensor
    weight: Tensor
    noise: Tensor


@dataclass(frozen=True)
class Tapes:
    """The CUDA graphs of a phase, by sizes: steps of training, and the draws before or in them."""

    steps: dict[object, tuple[BatchBuffer, Recording]] = field(default_factory=dict)
    plays: dict[object, Played | None] = field(default_factory=dict)

    @cached_property
    def pool(self) -> Any:
        """Memory in which all recorded work is done but for steps: large once, not for each size."""
        return torch.cuda.graph_pool_handle()

    def step(
        self, sizes: object, make: Callable[[], tuple[BatchBuffer, Recording]]
    ) -> tuple[BatchBuffer, Recording]:
        """The recorded step for these sizes; `make` records it."""
        if sizes not in self.steps:
            if len(self.steps) >= _MOST_STEPS:
                del self.steps[next(iter(self.steps))]
            self.steps[sizes] = make()
        return self.steps[sizes]

    def replay(self, sizes: object, bytes_kept: int, work: Callable[..., Any], *inputs: Any) -> Any:
        """`work(*inputs)`, replayed where it was called for these sizes before; good until the next call."""
        leaves, _ = tree_flatten(inputs)
        key = (sizes, torch.get_float32_matmul_precision(), *(value.shape for value in leaves))
        tape = self.plays.get(key)
        room = sum(kept is not None for kept in self.plays.values()) < _MOST_PLAYS
        if tape is None and room and key in self.plays and bytes_kept <= _PLAYED_BYTES:
            tape = Played(work, inputs, self.pool)
        self.plays[key] = tape
        return work(*inputs) if tape is None else tape.play(*inputs)


class BatchBuffer:
    """Room for the batches of several steps; `batch` gives that of the step whose turn it is."""

    def __init__(self, x: Tensor, steps: int, draws: Draws) -> None:
        """`x` has the rows [clients, rows, ...]."""
        shape = (steps, *draws.index.shape[1:])
        self.x = x.new_zeros(*shape, *x.shape[2:])
        self.y = draws.index.new_zeros(shape)
        self.weight = self.x.new_zeros(shape)
        self.noise = draws.noise.new_zeros(steps, *draws.noise.shape[1:])
        self._turn = draws.index.new_zeros(1)

    def fill(self, data: Padded, draws: Draws, start: int) -> int:
        """Lay out the steps from `start`; return how many."""
        count = min(len(self.y), len(draws.index) - start)
        index = draws.index[start : start + count]
        clients, longest = data.y.shape
        first = torch.arange(0, clients * longest, longest, device=index.device)[:, None]
        rows = (index + first).flatten()
        for room, values in ((self.x, data.x), (self.y, data.y)):
            torch.index_select(values.flatten(0, 1), 0, rows, out=room[:count].flatten(0, 2))
        self.weight[:count].copy_(draws.weight[start : start + count])
        self.noise[:count].copy_(draws.noise[start : start + count])
        self._turn.zero_()
        return count

    def batch(self) -> tuple[dict[str, Tensor], Tensor]:
        """Batch and noise of the step whose turn it is; then it is the next one's."""
        whole = (self.x, self.y, self.weight, self.noise)
        x, y, weight, noise = (values.index_select(0, self._turn).squeeze(0) for values in whole)
        self._turn.add_(1).remainder_(len(self.y))
        return {"x": x, "y": y, "weight": weight}, noise


def steps_at_once(x: Tensor, draws: Draws) -> int:
    """How many steps are laid out at a time: a power of two, so that cohorts of other lengths fit a recording."""
    each = draws.index[0].numel() * 4 * (x[0, 0].numel() + draws.noise[0, 0, 0].numel() + 3)
    fitting = max(1, _STAGE_BYTES // each)
    return min(1 << (fitting.bit_length() - 1), 1 << (len(draws.index) - 1).bit_length())


def replayed(
    tapes: Tapes,
    kind: object,
    step: Callable[..., Any],
    carry: Any,
    fixed: Mapping[str, Tensor],
    data: Padded,
    draws: Draws,
) -> Any:
    """The carry after all steps, each `step(carry, fixed, batch, noise)`, which `kind` tells from others."""
    at_once = steps_at_once(data.x, draws)

    def make() -> tuple[BatchBuffer, Recording]:
        stage = BatchBuffer(data.x, at_once, draws)
        stage.fill(data, draws, 0)
        return stage, Recording(lambda carry, fixed: step(carry, fixed, *stage.batch()), carry, fixed)

    shapes = (kind, data.x.shape[2:], draws.index.shape[1:], at_once, torch.get_float32_matmul_precision())
    stage, tape = tapes.step(shapes, make)
    tape.load(carry, fixed)
    start = 0
    while start < len(draws.index):
        count = stage.fill(data, draws, start)
        for _ in range(count):
            tape.play()
        start += count
    return tape.result()


def stacked(values: Sequence[Tensor], width: int) -> Tensor:
    """Values of several steps, [clients, batch, ...] each, as one; short batches are filled up to the width."""
    padded = [
        torch.nn.functional.pad(value, (0, 0) * (value.dim() - 2) + (0, width - value.shape[1]))
        for value in values
    ]
    return torch.stack(padded)
