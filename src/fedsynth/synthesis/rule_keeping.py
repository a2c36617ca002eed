"""Encoded rows that break a constraint, drawn again with the same label, and at last repaired."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedsynth.data.rules import independent
from fedsynth.data.table import Table, valid_rows
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

_REDRAWS = 20
_DONORS = 2000  # rows drawn for repairs where too few of the sample can be used

Draw = Callable[[Tensor, Rng], Tensor]


def keep_rules(encoding: Table, x: Tensor, y: Tensor, draw: Draw, rng: Rng) -> tuple[Tensor, Tensor]:
    """The rows with those that break a constraint drawn anew; what is left over is repaired."""
    schema = encoding.schema
    broken = ~valid_rows(schema, encoding.numbers(x, y))
    for attempt in range(_REDRAWS):
        if not broken.any():
            return x, y
        places = torch.from_numpy(np.flatnonzero(broken))
        x[places] = draw(y[places], rng.at("redraw", attempt))
        broken[places] = ~valid_rows(schema, encoding.numbers(x[places], y[places]))
    return _repaired(encoding, x, y.clone(), draw, rng.at("repair")) if broken.any() else (x, y)


def _repaired(encoding: Table, x: Tensor, y: Tensor, draw: Draw, rng: Rng) -> tuple[Tensor, Tensor]:
    """In each row that breaks a rule, the values of all columns tied by rules are taken from a row that keeps them."""
    pool_y = y[torch.from_numpy(rng.at("labels").numpy().integers(0, len(y), _DONORS))]
    pool_x = draw(pool_y, rng.at("donors"))
    for number, group in enumerate(independent(encoding.schema.rules)):
        wrong = np.flatnonzero(~_keeping(encoding, x, y, group))
        if not len(wrong):
            continue
        all_x, all_y = torch.cat([x, pool_x]), torch.cat([y, pool_y])
        donors = np.flatnonzero(_keeping(encoding, all_x, all_y, group))
        if not len(donors):
            rules = "; ".join(rule.text for rule in encoding.schema.rules if group & set(rule.columns))
            raise BadInput(
                f"constraints {rules!r}: no synthetic row keeps them all; train longer or with more privacy budget, or "
                "take one out of the schema"
            )
        chosen = _donors(donors, all_y.numpy(), y.numpy()[wrong], rng.at("choice", number))
        for block in encoding.blocks:
            if block.column in group:
                part = slice(block.start, block.start + block.width)
                x[wrong, part] = all_x[chosen, part]
        if encoding.schema.label in group:
            y[wrong] = all_y[chosen]
    return x, y


def _keeping(encoding: Table, x: Tensor, y: Tensor, group: set[str]) -> np.ndarray:
    """Which rows keep the rules of a group of columns."""
    return valid_rows(encoding.schema, encoding.numbers(x, y), group)


def _donors(donors: np.ndarray, labels: np.ndarray, wanted: np.ndarray, rng: Rng) -> np.ndarray:
    """A donor for each row, of the same label where there is one."""
    draw = rng.numpy()
    chosen = draw.choice(donors, len(wanted))
    for label in np.unique(wanted):
        alike = donors[labels[donors] == label]
        if len(alike):
            rows = wanted == label
            chosen[rows] = draw.choice(alike, int(rows.sum()))
    return chosen
