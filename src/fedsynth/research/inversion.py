"""An attack by the server on a client's update: rows rebuilt from gradients, in closed form.

Over a clear transport the server sees each client's update before any noise. For a client with one row that update
is the row in another spelling. The gradient of a first linear layer is (error times input) beside (error), so their
ratio is the input (Phong et al. 2018); the gradient of the last bias is what was predicted minus what was true, so
that in each column the true category is the one that was pushed up (Zhao, Mopuri and Bilen 2020). A clip scales both
alike and hides nothing. What a transport that opens sums alone shows, and what is released, is the noisy sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsynth.assess.scores.score import Goal, Score, failure
from fedsynth.data.clients import Clients
from fedsynth.data.encode import Block
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.state import ServerState
from fedsynth.rng import Rng

NAMES = ("update inversion: single updates", "update inversion: noisy sum")
MOST_CLIENTS = 200
_GOAL: Goal = "min"


def inversion_attack(algorithm: Algorithm, rows: Clients, blocks: tuple[Block, ...], rng: Rng) -> list[Score]:
    """How many columns of a client's row the server reads off its update, and off the noisy sum.

    Each of `rows` (at most 200) is the only row of a client that takes part in the first round. Both scores are
    shares of columns that are right; the detail's `baseline` is what naming each column's most frequent value
    gives, without seeing anything. Where the transport shows no single update the first score says what it would be
    if it did, and `visible` is false.
    """
    try:
        check(algorithm, rows)
        seen = first_round(algorithm, rows, MOST_CLIENTS, rng)
    except (BadInput, Incompatible) as error:
        return [failure(name, str(error), goal=_GOAL) for name in NAMES]
    truth = choices(seen.rows.x, blocks)
    usual = torch.stack([column.mode().values for column in truth.T])
    detail: dict[str, Any] = {
        "baseline": _share(usual.expand_as(truth), truth),
        "clients": len(truth),
        "visible": seen.visible,
    }
    from_sum = read_rows(algorithm, seen.noisy[None], blocks).expand_as(truth)
    return [
        Score(NAMES[0], _share(read_rows(algorithm, seen.messages, blocks), truth), _GOAL, detail=detail),
        Score(NAMES[1], _share(from_sum, truth), _GOAL, detail={**detail, "visible": True}),
    ]


def check(algorithm: Algorithm, rows: Clients) -> None:
    """Refuse what the closed forms do not know."""
    if rows.x.dim() != 2:
        raise Incompatible("the closed form is for tables: images would need a search")
    if "decoder" not in algorithm.shared or algorithm.wire.kind != "real":
        raise Incompatible(
            f"{algorithm.name}: the closed form needs a decoder whose update is sent as numbers"
        )
    if rows.rows < 2:
        raise BadInput(f"{rows.rows} rows: expected at least 2")


def read_rows(algorithm: Algorithm, updates: Tensor, blocks: tuple[Block, ...]) -> Tensor:
    """The entry of each column [clients, columns], read off updates [clients, dim]."""
    start, pieces = 0, {}
    for part in algorithm.shared:
        layout = algorithm.layouts[part]
        pieces[part] = layout.split(updates[:, start : start + layout.size])
        start += layout.size
    if "encoder" in pieces:
        return choices(_first_input(list(pieces["encoder"].values())), blocks)
    pushed = list(pieces["decoder"].values())[-1]
    sizes = [block.size for block in blocks]
    return torch.stack([piece.argmax(1) for piece in pushed.split(sizes, dim=1)], dim=1)


def _first_input(tensors: list[Tensor]) -> Tensor:
    """The input of the first layer [clients, width], by the unit whose bias moved most."""
    weight, bias = tensors[0], tensors[1]
    unit = bias.abs().argmax(dim=1)
    row = torch.arange(len(bias))
    moved = bias[row, unit]
    return weight[row, unit] / torch.where(moved == 0, 1.0, moved)[:, None]


def choices(x: Tensor, blocks: tuple[Block, ...]) -> Tensor:
    """The entry of each column in encoded rows, [rows, columns]."""
    return torch.stack([x[:, b.start : b.start + b.size].argmax(1) for b in blocks], dim=1)


@dataclass(frozen=True)
class FirstRound:
    """The first messages of clients with one row each, as a server sees them, and the true rows."""

    rows: Clients
    start: ServerState
    messages: Tensor  # [clients, dim]: each client's own update, before any noise of the server
    noisy: Tensor  # [dim]: what is released of their sum
    visible: bool  # whether the transport shows single updates


def first_round(algorithm: Algorithm, rows: Clients, most: int, rng: Rng) -> FirstRound:
    """The first round, in which each of at most so many rows is a client of its own."""
    count = min(rows.rows, most)
    single = Clients(rows.x[:count], rows.y[:count], np.arange(count + 1, dtype=np.int64))
    state, ids = algorithm.init(rng.at("init")), np.arange(count)
    blank = algorithm.blank(state).items()
    memory = {name: value.expand(count, *value.shape).clone() for name, value in blank}
    messages, _ = algorithm.client_round(state, memory, single.gather(ids), ids, rng.at("client"))
    total = algorithm.transport.zero(algorithm.wire)
    total = algorithm.transport.absorb(algorithm.wire, total, messages, torch.ones(count))
    opened = algorithm.transport.open(algorithm.wire, total)
    noisy, _ = algorithm.mechanism.estimate(opened, 1.0, state.mechanism, rng.at("estimate"))
    shown = not (algorithm.transport.blind or algorithm.transport.needs_cohort)
    return FirstRound(single, state, messages, noisy.float(), shown)


def _share(guessed: Tensor, truth: Tensor) -> float:
    return float((guessed == truth).double().mean())
