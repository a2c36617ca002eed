"""The subject of an audit: a recipe by name, or a finished run's settings, on a small federation of made-up rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsynth.assess.audit.audit import LEAST_CANARIES, Audit, audit
from fedsynth.assess.audit.canary import Tell, rate_and_noise
from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
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
}  # of a recipe: clients, or the sites that hold their records
_WIDTHS = (16, 32, 64, 128, 256, 512)
_MOST_WORK = 1e9  # numbers that canaries send in all
_NOISE_WORK, _ROUNDING_WORK = (
    6.0,
    1.5,
)  # what a number costs for which its sender draws noise, or rounds by chance
EXAMPLE = Schema(
    columns=(
        Column("age", "integer", min=0, max=99),
        Column("weight", "continuous", min=0.0, max=200.0, missing=True),
        Column("region", "categorical", categories=("north", "east", "south", "west")),
        Column("outcome", "binary"),
    ),
    label="outcome",
)
EXAMPLE_IMAGE = Schema.from_dict(
    {
        "version": 1,
        "kind": "image",
        "height": 16,
        "width": 16,
        "channels": 1,
        "label": {"name": "outcome", "categories": ["no", "yes"]},
    }
)
EXAMPLE_TEXT = Schema(kind="text", vocabulary=("the", "a", "is", "to", "and", "of", "."), length=6)
EXAMPLE_LINKED = Schema.from_dict(
    {
        "version": 2,
        "tables": {
            "person": {"id": "person", "columns": [{"name": "sex", "type": "binary"}]},
            "visit": {
                "parent": "person",
                "key": "person",
                "order": "day",
                "columns": [
                    {"name": "day", "type": "integer", "min": 0, "max": 99},
                    {"name": "ward", "type": "binary"},
                ],
            },
        },
    }
)
EXAMPLES = {"table": EXAMPLE, "image": EXAMPLE_IMAGE, "text": EXAMPLE_TEXT, "linked": EXAMPLE_LINKED}


@dataclass(frozen=True)
class Setup:
    """A recipe with its arguments (noise and rounds among them), the schema, and the delta of the claim."""

    recipe: Recipe
    schema: Schema
    values: Mapping[str, Any]
    delta: float
    clients: int | None = None  # of the run, where a fixed cohort was drawn from them
    unit: str | None = None  # None: the recipe's usual one
    trust: str | None = None

    @classmethod
    def of_recipe(
        cls,
        name: str,
        target: Target,
        arguments: Mapping[str, Any],
        schema: Schema | None = None,
        *,
        unit: str | None = None,
        trust: str | None = None,
    ) -> Setup:
        """The recipe with noise calibrated to the target; without a schema, a small one stands for any."""
        recipe = recipe_named(name)
        if not recipe.promises:
            raise BadInput(f"{name}: it promises no privacy to anybody, so there is nothing to audit")
        unit, trust = recipe.protection(unit, trust)
        schema = schema or _example(recipe)
        values = recipe.values(arguments)
        if not recipe.value_of("records", values):
            values |= recipe.with_role("records", _USUAL_RECORDS)
        clients = 1 if recipe.pooled else _USUAL_CLIENTS[unit]
        _, values = fit_budget(recipe, recipe.task(schema, clients, unit=unit, trust=trust), values, target)
        return cls(recipe, schema, values, target.delta, clients, unit, trust)

    @classmethod
    def of_run(cls, folder: Path) -> Setup:
        """The settings of a finished run; its rows are not read."""
        run = checked_run(folder)
        if run.request.target is None:
            raise BadInput(f"{folder}: a run without privacy claims nothing, so there is nothing to audit")
        recipe = recipe_named(run.request.recipe)
        values = recipe.values(run.request.arguments)
        clients = known_clients(run.request, run.ledger)
        unit, trust = recipe.protection(run.request.unit, run.request.trust)
        return cls(recipe, run.schema, values, run.request.target.delta, clients, unit, trust)

    @property
    def protection(self) -> tuple[str, str]:
        """The unit that is protected, and who has to be trusted."""
        return self.recipe.protection(self.unit, self.trust)

    def check_claim(self, unit: str | None, trust: str | None) -> None:
        """Refuse an audit of another unit or trust than the one that is claimed."""
        claimed, trusted = self.protection
        if unit not in (None, claimed):
            covers = "; a client's claim covers each of its records" if claimed == "client" else ""
            raise Incompatible(
                f"unit={unit}: {self.recipe.name} claims to protect a {claimed}{covers}; leave --unit out"
            )
        if trust not in (None, trusted):
            raise Incompatible(f"trust={trust}: the run claims trust={trusted}; leave --trust out")

    def algorithm(self, canaries: int) -> Algorithm:
        """The recipe with its own noise, clip, rate and rounds, on the smallest model that canaries fit in.

        Each block that is clipped by itself must have room for all of them, but for the loss. Where canaries are no
        clients of the algorithm (records, or clients that hide their own messages), it has the clients of the run,
        who take as many turns as they did there.
        """
        usual = self._built(self.clients or canaries + ORDINARY, _WIDTHS[0])
        if not canaries_are_clients(usual):
            return usual
        clients = canaries + ORDINARY
        for size in _WIDTHS:
            algorithm = self._built(clients, size)
            clip = getattr(algorithm.mechanism, "clip", None)
            sizes = [block for block, _ in clip.blocks if block > 1] if clip else []
            if min([algorithm.dim - 1, *sizes]) >= canaries:
                break
        return algorithm

    def _built(self, clients: int, size: int) -> Algorithm:
        """The algorithm for so many clients, with hidden layers of this size."""
        unit, trust = self.protection
        task = self.recipe.task(self.schema, clients, unit=unit, trust=trust)
        values = {**self.values, "latent": min(4, self.values.get("latent", 4))}
        values |= {"hidden": (size,), "width": size // 4}
        if cohort := self.recipe.value_of("cohort", values):
            fewer = max(1, round(cohort * clients / (self.clients or clients)))
            values |= self.recipe.with_role("cohort", fewer)
        if trust == "distributed":  # everybody arrives, and their noise is just what the claim needs
            values |= {"threshold": clients, "colluders": 0}
        known = self.recipe.arguments()
        return self.recipe.build(task, {name: value for name, value in values.items() if name in known})

    def run(
        self,
        canaries: int,
        runs: int,
        confidence: float,
        rng: Rng | None = None,
        tell: Tell | None = None,
    ) -> Audit:
        """Audit it; long trainings are repeated less often and then have fewer canaries, so that work is bounded."""
        small = self.algorithm(min(canaries, LEAST_CANARIES))
        while canaries > LEAST_CANARIES and work(small, canaries) > _MOST_WORK:
            canaries = max(LEAST_CANARIES, int(0.9 * canaries))
        runs = max(1, min(runs, int(_MOST_WORK / work(small, canaries))))
        algorithm = self.algorithm(canaries)
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


def canaries_are_clients(algorithm: Algorithm) -> bool:
    """Whether canaries take part as clients of the loop: where the server noises what clients trained and sent."""
    release = algorithm.mechanism.release
    return release is not None and release.trust != "local" and algorithm.record_sums is None


def work(algorithm: Algorithm, canaries: int) -> float:
    """About how many numbers so many canaries send in one training; those with noise of their own count more."""
    (charge, *_) = algorithm.charges()
    mechanism, release = algorithm.mechanism, charge.release
    if release.trust == "local" and mechanism.release is not None:
        turns = algorithm.schedule.participations(algorithm.rounds)
        return _NOISE_WORK * canaries * algorithm.dim * turns
    blocks = max(1, len(getattr(getattr(mechanism, "clip", None), "blocks", ())) - 1)
    shared_out = release.trust == "distributed"
    each = rate_and_noise(charge.event)[0] * (_ROUNDING_WORK if shared_out else 1.0)
    if shared_out and release.unit == "client":
        each = _NOISE_WORK
    return each * canaries**2 * blocks * algorithm.rounds * release.count


def _example(recipe: Recipe) -> Schema:
    """A small schema of the recipe's kind."""
    return EXAMPLES[recipe.kinds[0]]


def write_audit(folder: Path, audit: Audit) -> Statement:
    """Put the result into the run's privacy.json and into its words."""
    run = checked_run(folder)
    audited = worded(replace(run.statement, audited=audit.audited()), run.ledger)
    with renewing(run.folder, run.folder.privacy.name) as path:
        audited.save(path)
    return audited
