"""CALM (Zhang, Wang, Li, He and Chen 2018) for rows: each client answers one small view with all of its budget.

The fair baseline for local privacy: no budget is divided over columns, as RAPPOR-based systems do. A view holds the
label, if there is one, and as many random columns as tell most at this epsilon; answers are randomized response over
the view's cells. A client answers for its first row, and the guarantee is for all of its data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd
import torch
from dp_accounting import DpEvent, NonPrivateDpEvent

from fedsynth.data.clients import Clients
from fedsynth.data.encode import TableEncoding
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.models.latent_classes import LatentClasses, fit_latent_classes
from fedsynth.privacy.events import EpsilonDeltaDpEvent
from fedsynth.privacy.ledger import Entry, Ledger
from fedsynth.privacy.mechanism import Unit
from fedsynth.privacy.pairs import Adjacency
from fedsynth.privacy.response import Views, best_view
from fedsynth.research.baselines.codes import Codes
from fedsynth.research.baselines.marginal_network import MarginalNetwork
from fedsynth.rng import Rng

_AT_ONCE = 2000  # clients
_FITTING = 800  # steps of fitting latent classes


class Codebook(Protocol):
    """The interface of a model that draws rows of codes."""

    def sample(self, rows: int, rng: Rng) -> np.ndarray:
        """Codes [rows, columns]."""
        ...


@dataclass(frozen=True)
class Classes:
    """A latent class model as a source of codes."""

    model: LatentClasses

    def sample(self, rows: int, rng: Rng) -> np.ndarray:
        """Codes [rows, columns]."""
        return self.model.sample(rows, rng.at("rows").torch_generator()).numpy()


@dataclass(frozen=True)
class TableNetwork:
    """A model of the codes of a table."""

    codes: Codes
    network: Codebook

    def sample(self, rows: int, rng: Rng) -> pd.DataFrame:
        """Synthetic rows."""
        x, y = self.codes.decode(self.network.sample(rows, rng), rng.at("decode"))
        return TableEncoding(self.codes.schema).decode(x, y)


def first_rows(clients: Clients, codes: Codes) -> np.ndarray:
    """One row of codes a client, -1 where it has none."""
    encoded = codes.encode(clients.x, clients.y)
    some = clients.sizes > 0
    rows = np.full((len(clients), len(codes.sizes)), -1, dtype=np.int64)
    rows[some] = encoded[clients.offsets[:-1][some]]
    return rows


def checked(schema: Schema, epsilon: float | None, name: str) -> float:
    """The budget of a client, infinite for none; tables only."""
    if schema.kind != "table":
        raise BadInput(f"kind={schema.kind}: {name} makes tables")
    if epsilon is not None and not 0 < epsilon < math.inf:
        raise BadInput(f"epsilon={epsilon}: expected a positive number, or None for no privacy")
    return math.inf if epsilon is None else epsilon


def pay(ledger: Ledger, name: str, clients: int, epsilon: float) -> None:
    """One line for each client, before anything leaves it."""
    event: DpEvent = NonPrivateDpEvent() if math.isinf(epsilon) else EpsilonDeltaDpEvent(epsilon)
    ledger.append_all(
        [
            Entry(event, f"{name} answer", str(client), "client", "local", run=name)
            for client in range(clients)
        ]
    )


@dataclass(frozen=True)
class Calm:
    """The settings: columns beside the label in a view (0: as many as tell most), and what makes an edge.

    With `latent_classes`, so many of them are fitted in place of the network.
    """

    columns: int = 0
    latent_classes: int = 0
    surprise: float = 4.0
    bins: int = 8
    unit: Unit = "client"
    adjacency: Adjacency = "replace-one"

    def fit(
        self, clients: Clients, schema: Schema, epsilon: float | None, rng: Rng, ledger: Ledger
    ) -> TableNetwork:
        """Learn from the clients at `epsilon` for each of them (None: the truth)."""
        budget = checked(schema, epsilon, "calm")
        codes = Codes(schema, self.bins)
        always = (len(codes.sizes) - 1,) if schema.classes else ()
        others = len(codes.sizes) - len(always)
        drawn = min(others, self.columns or best_view(codes.sizes, always, min(budget, 12.0)))
        if not always:
            drawn = min(others, max(2, drawn))
        views = Views(codes.sizes, always, drawn, budget)
        wire = views.wire(len(codes.sizes))
        rows = torch.from_numpy(first_rows(clients, codes)).to(torch.float32)
        pay(ledger, "calm", len(clients), budget)
        total = wire.zero()
        for ids in np.array_split(np.arange(len(clients)), max(1, len(clients) // _AT_ONCE)):
            messages = views.privatize(rows[ids], {}, rng.at("answers"), ids)
            total = wire.add(total, messages, torch.ones(len(ids)))
        if self.latent_classes:
            draw = rng.at("classes").torch_generator()
            mixture = fit_latent_classes(
                codes.sizes, *wire.pairs(total), self.latent_classes, bool(always), _FITTING, draw
            )
            return TableNetwork(codes, Classes(mixture))
        network = MarginalNetwork(
            codes.sizes,
            lambda first, second: wire.joint(total, first, second),
            wire.answered(total),
            wire.honest(total),
            bool(schema.classes),
            self.surprise,
        )
        return TableNetwork(codes, network.fit())
