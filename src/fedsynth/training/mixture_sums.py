"""Messages of sites where pictures are counted in the components of a mixture: sums over their records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.clients import Padded
from fedsynth.models.mixture import Components, MixtureForm, low_first
from fedsynth.models.model import Model
from fedsynth.models.spectrum import whole_spectrum
from fedsynth.privacy.mechanism import Mechanism, State, Unit
from fedsynth.rng import Rng
from fedsynth.training.grid_sums import GridSums, grid_steps, released_sums

_AT_ONCE = 500  # records
_UNIT = (
    2.0**10
)  # whole steps that places are computed in: one record then never changes how another is rounded


@dataclass(frozen=True)
class MixtureSums(GridSums):
    """Each record is counted in the component of its own class that it is nearest to, and in no other.

    There it adds its count, its way from the center, and, where that is asked for, the products of the lowest numbers
    of this way. Whatever the centers are, a record's numbers have at most the norm of the clip in whole grid steps:
    its way is at most a reach long, and half a step for each number is kept free for rounding. They are computed in
    whole numbers, exactly: with equal centers, rounding would decide which is nearest, and with it the number of other
    records that are computed at once.
    """

    form: MixtureForm
    mechanism: Mechanism
    unit: Unit = "record"

    def scale(self, asked: Components) -> tuple[float, float, float]:
        """Return the shares of the clip for a record's count, its way of one reach, and products of two such."""
        room = self.room(asked.spread)
        count, place, products = asked.weights
        return room * count, room * place, room * products

    def room(self, spread: bool) -> float:
        """The share of the clip that is left when every number of a record may be rounded up by half a step."""
        numbers = 1 + self.form.numbers + (self.form.products if spread else 0)
        return 1.0 - math.sqrt(numbers) / (2 * grid_steps(self.mechanism)) - 1e-6

    def messages(
        self,
        model: Model,
        sent: Mapping[str, Tensor],
        data: Padded,
        ids: np.ndarray,
        state: State,
        rng: Rng,
    ) -> Tensor:
        """The messages [sites, answer] of these sites, or the sum of them, [1, answer]."""
        question = self.form.read(sent["question"])
        return released_sums(self.mechanism, self.totals(question, data), ids, rng)

    def totals(self, asked: Components, data: Padded) -> Tensor:
        """The sums over each site's records in grid steps, float64, [sites, answer]."""
        form = self.form
        total = torch.zeros(len(data.mask), form.answer, dtype=torch.float64, device=data.mask.device)
        for site, mask in enumerate(data.mask):
            components = total[site, : form.places].view(-1, 1 + form.numbers)
            products = total[site, form.places :].view(form.groups, form.products)
            for part in mask.nonzero()[:, 0].split(_AT_ONCE):
                group = data.y[site, part].clamp(0, form.groups - 1)
                component, each = self.contributions(asked, data.x[site, part], group)
                components.index_add_(0, group * form.components + component, each[:, : 1 + form.numbers])
                if asked.spread:
                    products.index_add_(0, group, each[:, 1 + form.numbers :])
        return total

    def contributions(self, asked: Components, images: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
        """The component of each record, and its numbers in whole grid steps, float64, [records, numbers]."""
        form, steps = self.form, grid_steps(self.mechanism)
        numbers = low_first(whole_spectrum(images, form.frequencies, _UNIT), form.channels)
        centers = (asked.centers.to(numbers) * _UNIT).round()
        component = torch.zeros_like(group)
        for one in group.unique().tolist():
            chosen = group == one
            component[chosen] = _nearest(numbers[chosen], centers[one])
        way = numbers - centers[group, component]
        count, place, product = self.scale(asked)
        pieces = [torch.full_like(way[:, :1], count), place * _within(way, asked.reach)]
        if asked.spread:
            low = _within(way[:, : form.moments], asked.low_reach)
            row, column = torch.triu_indices(form.moments, form.moments, device=low.device)
            twice = torch.where(row == column, 1.0, math.sqrt(2.0)).to(low)
            pieces.append(product * twice * low[:, row] * low[:, column])
        return component, (steps * torch.cat(pieces, 1)).round()


def _within(way: Tensor, reach: float) -> Tensor:
    """Ways in whole units, as shares of a reach: no longer than 1."""
    lengths = way.long().square().sum(1, keepdim=True).double().sqrt()
    return way / lengths.clamp(min=_UNIT * reach)


def _nearest(numbers: Tensor, centers: Tensor) -> Tensor:
    """The nearest center of each record, the first of equal ones; all are whole numbers, so no distance is rounded."""
    lengths = centers.long().square().sum(1)
    return (lengths - 2 * (numbers @ centers.T).long()).argmin(1)
