"""Membership inference against a run's own recipe: its settings on fewer rows, many times over, within a time limit.

What decides how much leaks is kept as the run had it: noise, clip, sampling rate, rounds. What is smaller is the table
(1,000 rows) and with it the number of clients or the batch. A model that would take too long is made narrower, which
changes no claim, and the scores say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.assess.attacks.attack import attack_failures
from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.assess.attacks.membership import NAME, membership_attack
from fedsynth.assess.attacks.shadow import Shadows, stacked_runs, train_together
from fedsynth.assess.scores.score import Score
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, FedsynthError
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.request import Request

RUNS, SIZE, TARGETS = 100, 1_000, 20
MINUTES = 10.0
_FEWEST_RUNS = 32
_NARROWEST = 8
_CLIENTS = (10, 50)  # of a shadow federation, at least and at most
_SMALLEST_BATCH = 8
_PROBED = 8  # runs that are timed
_PROBED_ROUNDS = 3
Tell = Callable[[str], None]  # what is being done


@dataclass(frozen=True)
class ShadowGame:
    """The recipe of a run, as its recipe.toml tells it, and how long its shadows may train."""

    request: Request
    clients: int | None = None  # of the run, where the request does not say
    runs: int = RUNS
    size: int = SIZE
    targets: int = TARGETS
    minutes: float = MINUTES

    @classmethod
    def of_run(cls, folder: Path | str, real: pd.DataFrame, *, minutes: float = MINUTES) -> ShadowGame:
        """The game against a finished run; `real` are its training rows, which tell how many clients it had."""
        place = Folder(folder)
        request = Request.from_toml(place.read_recipe())
        schema = Schema.load(place.schema)
        column = request.client_column or schema.client
        owned = column is not None and column in real.columns
        return cls(request, int(real[column].nunique()) if owned else None, minutes=minutes)

    def shadows(self, schema: Schema, rows: int, size: int) -> Shadows:
        """Set up training on `size` rows, where the run had `rows`: the same shares of them in each cohort or batch."""
        recipe, share = recipe_named(self.request.recipe), size / rows
        values = recipe.values(self.request.arguments)
        clients = 1
        if recipe.pooled:
            values["batch_size"] = max(_SMALLEST_BATCH, round(values["batch_size"] * share))
        else:
            whole = self.request.clients or self.clients or rows
            clients = int(np.clip(round(whole * share), *_CLIENTS))
            if cohort := recipe.value_of("cohort", values):
                values |= recipe.with_role("cohort", max(1, round(cohort * clients / whole)))
        if recipe.value_of("records", values):
            values |= recipe.with_role("records", size)
        request = self.request
        return Shadows(request.recipe, schema, values, clients, request.private, request.unit, request.trust)

    def play(
        self,
        real: pd.DataFrame,
        schema: Schema,
        *,
        ceiling: Ceiling | None = None,
        seed: int = 0,
        tell: Tell | None = None,
    ) -> list[Score]:
        """The attack's scores; `ceiling` is used where the releases of the shadows have none of their own."""
        size = min(self.size, len(real) // 2)
        try:
            full = self.shadows(schema, len(real), size)
            if tell:
                tell("timing shadow generators")
            shadows, runs, seconds = self._within_limit(full, real, size)
        except FedsynthError as error:
            return attack_failures(NAME, str(error))
        began = time.perf_counter()
        watched = replace(shadows, watch=_progress_of(runs, tell))
        scores = membership_attack(
            real,
            schema,
            watched,
            runs=runs,
            size=size,
            targets=self.targets,
            ceiling=_own_ceiling(shadows) or ceiling,
            seed=seed,
        )
        more = {
            "recipe": shadows.recipe,
            "clients": shadows.clients,
            "narrowed": _narrowed(full.values, shadows.values),
            "seconds_expected": round(seconds, 1),
            "seconds": round(time.perf_counter() - began, 1),
        }
        return [replace(score, detail={**score.detail, **more}) for score in scores]

    def _within_limit(self, shadows: Shadows, real: pd.DataFrame, size: int) -> tuple[Shadows, int, float]:
        """Narrower layers, then fewer runs, until the time is enough; refused where it cannot be."""
        limit = 60 * self.minutes
        each = seconds_each(shadows, real, size)
        while each * self.runs > limit:
            hidden = shadows.values.get("hidden") or ()
            if not hidden or max(hidden) // 2 < _NARROWEST:
                break
            narrower = tuple(max(_NARROWEST, width // 2) for width in hidden)
            shadows = replace(shadows, values={**shadows.values, "hidden": narrower})
            each = seconds_each(shadows, real, size)
        runs = min(self.runs, int(limit / each))
        if runs < min(_FEWEST_RUNS, self.runs):
            raise BadInput(
                f"{_FEWEST_RUNS} shadow generators of {shadows.recipe} would train for about "
                f"{_FEWEST_RUNS * each / 60:.0f} minutes here, {self.minutes:g} are allowed; allow more with "
                "--shadow-minutes, or rely on fedsynth audit, which attacks the noise itself"
            )
        return shadows, runs, runs * each


def seconds_each(shadows: Shadows, real: pd.DataFrame, size: int) -> float:
    """How long one shadow trains in a stack: its start and all its rounds, from a few of them."""
    algorithm = shadows.algorithm
    count = min(_PROBED, stacked_runs(algorithm))
    runs = [shadows.deal(real.iloc[:size], Rng(0).at(number)) for number in range(count)]

    def seconds(rounds: int) -> float:
        began = time.perf_counter()
        train_together(replace(algorithm, rounds=rounds), runs, Rng(0).at("probe", rounds))
        return time.perf_counter() - began

    seconds(1)  # warms up
    short, long = seconds(1), seconds(1 + _PROBED_ROUNDS)
    each_round = max(0.0, long - short) / _PROBED_ROUNDS
    return (short + (algorithm.rounds - 1) * each_round) / count


def _own_ceiling(shadows: Shadows) -> Ceiling | None:
    """The ceiling of the shadows' releases, from all of their privacy profile; None where it is not known."""
    try:
        return shadows.ceiling
    except FedsynthError:
        return None


def _narrowed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[int]] | None:
    """The widths of the run's hidden layers and of the shadows', where they differ."""
    if before.get("hidden") == after.get("hidden"):
        return None
    return {"run": list(before["hidden"]), "shadows": list(after["hidden"])}


def _progress_of(runs: int, tell: Tell | None) -> Callable[[float], None] | None:
    if tell is None:
        return None
    return lambda share: tell(f"shadow generators, {int(share * runs)} of {runs}")
