"""What an experiment trains, a recipe or a baseline, as one thing: how to draw from it, its settings, what it cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedsynth.data.clients import RawClients, encode_clients
from fedsynth.data.schema import Schema
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.statement import Statement, statement
from fedsynth.research.baselines.registry import Baseline as System
from fedsynth.rng import Rng
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer
from fedsynth.synthesis.training import Watch

_DELTA = 1e-9  # of baselines whose epsilon is pure


@dataclass(frozen=True)
class Fitted:
    """A finished training: `draw(rows, seed)` gives rows, or images with their labels."""

    draw: Callable[[int, int | None], Any]
    settings: dict[str, Any]
    privacy: dict[str, Any]


Fit = Callable[[Request, RawClients, Schema, Watch | None], Fitted]


def fit_recipe(request: Request, clients: RawClients, schema: Schema, watch: Watch | None) -> Fitted:
    """Train the recipe that the request names; a seeded run shows what it would cost with the system's noise."""
    made = Synthesizer.of(request, schema).fit(clients, watch=watch)
    planned = made.history[-1]["epsilon"] if made.history and request.private else None
    spent = planned if made.privacy.epsilon is None else made.privacy.epsilon
    privacy = {**_told(made.privacy, made.request), "epsilon": spent}
    return Fitted(lambda rows, seed: made.sample(rows, seed=seed), plain(made.request.arguments), privacy)


@dataclass(frozen=True)
class FitBaseline:
    """Trains a baseline instead; `settings` are what its row says."""

    system: System
    settings: Mapping[str, Any]

    def __call__(self, request: Request, clients: RawClients, schema: Schema, watch: Watch | None) -> Fitted:
        """Train at the request's epsilon; with a seed, as a simulation."""
        ledger, system = Ledger(None), self.system
        held = encode_clients(clients, schema)
        learned = system.fit(held, schema, request.epsilon, Rng(request.seed), ledger)
        told = statement(
            ledger,
            delta=request.delta or _DELTA,
            adjacency=system.adjacency,
            unit=system.unit,
            seeded=request.seed is not None,
        )
        privacy = {**_told(told, request), "epsilon": request.epsilon}
        return Fitted(lambda rows, seed: learned.sample(rows, Rng(seed)), dict(self.settings), privacy)


def _told(told: Statement, request: Request) -> dict[str, Any]:
    return {
        "private": request.private,
        "unit": told.unit,
        "trust": told.trust,
        "adjacency": told.adjacency,
        "sampling": told.sampling,
        "epsilon": None,
        "delta": request.delta,
        "accountant": told.accountant,
        "simulation": told.simulation,
    }


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON has them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
