"""A training step recorded as a CUDA graph: the GPU replays hundreds of small kernels from one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

_WARM_UP = 3  # runs before recording, so that libraries have made their workspaces


class Recording:
    """`step(carry, *inputs) -> carry` with fixed addresses: load a carry, play steps, take the result."""

    def __init__(self, step: Callable[..., Any], carry: Any, inputs: tuple[Any, ...]) -> None:
        self._wrap = type(carry)
        self._carry, self._carry_form = _copies(vars(carry))
        self._inputs, self._input_forms = zip(*(_copies(value) for value in inputs), strict=True)
        self._graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._run(step)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self._graph):
            self._run(step)

    def _run(self, step: Callable[..., Any]) -> None:
        """One step whose result is written over its carry."""
        carry = self._wrap(**tree_unflatten(self._carry, self._carry_form))
        inputs = [tree_unflatten(list(v), f) for v, f in zip(self._inputs, self._input_forms, strict=True)]
        after, _ = tree_flatten(vars(step(carry, *inputs)))
        for kept, new in zip(self._carry, after, strict=True):
            kept.copy_(new)

    def load(self, carry: Any, inputs: tuple[Any, ...]) -> None:
        """Start from this carry, with these leading inputs for all steps to come."""
        _overwrite(self._carry, vars(carry))
        for kept, value in zip(self._inputs, inputs, strict=False):
            _overwrite(kept, value)

    def play(self, *inputs: Tensor) -> None:
        """One step with these trailing inputs."""
        for kept, value in zip(self._inputs[-len(inputs) :], inputs, strict=True):
            _overwrite(kept, value)
        self._graph.replay()

    def result(self) -> Any:
        """The carry after the steps played, in memory of its own."""
        return self._wrap(**tree_unflatten([value.clone() for value in self._carry], self._carry_form))


def _copies(value: Any) -> tuple[list[Tensor], Any]:
    leaves, form = tree_flatten(value)
    return [leaf.detach().clone(memory_format=torch.contiguous_format) for leaf in leaves], form


def _overwrite(kept: list[Tensor], value: Any) -> None:
    for old, new in zip(kept, tree_flatten(value)[0], strict=True):
        old.copy_(new)
