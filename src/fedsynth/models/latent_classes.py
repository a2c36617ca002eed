"""A mixture of independent columns, fitted to noisy distributions of every two columns.

A latent class model says that columns are independent once the (unseen) class is known. Its distribution of two columns
is a sum over classes, so it can be fitted to estimates of those alone, each weighed by how well it is known. Few
classes share what all pairs of columns tell, where a tree would keep some pairs and drop the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_LEARNING_RATE = 0.05
_SPREAD = 0.5  # of the classes at the start, in logits


@dataclass(frozen=True)
class LatentClasses:
    """Shares of the classes [classes], and for each column the chances [classes, size]."""

    shares: Tensor
    chances: tuple[Tensor, ...]

    def sample(self, rows: int, draw: torch.Generator) -> Tensor:
        """Codes [rows, columns]."""
        member = torch.multinomial(self.shares, rows, replacement=True, generator=draw)
        columns = [torch.multinomial(each[member], 1, generator=draw) for each in self.chances]
        return torch.cat(columns, 1)


def fit_latent_classes(
    sizes: Sequence[int],
    single: Tensor,
    pairs: Tensor,
    precision: Tensor,
    classes: int,
    label: bool,
    steps: int,
    draw: torch.Generator,
) -> LatentClasses:
    """The most likely mixture, by Adam.

    `single` [categories] are the columns' distributions side by side, `pairs` [categories, categories] the joint ones,
    `precision` of the same shape their inverse variances, 0 where nothing is known (and within a column). With `label`
    the last column is a label: each latent class has one value of it, and is a variation of all rows with that value.
    Errors of the estimates are taken as normal, and the logits of a class as deviating by about 1 from those it varies.
    """
    owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(list(sizes)))
    columns = (owner[:, None] == torch.arange(len(sizes))).to(torch.float32)
    values = sizes[-1] if label else 1
    member = torch.arange(max(classes, values)) % values  # the label of each class
    start, balance = _by_label(single, pairs, precision, values, columns)
    fixed = (owner == len(sizes) - 1) & label
    beginning = start[member]
    drawn = torch.randn(beginning.shape, generator=draw) * _SPREAD
    moves = torch.where(fixed, 0.0, drawn).requires_grad_()
    within = torch.zeros(len(member), requires_grad=True)
    optimizer = torch.optim.Adam([moves, within], lr=_LEARNING_RATE)
    known = bool(precision.sum() > 0)
    for step in range(steps if known else 0):
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * (1 - 0.95 * step / steps)
        moved = torch.where(fixed, 0.0, moves)
        chances = _normalised(beginning + moved, columns)
        fitted_pairs = (chances * _shares(within, member, balance)[:, None]).T @ chances
        missed = (precision * (pairs - fitted_pairs).square()).sum() / 2  # each pair stands there twice
        loss = (missed + moved.square().sum()) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    final = beginning + torch.where(fixed, 0.0, moves) if known else beginning
    chances = _normalised(final, columns).detach()
    return LatentClasses(_shares(within, member, balance).detach(), chances.split(list(sizes), dim=1))


def _by_label(
    single: Tensor, pairs: Tensor, precision: Tensor, values: int, columns: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits of every column given each value of the label [values, categories], and the label's balance."""
    if values == 1:
        return torch.log(single.clamp(min=1e-4))[None], torch.ones(1)
    balance = single[-values:].clamp(min=1e-3)
    balance = balance / balance.sum()
    joint, worth = pairs[-values:], precision[-values:]
    spread = torch.where(worth > 0, 1 / worth.clamp(min=1e-9).sqrt(), 0.0)
    known = torch.where(worth > 0, torch.maximum(joint, spread / 2), single * balance[:, None])
    known = known.clamp(min=1e-5)
    conditional = known / ((known @ columns) @ columns.T)
    conditional[:, -values:] = torch.eye(values).clamp(min=1e-6)
    return torch.log(conditional), balance


def _shares(within: Tensor, member: Tensor, balance: Tensor) -> Tensor:
    """Shares of the classes: those of one label share its part of the balance."""
    raised = within.exp()
    same = (member[:, None] == member[None, :]).to(raised.dtype)
    return raised / (same @ raised) * balance[member]


def _normalised(logits: Tensor, columns: Tensor) -> Tensor:
    """Chances that sum to one within each column."""
    raised = logits.exp().clamp(min=1e-12)
    return raised / ((raised @ columns) @ columns.T)
