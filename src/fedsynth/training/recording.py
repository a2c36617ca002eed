"""Work recorded as a CUDA graph: the GPU replays hundreds of small kernels from one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

_WARM_UP = 3  # runs before recording, so that libraries have made their workspaces


class Played:
    """`work(*inputs)` on tensors; its result lies where the next call overwrites it."""

    def __init__(self, work: Callable[..., Any], inputs: tuple[Any, ...], pool: Any = None) -> None:
        """`pool`: memory in which others work too, each before or after this, and never at the same time."""
        self._inputs, form = _copies(inputs)
        self._graph, self._result = _recorded(lambda: work(*tree_unflatten(self._inputs, form)), pool)

    def play(self, *inputs: Any) -> Any:
        """The result for these inputs."""
        _overwrite(self._inputs, inputs)
        self._graph.replay()
        return self._result


class Recording:
    """`step(carry, fixed) -> carry` with fixed addresses: load a carry, play steps, take the result."""

    def __init__(self, step: Callable[..., Any], carry: Any, fixed: Any) -> None:
        self._wrap = type(carry)
        self._carry, self._carry_form = _copies(vars(carry))
        self._fixed, self._fixed_form = _copies(fixed)
        self._graph, _ = _recorded(lambda: self._run(step))

    def _run(self, step: Callable[..., Any]) -> None:
        """One step whose result is written over its carry."""
        carry = self._wrap(**tree_unflatten(self._carry, self._carry_form))
        after, _ = tree_flatten(vars(step(carry, tree_unflatten(self._fixed, self._fixed_form))))
        for kept, new in zip(self._carry, after, strict=True):
            kept.copy_(new)

    def load(self, carry: Any, fixed: Any) -> None:
        """Start from this carry, with what stays the same in all steps to come."""
        _overwrite(self._carry, vars(carry))
        _overwrite(self._fixed, fixed)

    def play(self) -> None:
        """One step."""
        self._graph.replay()

    def result(self) -> Any:
        """The carry after the steps played, in memory of its own."""
        return self._wrap(**tree_unflatten([value.clone() for value in self._carry], self._carry_form))


def _recorded(work: Callable[[], Any], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Any]:
    """The graph of `work()`, and where its result lies."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(
        graph, pool=pool, capture_error_mode="thread_local"
    ):  # other GPUs have threads of their own
        result = work()
    return graph, result


def _copies(value: Any) -> tuple[list[Tensor], Any]:
    leaves, form = tree_flatten(value)
    return [leaf.detach().clone(memory_format=torch.contiguous_format) for leaf in leaves], form


def _overwrite(kept: list[Tensor], value: Any) -> None:
    new = tree_flatten(value)[0]
    if kept:
        torch._foreach_copy_(kept, list(new))
