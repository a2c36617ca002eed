"""Training the models that stand in for looking: one recipe, one noise, several selections.

All models of an inspection share their settings, so that what differs between them comes from the rows they saw. Their
noise is calibrated together: the budget pays for all of them and for the questions asked before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dp_accounting import DpEvent

from fedsynth.data.clients import Clients
from fedsynth.data.schema import Schema
from fedsynth.errors import BudgetExhausted, Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.state import ServerState
from fedsynth.inspection.population import train_on
from fedsynth.privacy import account
from fedsynth.privacy.mechanism import Charge, When
from fedsynth.recipes.budget import Target, adjacency_of, cost
from fedsynth.recipes.registry import Recipe, recipe_named
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from fedsynth.synthesis.generator import Generator
from fedsynth.synthesis.release import released
from fedsynth.synthesis.request import Request


def unpaid(when: When, charges: list[Charge], ids: np.ndarray) -> None:
    """For models of rows that were made up: nothing is released."""


@dataclass(frozen=True)
class Trainer:
    """Trains the same recipe with the same noise on one selection after the other."""

    recipe: Recipe
    schema: Schema
    task: Task
    values: Mapping[str, Any]
    device: str = "cpu"

    @classmethod
    def of(cls, request: Request, schema: Schema, clients: int) -> Trainer:
        """The trainer of a request, not calibrated yet; refuses recipes that cannot keep a selection secret."""
        recipe = recipe_named(request.recipe)
        unit, trust = recipe.protection(request.unit, request.trust)
        if recipe.pooled or (unit, trust) != ("client", "central"):
            raise Incompatible(
                f"recipe={recipe.name}, unit={unit}, trust={trust}: which rows of a client are selected depends on "
                "its other rows, so only whole clients can be protected, by noise at the server; choose a recipe "
                "with unit=client and trust=central, for example dpd_fvae"
            )
        values = recipe.values(request.arguments)
        if request.rounds is not None:
            values |= recipe.with_role("rounds", request.rounds)
        task = recipe.task(schema, clients, private=request.private, unit=unit, trust=trust)
        return cls(recipe, schema, task, values, request.device)

    def calibrated(self, target: Target | None, models: int, paid: Sequence[DpEvent]) -> Trainer:
        """The trainer whose `models` models cost no more than the target, together with what was paid for."""
        if target is None:
            return self
        adjacency = adjacency_of(self.with_noise(1.0).algorithm(1.0))

        def together(noise: float) -> DpEvent:
            one = cost(self.with_noise(noise).algorithm(1.0))
            return account.compose([*paid, account.repeat(one, models)])

        noise = target.noise_multiplier
        if noise is None:
            noise = account.calibrate(together, target.epsilon, target.delta, adjacency=adjacency)
        spent = account.epsilon(together(noise), target.delta, adjacency=adjacency)
        if spent > target.epsilon * (1 + 1e-6):
            raise BudgetExhausted(
                f"noise_multiplier={noise:g}: {models} models cost epsilon {spent:.4g}, over the {target.epsilon:g} of "
                "this inspection; leave noise_multiplier out, and it is calibrated"
            )
        return self.with_noise(noise)

    def with_noise(self, noise: float) -> Trainer:
        """The same with that much noise."""
        values = {**self.values, **self.recipe.with_role("noise", noise)}
        return Trainer(self.recipe, self.schema, self.task, values, self.device)

    def values_for(self, share: float) -> dict[str, Any]:
        """The recipe's arguments for a selection that about `share` of the clients meet, as a paid-for answer told.

        The server divides by that many clients instead of all, as a longer step; a rule that adapts its steps by
        itself is left alone.
        """
        values = dict(self.values)
        if values.get("server", "momentum") == "momentum" and "server_learning_rate" in values:
            values["server_learning_rate"] = values["server_learning_rate"] / share
        return values

    def algorithm(self, share: float) -> Algorithm:
        """The algorithm for such a selection."""
        return lenient(self.recipe.build(self.task, self.values_for(share)))

    def train(self, clients: Clients, share: float, rng: Rng) -> Generator:
        """The model of clients that were made up: nothing is released."""
        algorithm = self.algorithm(share)
        return self.generator(algorithm, train_on(clients, algorithm, rng, unpaid, self.device))

    def generator(self, algorithm: Algorithm, state: ServerState) -> Generator:
        """The generator of a trained model, with the parts that may be released."""
        return released(algorithm, state, self.schema, self.recipe.name, self.values)


def lenient(algorithm: Algorithm) -> Algorithm:
    """The same for rows that were selected: a class that none of them has is no mistake; a model may get all right."""
    opening = algorithm.opening
    learn: Any = None if opening is None else opening.learn
    if opening is None or not getattr(learn, "classes", ()):
        return algorithm
    return replace(algorithm, opening=replace(opening, learn=replace(learn, classes=())))
