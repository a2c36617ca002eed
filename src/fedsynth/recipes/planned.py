"""The part of a recipe that `fedsynth plan` needs: its default settings, and how it would run on a budget."""

from __future__ import annotations

from typing import Any

from fedsynth.errors import FedsynthError
from fedsynth.privacy.planning import Population, Settings
from fedsynth.recipes.budget import Target, fit_budget
from fedsynth.recipes.registry import Recipe
from fedsynth.recipes.task import Task

NOISE = "noise_multiplier"  # in a planned run; None where a recipe adds none


def settings_of(recipe: Recipe, task: Task) -> Settings:
    """Settings of a plan, from the recipe's default arguments."""
    defaults = {name: argument.default for name, argument in recipe.arguments().items()}
    cohort, rate = recipe.value_of("cohort", defaults), recipe.value_of("rate", defaults)
    rate = cohort / task.clients if cohort else 1.0 if rate is None else rate
    return Settings(
        recipe.name,
        min(1.0, rate),
        recipe.value_of("rounds", defaults),
        defaults.get("epochs", 1),
        defaults.get("batch_size") or defaults.get("generator_batch") or task.public_records(),
        recipe.pooled,
        offers=recipe.offers,
    )


def planned_run(recipe: Recipe, task: Task, people: Population) -> dict[str, Any]:
    """Compute noise and rounds with the very objects that would run, the class balance included."""
    changes = recipe.with_role("records", people.records)
    try:
        target = Target(people.epsilon, people.delta)
        algorithm, values = fit_budget(recipe, task, recipe.values(changes), target)
    except FedsynthError as error:
        return {"recipe": recipe.name, "problem": str(error)}
    return {
        "recipe": recipe.name,
        "unit": recipe.unit,
        "rounds": algorithm.rounds,
        "cohort": algorithm.schedule.expected,
        "noise_multiplier": recipe.value_of("noise", values),
        "parameters": algorithm.dim - (algorithm.loss_share > 0),
    }
