"""Local training: a plan is a few phases, each trains some parts of the model on one objective.

Every function here works on a chunk of clients at once, [clients, ...]; one client is a chunk of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.models.model import Batch, Layout, Model, Params, layouts
from fedsynth.rng import Rng, expand_normal, subkeys
from fedsynth.training.captured import Draws, Tapes, replayed, stacked
from fedsynth.training.optimizer import Optimizer, Slots, keep_where
from fedsynth.training.rule import Drawing, LocalStep, Loss, Rows, Rule, Trained

_NOISE_AT_ONCE = 2**20  # numbers


@dataclass(frozen=True)
class Phase:
    """Train parts on `objective`, each by its own optimizer, with batches and gradients as `rule` says.

    With a `label`, the rows of that class alone: one phase for each class is one pass over all rows.
    """

    objective: str
    optimizers: Mapping[str, Optimizer]
    rule: Rule
    label: int | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that are trained."""
        return tuple(self.optimizers)

    @cached_property
    def recorded(self) -> Tapes:
        """The steps recorded on a GPU: a matter of speed alone."""
        return Tapes()


@dataclass(frozen=True)
class Progress:
    """The state of local training: flat vectors and optimizer state a part, the sum of losses and the steps taken."""

    params: Trained
    slots: dict[str, Slots]
    losses: Tensor  # [clients]
    steps: Tensor  # [clients]

    @property
    def loss(self) -> Tensor:
        """The mean loss [clients] over the steps that each client took."""
        return self.losses / self.steps.clamp(min=1)


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
    device = data.mask.device
    progress = Progress(
        trained, state, torch.zeros(len(ids), device=device), torch.zeros(len(ids), device=device)
    )
    loss = loss_of(model, phase.objective)
    mask = data.mask if phase.label is None else data.mask & (data.y == phase.label)
    shape = model.objectives[phase.objective].noise
    drawing = phase.rule.drawing(mask, ids, rng) if device.type == "cuda" else None
    if drawing is not None:
        draws = drawn_ahead(phase.recorded, drawing, rng.at("train").keys(ids, device), shape)
        return run_captured(phase, loss, progress, fixed, data, draws, drawing.everyone)
    rows = list(phase.rule.batches(mask, ids, rng))
    noise = draw_noise(rng.at("train").keys(ids, device), rows, shape)
    for chosen, drawn in zip(rows, noise, strict=True):
        streams = rng.at("step", chosen.step)
        batch = take(data, chosen.index, chosen.weight)
        tapes = phase.recorded if device.type == "cuda" else None
        step = LocalStep(progress.params, fixed, batch, drawn, ids, streams, tapes)
        gradients, losses = phase.rule.gradient(loss, step)
        active = chosen.active if phase.rule.release is None else torch.ones_like(chosen.active)
        progress = advance(phase.optimizers, progress, gradients, losses, active)
    return progress


def loss_of(model: Model, objective: str) -> Loss:
    """The model's loss for one client, as a function of flat vectors."""
    return ModelLoss(model, objective, layouts(model))


@dataclass(frozen=True)
class ModelLoss:
    """One loss of a model, as a function of flat vectors."""

    model: Model
    objective: str
    shapes: Mapping[str, Layout]

    def __call__(self, trained: Trained, fixed: Trained, batch: Batch, noise: Tensor) -> Tensor:
        """The loss of one client."""
        return self.model.loss(self.objective, self._named({**fixed, **trained}), batch, noise)

    def of_clients(self, trained: Trained, fixed: Trained, batch: Batch, noise: Tensor) -> Tensor | None:
        """The losses [clients] of a stack, where the model has a way of its own for it that is faster than vmap."""
        losses = getattr(self.model, "losses", None)
        if losses is None:
            return None
        shared = {name: flat.expand(len(noise), -1) for name, flat in fixed.items()}
        of_stack: Tensor | None = losses(self.objective, self._named({**shared, **trained}), batch, noise)
        return of_stack

    def _named(self, parts: Trained) -> dict[str, Params]:
        return {name: self.shapes[name].split(flat) for name, flat in parts.items()}


def draw_noise(keys: Tensor, rows: list[Rows], shape: tuple[int, ...]) -> Iterator[Tensor]:
    """The noise of each step, [clients, batch, ...]; many steps are drawn at once, which changes no number."""
    start = 0
    while start < len(rows):
        width = rows[start].index.shape[1]
        each = max(1, len(keys) * width * math.prod(shape))
        stop = start + 1
        while (
            stop < len(rows)
            and rows[stop].index.shape[1] == width
            and (stop - start + 1) * each <= _NOISE_AT_ONCE
        ):
            stop += 1
        stacked = torch.stack([subkeys(keys, chosen.step) for chosen in rows[start:stop]])
        yield from expand_normal(stacked, (width, *shape))
        start = stop


def take(data: Padded, index: Tensor, weight: Tensor) -> Batch:
    """The batch of the given rows, [clients, batch, ...]."""
    clients, longest = data.x.shape[:2]
    first = torch.arange(0, clients * longest, longest, device=index.device)[:, None]
    rows = (first + index).flatten()
    x, y = (whole.flatten(0, 1).index_select(0, rows).unflatten(0, index.shape) for whole in (data.x, data.y))
    return {"x": x, "y": y, "weight": weight.to(torch.float32)}


def advance(
    optimizers: Mapping[str, Optimizer],
    progress: Progress,
    gradients: Trained,
    losses: Tensor,
    active: Tensor,
    everyone: bool | None = None,
) -> Progress:
    """One optimizer step for each part; the clients that sat out keep what they had."""
    if everyone is None:
        everyone = active.device.type == "cpu" and bool(active.all())  # asking a GPU would stall it
    params: Trained = {}
    slots: dict[str, Slots] = {}
    for name, flat in progress.params.items():
        old = progress.slots[name]
        moved, new = optimizers[name].step(flat, gradients[name], old)
        params[name] = moved if everyone else keep_where(active, moved, flat)
        slots[name] = new if everyone else {key: keep_where(active, new[key], old[key]) for key in new}
    counted = torch.where(active, losses, 0.0)
    return Progress(params, slots, progress.losses + counted, progress.steps + active)


def run_captured(
    phase: Phase,
    loss: Loss,
    progress: Progress,
    fixed: Trained,
    data: Padded,
    draws: Draws,
    everyone: bool,
) -> Progress:
    """The same steps on a GPU, recorded once as a CUDA graph and replayed: a step is one launch instead of hundreds."""
    nothing = np.empty(0, dtype=np.int64)

    def step(carried: Progress, fixed: Trained, batch: Batch, drawn: Tensor) -> Progress:
        one_step = LocalStep(carried.params, fixed, batch, drawn, nothing, Rng())
        gradients, losses = phase.rule.gradient(loss, one_step)
        active = batch["weight"].any(dim=1)
        return advance(phase.optimizers, carried, gradients, losses, active, everyone)

    return replayed(phase.recorded, everyone, step, progress, fixed, data, draws)


def drawn_ahead(tapes: Tapes, drawing: Drawing, keys: Tensor, shape: tuple[int, ...]) -> Draws:
    """The rows and the noise of all steps; the last, shorter batch of an epoch is filled up with empty places."""

    def draw(keys: Tensor, *inputs: Tensor) -> Draws:
        rows = list(drawing.rows(*inputs))
        width = rows[0].index.shape[1]
        index, weight = [chosen.index for chosen in rows], [chosen.weight for chosen in rows]
        return Draws(*(stacked(v, width) for v in (index, weight, list(draw_noise(keys, rows, shape)))))

    bytes_kept = 4 * drawing.places * (3 + math.prod(shape))
    return tapes.replay(drawing.sizes, bytes_kept, draw, keys, *drawing.inputs)
