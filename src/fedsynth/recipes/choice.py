"""The recipe that `auto` stands for: chosen from public facts alone, with the reason in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from fedsynth.data.modality import kinds_of
from fedsynth.data.schema import Schema
from fedsynth.errors import Incompatible
from fedsynth.privacy.mechanism import Trust, Unit
from fedsynth.recipes.registry import Recipe, recipe_named

# For each kind of data the recipes from the best to the last resort, as experiments/ measured them, and why.
_PREFERRED: dict[str, tuple[tuple[str, str], ...]] = {
    "table": (
        (
            "marginals",
            "noisy counts of columns and pairs gave better tables than any network at every epsilon measured",
        ),
    ),
    "image": (
        (
            "moment_vae",
            "moments of each class teach classifiers more than rounds of training at the same epsilon",
        ),
        (
            "mixture",
            "Gaussians within each class, from sums over records with noise in shares, teach more than steps of DP-SGD",
        ),
        (
            "site_vae",
            "records are protected by noise that sites add in shares, so nobody sees one site's sum",
        ),
        ("central_vae", "rows that are pooled at one trusted place need no federation"),
    ),
    "linked": (("histories", "it is the recipe for tables that belong together"),),
    "text": (("dp_fedavg_lm", "it is the recipe for text"),),
}


@dataclass(frozen=True)
class Choice:
    """A recipe, whom it protects by whose help, and why it was taken."""

    recipe: Recipe
    unit: Unit
    trust: Trust
    reason: str

    def __str__(self) -> str:
        return f"recipe {self.recipe.name} (unit {self.unit}, trust {self.trust}): {self.reason}"


def choose(schema: Schema, unit: str | None = None, trust: str | None = None) -> Choice:
    """Choose the first recipe for this kind of data that can promise what is wanted; None wants nothing.

    >>> table = Schema.from_dict({"version": 1, "kind": "table",
    ...     "columns": [{"name": "age", "type": "integer", "min": 0, "max": 99}]})
    >>> choose(table).recipe.name, choose(table, "record", "local").trust
    ('marginals', 'local')
    """
    for name, reason in chain.from_iterable(_PREFERRED.get(kind, ()) for kind in kinds_of(schema)):
        recipe = recipe_named(name)
        if recipe.meets(unit, trust):
            return Choice(recipe, *recipe.protection(unit, trust), reason)
    wanted = ", ".join(f"{key}={value}" for key, value in (("unit", unit), ("trust", trust)) if value)
    raise Incompatible(
        f"{wanted or schema.kind}: no recipe for data of kind {schema.kind} promises that; "
        "name one with --recipe (see fedsynth recipes), or ask for another unit or trust"
    )
