"""The server's optimizers: how it applies the mean update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

Memory = dict[str, Tensor]


class ServerRule(Protocol):
    """Turns a mean update into the next parameters."""

    @property
    def averages(self) -> bool:
        """True if the next parameters are the mean of the clients' and nothing else, so that nobody has to see them."""

    def init(self, params: Tensor) -> Memory:
        """The rule's memory before the first round."""

    def step(self, params: Tensor, update: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Parameters and memory after one round."""


@dataclass(frozen=True)
class Momentum:
    """Federated averaging with momentum on the mean update (0 is plain averaging)."""

    momentum: float = 0.0
    learning_rate: float = 1.0
    nesterov: bool = False

    @property
    def averages(self) -> bool:
        """Without momentum and with a step of one."""
        return self.momentum == 0 and self.learning_rate == 1

    def init(self, params: Tensor) -> Memory:
        """A velocity of zero."""
        return {"velocity": torch.zeros_like(params)}

    def step(self, params: Tensor, update: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """theta + rate × (momentum × velocity + update): the update points downhill already."""
        velocity = self.momentum * memory["velocity"] + update
        ahead = self.momentum * velocity + update if self.nesterov else velocity
        return params + self.learning_rate * ahead, {"velocity": velocity}


@dataclass(frozen=True)
class ServerAdam:
    """FedAdam (Reddi et al. 2020): adapts each coordinate's step to the size of its noisy updates."""

    learning_rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    stability: float = 1e-4
    averages: ClassVar[bool] = False  # it adapts to the size of the updates

    def init(self, params: Tensor) -> Memory:
        """Moments of zero."""
        zero = torch.zeros_like(params)
        return {"first": zero, "second": zero.clone(), "steps": torch.zeros(1)}

    def step(self, params: Tensor, update: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """One bias-corrected step along the mean update."""
        steps = memory["steps"] + 1
        first = self.beta1 * memory["first"] + (1 - self.beta1) * update
        second = self.beta2 * memory["second"] + (1 - self.beta2) * update.square()
        direction = first / (1 - self.beta1**steps)
        scale = torch.sqrt(second / (1 - self.beta2**steps)) + self.stability
        moved = params + self.learning_rate * direction / scale
        return moved, {"first": first, "second": second, "steps": steps}
