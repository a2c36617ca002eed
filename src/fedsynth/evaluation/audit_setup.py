"""What is audited: a recipe by name, or the settings of a finished run, on a small federation of made-up rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.evaluation.audit import Audit, audit
from fedsynth.evaluation.canary import Tell
from fedsynth.evaluation.local_audit import audit_local, is_local
from fedsynth.federation.algorithm import Algorithm
from fedsynth.privacy.statement import Statement, worded
from fedsynth.recipes.budget import Target, fit_budget
from fedsynth.recipes.registry import Recipe, recipe_named
from fedsynth.rng import Rng
from fedsynth.synthesis.release import known_clients
from fedsynth.synthesis.released_files import checked_run, renewing

ORDINARY = 20  # clients besides the canaries
_USUAL_RECORDS = 10_000
_USUAL_CLIENTS = {
    "client": 1000,
    "record": 10,
}  # of a recipe: participants, or the sites that hold their records
_WIDTHS = (16, 32, 64, 128, 256, 512)
_MOST_WORK = 1.5e9  # numbers that canaries send in all
EXAMPLE = Schema(
    columns=(
        Column("age", "integer", min=0, max=99),
        Column("weight", "continuous", min=0.0, max=200.0, missing=True),
        Column("region", "categorical", categories=("north", "east", "south", "west")),
        Column("outcome", "binary"),
    ),
    label="outcome",
)
EXAMPLE_TEXT = Schema(kind="text", vocabulary=("the", "a", "is", "to", "and", "of", "."), length=6)


@dataclass(frozen=True)
class Setup:
    """A recipe with its arguments (noise and rounds among them), the schema, and the delta of the claim."""

    recipe: Recipe
    schema: Schema
    values: Mapping[str, Any]
    delta: float
    clients: int | None = None  # of the run, where a fixed cohort was drawn from them

    @classmethod
    def of_recipe(
        cls, name: str, target: Target, arguments: Mapping[str, Any], schema: Schema | None = None
    ) -> Setup:
        """The recipe with noise calibrated to the target; without a schema, a few columns or words stand for any."""
        recipe = recipe_named(name)
        schema = schema or (EXAMPLE_TEXT if recipe.kinds == ("text",) else EXAMPLE)
        values = recipe.values(arguments)
        if "records" in values and not values["records"]:
            values["records"] = _USUAL_RECORDS
        clients = 1 if recipe.pooled else _USUAL_CLIENTS[recipe.unit]
        _, values = fit_budget(recipe, recipe.task(schema, clients), values, target)
        return cls(recipe, schema, values, target.delta, clients)

    @classmethod
    def of_run(cls, folder: Path) -> Setup:
        """The settings of a finished run; its rows are not read."""
        run = checked_run(folder)
        if run.request.target is None:
            raise BadInput(f"{folder}: a run without privacy claims nothing, so there is nothing to audit")
        recipe = recipe_named(run.request.recipe)
        values = recipe.values(run.request.arguments)
        clients = known_clients(run.request, run.ledger)
        return cls(recipe, run.schema, values, run.request.target.delta, clients)

    def check_unit(self, unit: str | None) -> None:
        """Refuse an audit of another unit than the one that is claimed."""
        if unit not in (None, self.recipe.unit):
            covers = "; a client's claim covers each of its records" if self.recipe.unit == "client" else ""
            raise Incompatible(
                f"unit={unit}: {self.recipe.name} claims to protect a {self.recipe.unit}{covers}; leave --unit out"
            )

    def algorithm(self, canaries: int) -> Algorithm:
        """The recipe with its own noise, clip, rate and rounds, on the smallest model that canaries fit in."""
        clients = 1 if self.recipe.pooled else canaries + ORDINARY
        if self.recipe.unit == "record":  # canaries are records: clients take as many turns as in the run
            clients = self.clients or clients
        task = self.recipe.task(self.schema, clients)
        values = {**self.values, "latent": min(4, self.values.get("latent", 4))}
        if values.get("cohort"):
            values["cohort"] = max(1, round(values["cohort"] * clients / (self.clients or clients)))
        known = self.recipe.arguments()
        for size in _WIDTHS:
            values |= {"hidden": (size,), "width": size // 4}
            made = self.recipe.build(task, {name: value for name, value in values.items() if name in known})
            if made.dim > canaries:
                break
        return made

    def run(
        self,
        canaries: int,
        runs: int,
        confidence: float,
        rng: Rng | None = None,
        tell: Tell | None = None,
    ) -> Audit:
        """Audit it; long trainings are repeated less often, so that the work stays bounded."""
        algorithm = self.algorithm(canaries)
        in_the_plan = algorithm.mechanism.release is None
        if is_local(algorithm) and not in_the_plan:
            return audit_local(algorithm, self.delta, copies=canaries * runs, confidence=confidence, rng=rng)
        if not in_the_plan:
            canaries = min(canaries, algorithm.dim - 1)
            share = algorithm.schedule.expected / algorithm.schedule.clients
            work = canaries * share * algorithm.rounds * algorithm.dim
            runs = max(1, min(runs, int(_MOST_WORK / work)))
        return audit(
            algorithm,
            self.schema,
            self.delta,
            canaries=canaries,
            runs=runs,
            confidence=confidence,
            rng=rng,
            tell=tell,
        )


def write_audit(folder: Path, found: Audit) -> Statement:
    """Put the result into the run's privacy.json and into its words."""
    run = checked_run(folder)
    audited = worded(replace(run.statement, audited=found.audited()), run.ledger)
    with renewing(run.folder, run.folder.privacy.name) as path:
        audited.save(path)
    return audited
