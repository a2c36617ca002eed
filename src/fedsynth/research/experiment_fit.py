"""The system that an experiment trains, a recipe or a baseline: how to draw from it, its settings, what it cost."""

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
    generator = Synthesizer.of(request, schema).fit(clients, watch=watch)
    planned = generator.history[-1]["epsilon"] if generator.history and request.private else None
    spent = planned if generator.privacy.epsilon is None else generator.privacy.epsilon
    privacy = {**_protection(generator.privacy, generator.request), "epsilon": spent}
    return Fitted(
        lambda rows, seed: generator.sample(rows, seed=seed), plain(generator.request.arguments), privacy
    )


@dataclass(frozen=True)
class FitBaseline:
    """Trains a baseline instead; `settings` are what its row says."""

    system: System
    settings: Mapping[str, Any]

    def __call__(self, request: Request, clients: RawClients, schema: Schema, watch: Watch | None) -> Fitted:
        """Train at the request's epsilon; with a seed, as a simulation."""
        ledger, system = Ledger(None), self.system
        encoded = encode_clients(clients, schema)
        learned = system.fit(encoded, schema, request.epsilon, Rng(request.seed), ledger)
        stated = statement(
            ledger,
            delta=request.delta or _DELTA,
            adjacency=system.adjacency,
            unit=system.unit,
            seeded=request.seed is not None,
        )
        privacy = {**_protection(stated, request), "epsilon": request.epsilon}
        return Fitted(lambda rows, seed: learned.sample(rows, Rng(seed)), dict(self.settings), privacy)


def _protection(stated: Statement, request: Request) -> dict[str, Any]:
    return {
        "private": request.private,
        "unit": stated.unit,
        "trust": stated.trust,
        "adjacency": stated.adjacency,
        "sampling": stated.sampling,
        "epsilon": None,
        "delta": request.delta,
        "accountant": stated.accountant,
        "simulation": stated.simulation,
    }


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON has them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
