"""Canary records: rows whose gradients point along coordinates of their own, through the recipe's own DP-SGD."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from fedsynth.assess.audit.canary import LOUD, CanaryGame, CanaryObservations, log_likelihood
from fedsynth.data.clients import Padded
from fedsynth.errors import Incompatible
from fedsynth.models.model import Batch, Objective, Params, weighted_mean
from fedsynth.rng import Rng
from fedsynth.training.optimizer import Slots
from fedsynth.training.plan import Phase, train


@dataclass(frozen=True)
class Pointer:
    """A model whose gradient for a row is the row itself: a canary record points along its own coordinate."""

    width: int
    generative: tuple[str, ...] = ("pointer",)

    @cached_property
    def parts(self) -> Mapping[str, nn.Module]:
        """One vector."""
        return {"pointer": nn.Linear(self.width, 1, bias=False)}

    @property
    def objectives(self) -> Mapping[str, Objective]:
        """The inner product of row and vector."""
        return {"pointing": Objective(noise=(1,), bound=1.0)}

    def loss(self, objective: str, params: Mapping[str, Params], batch: Batch, noise: Tensor) -> Tensor:
        """The inner product of row and vector, averaged over rows."""
        return weighted_mean((batch["x"] * params["pointer"]["weight"][0]).sum(-1), batch["weight"])

    def sample(self, params: Mapping[str, Params], labels: Tensor, rng: Rng) -> Tensor:
        """Nothing is generated."""
        raise NotImplementedError


@dataclass(frozen=True)
class Notebook:
    """An optimizer that stays where it is, while every noisy gradient that reaches it is written down."""

    gradients: list[np.ndarray] = field(default_factory=list)

    def init(self, params: Tensor) -> Slots:
        """No state."""
        return {}

    def step(self, params: Tensor, gradient: Tensor, slots: Slots) -> tuple[Tensor, Slots]:
        """Write the gradient [runs, size] down."""
        self.gradients.append(gradient.double().cpu().numpy())
        return params, {}


def watch_records(game: CanaryGame) -> CanaryObservations:
    """All steps of the recipe's DP-SGD on canary records, in several trainings at once: each is a client of its own.

    A canary's gradient points along a coordinate of its own; what is trained from released parts alone (a generator)
    releases nothing more and is left out.
    """
    algorithm, canaries, runs, rng = game.algorithm, game.canaries, game.runs, game.rng
    rules = [phase.rule for phase in algorithm.plan if phase.rule.release is not None]
    release = rules[0].release if rules else None
    clip, expected = (getattr(rules[0], name, None) if rules else None for name in ("clip", "expected_batch"))
    if release is None or clip is None or expected is None:
        raise Incompatible(
            f"{algorithm.name}: no phase of its plan clips and noises the gradients of records"
        )
    inside = rng.at("coins").uniforms(runs * canaries).reshape(runs, canaries) > 0.5
    rows = torch.diag(torch.full((canaries,), LOUD * clip)).expand(runs, -1, -1)
    data = Padded(rows, torch.zeros(runs, canaries, dtype=torch.int64), torch.ones(runs, canaries) > 0)
    data = _only(data, torch.from_numpy(inside))
    book = Notebook()
    phases = [Phase("pointing", {"pointer": book}, rule) for rule in rules]
    params = {"pointer": torch.zeros(runs, canaries)}
    scores = np.zeros((runs, canaries))
    turns = algorithm.schedule.participations(algorithm.rounds)
    after_round = game.counter(len(phases) * turns)
    for number, phase in enumerate(phases * turns):
        train(Pointer(canaries), phase, params, {}, data, np.arange(runs), rng.at("round", number))
        for gradient in book.gradients:
            scores += log_likelihood(gradient * expected / clip, game.event, swapped=False)
        book.gradients.clear()
        after_round()
    return CanaryObservations(inside.ravel(), scores.ravel(), runs)


def _only(data: Padded, inside: Tensor) -> Padded:
    """The rows that are in, first, and no trace of the others: a rule draws from the first rows of each client."""
    order = torch.argsort(~inside, dim=1, stable=True)
    mask = torch.gather(inside, 1, order)
    rows = torch.gather(data.x, 1, order[..., None].expand_as(data.x)) * mask[..., None]
    return Padded(rows, data.y, mask)
