"""The model: for each class and column, the chance of each value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedsynth.extend import Batch, Block, Objective, Params, Rng, draw_rows, weighted_mean


class Chances(nn.Module):
    """One logit for each class and value."""

    def __init__(self, classes: int, values: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(classes, values))


@dataclass(frozen=True)
class Columns:
    """Every column is drawn by itself, given the label."""

    width: int
    blocks: tuple[Block, ...]
    classes: int

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """One part, which clients train and share."""
        return {"chances": Chances(max(1, self.classes), sum(block.size for block in self.blocks))}

    @property
    def generative(self) -> tuple[str, ...]:
        """The parts that make data."""
        return ("chances",)

    @cached_property
    def objectives(self) -> Mapping[str, Objective]:
        """The likelihood; losses are reported up to twice that of a uniform guess."""
        uniform = sum(math.log(block.size) for block in self.blocks)
        return {"likelihood": Objective(noise=(), bound=2.0 * uniform)}

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The negative log-likelihood, summed over columns."""
        logits = self._given(params, batch["y"])
        total, start = torch.zeros_like(batch["weight"]), 0
        for block in self.blocks:
            chosen = batch["x"][..., block.start : block.start + block.size]
            own = logits[..., start : start + block.size]
            total = total + own.logsumexp(-1) - (chosen * own).sum(-1)
            start += block.size
        return weighted_mean(total, batch["weight"])

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """One encoded row for each label."""
        generator = rng.at("sample").torch_generator()
        return draw_rows(self._given(params, labels), self.blocks, self.width, generator)

    def _given(self, params: Mapping[str, Params], labels: Tensor) -> Tensor:
        """The logits [rows, values] of each row's class, by a product: a choice by index is not safe under vmap."""
        table = params["chances"]["logits"]
        told = labels[..., None] == torch.arange(table.shape[-2], device=labels.device)
        return told.to(table.dtype) @ table if self.classes else table.expand(len(labels), -1)
