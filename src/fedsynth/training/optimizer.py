"""Optimizers as pure functions on stacks of flat vectors [clients, size]: one call steps a whole cohort.

State is a dictionary of tensors with the client axis first, so that it can be stacked, stored and sent to disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Slots = dict[str, Tensor]


class Optimizer(Protocol):
    """A rule that turns gradients into steps."""

    def init(self, params: Tensor) -> Slots:
        """The state before the first step, for params [clients, size]."""
        ...

    def step(self, params: Tensor, gradient: Tensor, slots: Slots) -> tuple[Tensor, Slots]:
        """Parameters and state after one step."""
        ...


@dataclass(frozen=True)
class SGD:
    """Gradient descent, with classical momentum if it is above zero."""

    learning_rate: float
    momentum: float = 0.0

    def init(self, params: Tensor) -> Slots:
        """No state, or a velocity of zero."""
        return {"velocity": torch.zeros_like(params)} if self.momentum else {}

    def step(self, params: Tensor, gradient: Tensor, slots: Slots) -> tuple[Tensor, Slots]:
        """One step down the gradient."""
        if not self.momentum:
            return params.add(gradient, alpha=-self.learning_rate), {}
        velocity = slots["velocity"].mul(self.momentum).add_(gradient)
        return params.add(velocity, alpha=-self.learning_rate), {"velocity": velocity}


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2014); the step count is kept per client, since clients do not step equally often."""

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    stability: float = 1e-8

    def init(self, params: Tensor) -> Slots:
        """Moments of zero and no steps yet."""
        return {
            "first": torch.zeros_like(params),
            "second": torch.zeros_like(params),
            "steps": params.new_zeros(params.shape[:-1] + (1,)),
        }

    def step(self, params: Tensor, gradient: Tensor, slots: Slots) -> tuple[Tensor, Slots]:
        """One bias-corrected step."""
        steps = slots["steps"] + 1
        first = slots["first"].mul(self.beta1).add_(gradient, alpha=1 - self.beta1)
        second = slots["second"].mul(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        correction = torch.sqrt(1 - self.beta2**steps)
        size = self.learning_rate * correction / (1 - self.beta1**steps)
        scale = second.sqrt().add_(self.stability * correction)
        moved = params - size * first / scale
        return moved, {"first": first, "second": second, "steps": steps}


def keep_where(active: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """`new` for the active clients, `old` for the others; active is [clients]."""
    return torch.where(active.reshape(-1, *([1] * (new.dim() - 1))), new, old)
