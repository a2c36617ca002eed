"""All attacks on a released table in one call, each beside what the claim allows."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from fedsynth.assess.attacks.attribute import attribute_attack
from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.assess.attacks.density import density_attack
from fedsynth.assess.attacks.distance import Attacked, nearest_neighbor_attack
from fedsynth.assess.scores.score import Score
from fedsynth.data.schema import Schema
from fedsynth.privacy.statement import Statement


@dataclass(frozen=True)
class Claim:
    """The privacy claim of the release that is attacked."""

    epsilon: float
    delta: float
    adjacency: str = "add-remove"

    @classmethod
    def of(cls, statement: Statement) -> Claim | None:
        """The claim of a privacy statement; None where it claims nothing."""
        if statement.epsilon is None or statement.delta is None:
            return None
        return cls(statement.epsilon, statement.delta, statement.adjacency)

    @property
    def ceiling(self) -> Ceiling:
        """The ceiling for telling a row that was in from one that was not: data that differ by replacing one.

        >>> Claim(1.0, 0.0).ceiling == Claim(2.0, 0.0, "replace-one").ceiling
        True
        """
        return Ceiling.of(self.epsilon, self.delta, swapped=self.adjacency != "replace-one")


def table_attacks(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    holdout: pd.DataFrame,
    schema: Schema,
    *,
    claim: Claim | None = None,
    seed: int = 0,
) -> list[Score]:
    """Closest record, density ratio and attribute inference; `holdout` are real rows that no generator saw.

    An attack that cannot be run has scores that say why. `attack_curves` turns the scores into what a plot needs;
    membership inference with shadow generators (membership.py) takes longer and is called by itself.
    """
    table = Attacked(real, synthetic, holdout, schema, None if claim is None else claim.ceiling, seed)
    return [*nearest_neighbor_attack(table), *density_attack(table), *attribute_attack(table)]
