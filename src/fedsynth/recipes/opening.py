"""Where a Wasserstein autoencoder starts: pre-trained on rows that are simulated from public or released numbers alone.

Two sources of such rows. Uniform ones need the schema only (DP-Fed-WAE, section 5.2). Better ones come from an opening
question to part of the clients, each of which answers for the label and a few columns by randomized response with its
whole budget and then sits training out: from the distributions of every two columns the server learns a latent class
model, simulates rows with it and trains on those. That is post-processing, so it costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.data.encode import Block
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import as_probabilities
from fedsynth.models.latent_classes import LatentClasses, fit_latent_classes
from fedsynth.models.model import Batch, Model, layouts
from fedsynth.models.wae import OBJECTIVE
from fedsynth.privacy.response import Answers, Views
from fedsynth.rng import Rng

_LEARNING_RATE = 2e-3
_ROWS = 256  # in a batch of pre-training
_FITTING = 800  # steps of fitting latent classes
_BATCHES = 80  # of simulated rows, used again and again
Simulate = Callable[[int, torch.Generator], Batch]


@dataclass(frozen=True)
class FirstRow:
    """Each client's first row as one code a column, the label's last; -1 for a client without rows."""

    blocks: tuple[Block, ...]
    classes: int

    def __call__(self, data: Padded) -> Tensor:
        """[clients, columns]."""
        first = data.x[:, 0]
        columns = [first[:, b.start : b.start + b.size].argmax(1) for b in self.blocks]
        columns += [data.y[:, 0]] if self.classes else []
        codes = torch.stack(columns, 1)
        return torch.where(data.mask.any(1)[:, None], codes, -1).to(torch.float32)


def pretrain(
    model: Model,
    parts: dict[str, Tensor],
    simulate: Simulate,
    steps: int,
    rng: Rng,
    objective: str = OBJECTIVE,
) -> dict[str, Tensor]:
    """The parts after `steps` of Adam on simulated rows; no real row is seen."""
    if not steps:
        return parts
    shapes = layouts(model)
    draw = rng.at("pretrain").torch_generator()
    leaves = {name: flat.clone().requires_grad_() for name, flat in parts.items()}
    optimizer = torch.optim.Adam(list(leaves.values()), lr=_LEARNING_RATE)
    noise = model.objectives[objective].noise
    pool = simulate(min(steps, _BATCHES) * _ROWS, draw)
    for _ in range(steps):
        chosen = torch.randint(len(pool["y"]), (_ROWS,), generator=draw)
        batch = {name: value[chosen] for name, value in pool.items()}
        named = {name: shapes[name].split(flat) for name, flat in leaves.items()}
        optimizer.zero_grad()
        model.loss(objective, named, batch, torch.randn(_ROWS, *noise, generator=draw)).backward()
        optimizer.step()
    return {name: flat.detach() for name, flat in leaves.items()}


@dataclass(frozen=True)
class _EncodedRows:
    """Rows made up from codes of their columns."""

    width: int
    blocks: tuple[Block, ...]

    def _batch(self, codes: list[Tensor], y: Tensor) -> Batch:
        rows = torch.zeros(len(y), self.width)
        for code, block in zip(codes, self.blocks, strict=True):
            rows[torch.arange(len(y)), block.start + code] = 1.0
        return {"x": rows, "y": y, "weight": torch.ones(len(y))}


@dataclass(frozen=True)
class UniformRows(_EncodedRows):
    """Every value of every column equally likely, from the schema alone."""

    classes: int

    def __call__(self, rows: int, draw: torch.Generator) -> Batch:
        """A batch of encoded rows."""
        codes = [torch.randint(b.size, (rows,), generator=draw) for b in self.blocks]
        y = torch.randint(max(1, self.classes), (rows,), generator=draw)
        return self._batch(codes, y)


@dataclass(frozen=True)
class UniformImages:
    """Every pixel anywhere between black and white."""

    shape: tuple[int, int, int]
    classes: int

    def __call__(self, rows: int, draw: torch.Generator) -> Batch:
        """A batch of images."""
        y = torch.randint(max(1, self.classes), (rows,), generator=draw)
        return {"x": torch.rand(rows, *self.shape, generator=draw), "y": y, "weight": torch.ones(rows)}


@dataclass(frozen=True)
class RowsByClass(_EncodedRows):
    """Rows of a latent class model; the label is its last column, if there is one."""

    model: LatentClasses

    def __call__(self, rows: int, draw: torch.Generator) -> Batch:
        """A batch of encoded rows."""
        codes = list(self.model.sample(rows, draw).unbind(1))
        y = codes[-1] if len(codes) > len(self.blocks) else torch.zeros(rows, dtype=torch.int64)
        return self._batch(codes[: len(self.blocks)], y)


@dataclass(frozen=True)
class FillFromViews:
    """The server's use of the answers: the class balance, and a pre-trained model if columns were asked for."""

    model: Model
    views: Views
    width: int
    blocks: tuple[Block, ...]
    classes: int
    steps: int
    latent_classes: int = 8

    @cached_property
    def _wire(self) -> Answers:
        return self.views.wire(len(self.views.sizes))

    def __call__(self, state: ServerState, answer: Tensor, rng: Rng) -> ServerState:
        """The state that training starts from."""
        label = len(self.views.sizes) - 1
        shares = torch.from_numpy(self._wire.joint(answer, label, label)) if self.classes else torch.ones(1)
        balance = as_probabilities(shares)
        if not self.views.drawn:
            return state.with_balance(balance)
        draw = rng.at("classes").torch_generator()
        learned = fit_latent_classes(
            self.views.sizes,
            *self._wire.pairs(answer),
            self.latent_classes,
            bool(self.classes),
            _FITTING,
            draw,
        )
        simulate = RowsByClass(self.width, self.blocks, learned)
        parts = pretrain(self.model, state.parts, simulate, self.steps, rng)
        return ServerState(
            state.version, {**state.parts, **parts}, state.memory, state.mechanism, balance.to(torch.float32)
        )
