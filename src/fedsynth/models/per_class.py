"""One model for each class: what a rare class is like is then learned apart from the frequent ones.

The thesis on federated VAEs (section 4.4.2, "separate") does so for tables whose classes are unbalanced: each class
has an encoder and a decoder of its own, trained on the rows of that class alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedsynth.models.model import Batch, Model, Objective, Params
from fedsynth.rng import Rng


def of_class(name: str, number: int) -> str:
    """The name of a part or an objective of one class.

    >>> of_class("decoder", 2)
    'decoder of class 2'
    """
    return f"{name} of class {number}"


@dataclass(frozen=True)
class PerClass:
    """`classes` copies of a model that knows of no label, each with parameters of its own.

    An objective of one class expects a batch of that class alone: see `Phase.label`.
    """

    model: Model
    classes: int

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """The parts of each class, class by class. The modules are the same: parameters come from outside."""
        return {
            of_class(name, number): module
            for number in range(self.classes)
            for name, module in self.model.parts.items()
        }

    @property
    def generative(self) -> tuple[str, ...]:
        """The generating parts of every class."""
        return tuple(
            of_class(name, number) for number in range(self.classes) for name in self.model.generative
        )

    @cached_property
    def objectives(self) -> Mapping[str, Objective]:
        """The model's objectives, for each class and for all together."""
        each = {
            of_class(name, number): objective
            for number in range(self.classes)
            for name, objective in self.model.objectives.items()
        }
        return {**each, **self.model.objectives}

    @cached_property
    def _owners(self) -> Mapping[str, tuple[str, int]]:
        return {of_class(name, n): (name, n) for n in range(self.classes) for name in self.model.objectives}

    def parts_of(self, number: int) -> tuple[str, ...]:
        """The parts of one class."""
        return tuple(of_class(name, number) for name in self.model.parts)

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The loss of the class that the objective names; if it names none, of all, with as many rows each.

        The rows of an objective for all are dealt out without a look at them: it is for losses that read noise alone.
        """
        if objective in self.model.objectives:
            return self._together(objective, params, batch, noise)
        name, number = self._owners[objective]
        alone = {**batch, "y": torch.zeros_like(batch["y"])}
        return self.model.loss(name, self._select(params, number), alone, noise)

    def _together(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        dealt = {name: value.tensor_split(self.classes) for name, value in {**batch, "noise": noise}.items()}
        losses = []
        for number in range(self.classes):
            rows = {name: pieces[number] for name, pieces in dealt.items()}
            drawn = rows.pop("noise")
            losses.append(self.loss(of_class(objective, number), params, rows, drawn))
        return torch.stack(losses).mean()

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """One encoded row or image for each label, made by the model of its class."""
        sampled: Tensor | None = None
        for number in torch.unique(labels).tolist():
            mine = labels == number
            alone = torch.zeros_like(labels[mine])
            rows = self.model.sample(self._select(params, number), alone, rng.at("class", number))
            sampled = rows.new_zeros(len(labels), *rows.shape[1:]) if sampled is None else sampled
            sampled[mine] = rows
        return torch.empty(0) if sampled is None else sampled

    def _select(self, params: Mapping[str, Params], number: int) -> dict[str, Params]:
        named = {name: of_class(name, number) for name in self.model.parts}
        return {name: params[own] for name, own in named.items() if own in params}
