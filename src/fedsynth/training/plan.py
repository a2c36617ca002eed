"""Local training: a plan is a few phases, each trains some parts of the model on one objective.

Every function here works on a chunk of clients at once, [clients, ...]; one client is a chunk of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.models.model import Batch, Model, layouts
from fedsynth.rng import Rng, expand_normal, subkeys
from fedsynth.training.optimizer import Optimizer, Slots, keep_where
from fedsynth.training.rule import Rows, Rule, Trained


@dataclass(frozen=True)
class Phase:
    """Train parts on `objective`, each by its own optimizer, with batches and gradients as `rule` says."""

    objective: str
    optimizers: Mapping[str, Optimizer]
    rule: Rule

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that are trained."""
        return tuple(self.optimizers)


@dataclass(frozen=True)
class Progress:
    """What local training changed: parameters and optimizer state a part, and the mean loss [clients]."""

    params: Trained
    slots: dict[str, Slots] = field(default_factory=dict)
    loss: Tensor | None = None


def train(
    model: Model,
    phase: Phase,
    params: Mapping[str, Tensor],
    slots: Mapping[str, Slots],
    data: Padded,
    ids: np.ndarray,
    rng: Rng,
) -> Progress:
    """Run one phase for a chunk of clients.

    `params` has a flat vector a part: [clients, size] for the trained parts, [size] for what all clients share.
    A client whose batch is empty keeps its parameters and its optimizer state for that step.
    """
    trained = {name: params[name] for name in phase.parts}
    fixed = {name: flat for name, flat in params.items() if name not in phase.parts}
    state = {name: slots.get(name) or phase.optimizers[name].init(trained[name]) for name in phase.parts}
    shapes = layouts(model)
    noise_shape = model.objectives[phase.objective].noise
    keys = rng.at("train").keys(ids, data.mask.device)

    def loss(trained: Trained, fixed: Trained, batch: Batch, noise: Tensor) -> Tensor:
        named = {name: shapes[name].split(flat) for name, flat in {**fixed, **trained}.items()}
        return model.loss(phase.objective, named, batch, noise)

    total = torch.zeros(len(ids), device=data.mask.device)
    steps = torch.zeros(len(ids), device=data.mask.device)
    for rows in phase.rule.batches(data.mask, ids, rng):
        batch = take(data, rows)
        noise = expand_normal(subkeys(keys, rows.step), (rows.index.shape[1], *noise_shape))
        gradients, losses = phase.rule.gradient(
            loss, trained, fixed, batch, noise, ids, rng.at("step", rows.step)
        )
        active = rows.active if phase.rule.release is None else torch.ones_like(rows.active)
        trained, state = _step(phase.optimizers, trained, gradients, state, active)
        total = total + torch.where(active, losses, 0.0)
        steps = steps + active
    return Progress(trained, state, total / steps.clamp(min=1))


def take(data: Padded, rows: Rows) -> Batch:
    """The batch of the given rows, [clients, batch, ...]."""
    client = torch.arange(len(rows.index), device=rows.index.device)[:, None]
    return {
        "x": data.x[client, rows.index],
        "y": data.y[client, rows.index],
        "weight": rows.weight.to(torch.float32),
    }


def _step(
    optimizers: Mapping[str, Optimizer],
    trained: Trained,
    gradients: Trained,
    state: dict[str, Slots],
    active: Tensor,
) -> tuple[Trained, dict[str, Slots]]:
    """One optimizer step for each part; the clients that sat out keep what they had."""
    everyone = bool(active.all())
    params: Trained = {}
    slots: dict[str, Slots] = {}
    for name, flat in trained.items():
        moved, new = optimizers[name].step(flat, gradients[name], state[name])
        params[name] = moved if everyone else keep_where(active, moved, flat)
        old = state[name]
        slots[name] = new if everyone else {key: keep_where(active, new[key], old[key]) for key in new}
    return params, slots
