"""A run's terms, and what either side builds from them: server and sites compose the same algorithm by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsynth.data.schema import Schema
from fedsynth.deploy.link.messages import Terms
from fedsynth.deploy.link.sealed import keyed
from fedsynth.deploy.software import software
from fedsynth.errors import Incompatible
from fedsynth.federation.algorithm import Algorithm
from fedsynth.recipes.registry import recipe_named
from fedsynth.synthesis.request import Request
from fedsynth.transport.he_scheme import Keys


def terms_of(
    request: Request,
    schema: Schema,
    values: Mapping[str, Any],
    clients: int = 0,
    minimum_cohort: int = 2,
    largest: int = 1,
) -> Terms:
    """The terms for sites to agree to; `clients` of all sites together and of the largest once they are known."""
    recipe = recipe_named(request.recipe)
    if recipe.pooled:
        raise Incompatible(f"{recipe.name} needs all rows in one place; choose a recipe that is federated")
    task = request.task(schema, clients)
    public = schema.with_client(None).to_dict()
    public.pop("provenance", None)
    return Terms(
        request.recipe,
        dict(values),
        public,
        request.private,
        request.epsilon or 0.0,
        request.delta or 0.0,
        task.unit,
        task.trust,
        task.transport,
        minimum_cohort,
        clients,
        largest=largest if task.trust == "distributed" else 1,
        software=software(request.recipe),
    )


def compose(terms: Terms, schema: Schema, keys: Keys | None = None) -> Algorithm:
    """The algorithm of a run, from the recipe that is installed here, and with this site's keys where it seals."""
    recipe = recipe_named(terms.recipe)
    if recipe.pooled:
        raise Incompatible(f"{recipe.name} needs all rows in one place; choose a recipe that is federated")
    task = recipe.task(
        schema,
        terms.clients,
        private=terms.private,
        unit=terms.unit,
        trust=terms.trust,
        transport=terms.transport,
        largest=terms.largest,
    )
    algorithm = recipe.build(task, recipe.values(terms.values))
    return keyed(algorithm, keys) if keys is not None and algorithm.transport.blind else algorithm
