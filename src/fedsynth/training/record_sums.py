"""One step of DP-SGD over sites that pool nothing: each sums its records' clipped gradients, only the sum opens.

What a server learns is what DP-SGD on the pooled records would have published, for the same noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fedsynth.data.clients import Padded
from fedsynth.models.model import Batch, Model, Objective
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.privacy.mechanism import State
from fedsynth.rng import Rng, expand_normal
from fedsynth.training.plan import loss_of
from fedsynth.training.rule import Loss, Trained

_AT_ONCE = 2**22  # numbers in a stack of record gradients


@dataclass(frozen=True)
class RecordSums:
    """The message of a site that trains no model of its own: the noisy integers of its records' summed gradients.

    The mechanism draws the records, each by its own coin, clips each record's downhill direction together with its
    loss, and rounds it; the site's share of the noise is added once. Every part that sees a record must be among
    `parts`: the guarantee is for one record. Where the mechanism protects clients (patients of a site, by a column), a
    contribution is that of all of a client's records, by their mean gradient.
    """

    objective: str
    parts: tuple[str, ...]
    mechanism: DistributedGaussian
    report: float  # the loss coordinate's share of the clip, in the clip's units

    together: ClassVar[bool] = False  # each site's message has noise of its own

    def messages(
        self, model: Model, sent: Mapping[str, Tensor], data: Padded, ids: np.ndarray, state: State, rng: Rng
    ) -> Tensor:
        """The messages [sites, length] of these sites."""
        mechanism = self.mechanism
        loss, goal = loss_of(model, self.objective), model.objectives[self.objective]
        length, device = mechanism.rotation.length, data.mask.device
        trained = {part: sent[part] for part in self.parts}
        fixed = {part: flat for part, flat in sent.items() if part not in self.parts}
        if mechanism.unit == "client":
            keys = rng.at("train").keys(ids, device)
            drawn = expand_normal(keys, (data.mask.shape[1], *goal.noise))
            batch = {"x": data.x, "y": data.y, "weight": data.mask.to(drawn.dtype)}
            each = self._contributions(loss, trained, fixed, batch, drawn, goal)
            return mechanism.privatize(each * data.mask.any(1)[:, None], state, rng.at("privatize"), ids)
        at_once = max(1, _AT_ONCE // mechanism.dim)
        totals = torch.zeros(len(ids), length, dtype=torch.float64, device=device)
        for place, site in enumerate(ids.tolist()):
            own = rng.at("site", site)
            rows = mechanism.draw(int(data.mask[place].sum()), own.at("batch"))
            order = torch.argsort(~data.mask[place], stable=True)  # the rows that count come first
            index = order[torch.from_numpy(rows).to(device)]
            x, y = data.x[place][index], data.y[place][index]
            drawn = expand_normal(own.at("train").keys([site], device), (len(rows), *goal.noise))[0]
            for start in range(0, len(rows), at_once):
                part = slice(start, start + at_once)
                batch = {"x": x[part].unsqueeze(1), "y": y[part].unsqueeze(1)}
                batch["weight"] = torch.ones_like(batch["y"], dtype=drawn.dtype)
                each = self._contributions(loss, trained, fixed, batch, drawn[part].unsqueeze(1), goal)
                streams = own.at("rows", start)
                uniforms = partial(_uniforms, (len(each), length), device, streams)
                owners = np.full(len(each), site)
                totals[place] += mechanism.rounded(each, state, streams, owners, uniforms).sum(0)
        return mechanism.noised(totals, rng, ids)

    def _contributions(
        self, loss: Loss, trained: Trained, fixed: Trained, batch: Batch, noise: Tensor, goal: Objective
    ) -> Tensor:
        """Each unit's direction downhill and its loss, [units, dim], from its rows in a batch [units, rows, ...]."""
        each = vmap(grad_and_value(loss), in_dims=(None, None, 0, 0))
        gradients, losses = each(trained, fixed, batch, noise)
        reported = (losses.clamp(goal.least, goal.bound) - goal.least) * (
            self.report / (goal.bound - goal.least)
        )
        return torch.cat([*(-gradient for gradient in gradients.values()), reported[:, None]], dim=1)


def _uniforms(shape: tuple[int, int], device: torch.device, rng: Rng, attempt: int) -> Tensor:
    """Numbers that decide which way to round: many, from a generator that is fast and has a seed of 256 bits.

    Which row takes which numbers depends on the records that were drawn, so nobody may be able to guess the seed.
    """
    drawn = rng.at("round", attempt).numpy().random(shape, dtype=np.float32)
    return torch.from_numpy(drawn).to(device)
