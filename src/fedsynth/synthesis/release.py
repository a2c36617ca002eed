"""The release of a finished run: the generator with the parts that may be known, and the statement about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsynth.data.partition import parse_split
from fedsynth.data.review import accepted_in
from fedsynth.data.schema import Schema
from fedsynth.errors import FedsynthError
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.state import ServerState
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import Unit
from fedsynth.privacy.statement import Statement, statement
from fedsynth.privacy.wording import caveats_accepted, caveats_dealt
from fedsynth.recipes.budget import adjacency_of, sampling_of
from fedsynth.recipes.registry import Recipe, recipe_named
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.generator import Generator
from fedsynth.synthesis.released_files import close
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.training import Prepared

_MANY = 10_000  # clients that any cohort can be drawn from


def released(
    algorithm: Algorithm, state: ServerState, schema: Schema, recipe: str, values: Mapping[str, Any]
) -> Generator:
    """The parts of a trained state that make rows and were sent to clients anyway, with the class balance."""
    parts = [part for part in algorithm.broadcast if part in algorithm.model.generative]
    kept = {part: state.parts[part] for part in parts}
    return Generator(schema, recipe, values, kept, state.balance, algorithm.model)


def caveats_of(prepared: Prepared) -> tuple[str, ...]:
    """Return what the statement must say of a promise to clients that are simulated."""
    dealt = prepared.clients.dealt if prepared.clients else None
    if dealt is None or prepared.recipe.pooled or not prepared.request.private:
        return ()
    return tuple(caveats_dealt(dealt, prepared.unit, reads_rows=parse_split(dealt).reads_rows))


def public_units(recipe: Recipe, unit: Unit, clients: int, values: Mapping[str, Any]) -> int:
    """How many clients or records there are, as far as that is public: their true number of records never is."""
    if unit == "client":
        return clients
    return int(recipe.value_of("records", values) or clients * (recipe.value_of("records_each", values) or 1))


def known_clients(request: Request, ledger: Ledger) -> int | None:
    """The number of clients that was asked for, that a fixed cohort was drawn from, or that paid for themselves."""
    lines = ledger.lines()
    sizes = [line.event.get("source_dataset_size") for line in lines]
    own = len({line.holder for line in lines if line.holder.isdigit()})
    return request.clients or next((int(size) for size in sizes if size), own or None)


def terms_of_claim(request: Request, schema: Schema, ledger: Ledger) -> tuple[str, str] | None:
    """The adjacency and the sampling of a run that recipe.toml describes; None if it cannot be composed any more."""
    recipe = recipe_named(request.recipe)
    try:
        task = request.task(schema, known_clients(request, ledger) or _MANY)
        algorithm = recipe.build(task, recipe.values(request.arguments))
    except FedsynthError:
        return None
    return adjacency_of(algorithm), sampling_of(algorithm)


def release(
    prepared: Prepared, ledger: Ledger, state: ServerState, *, seeded: bool, caveats: tuple[str, ...] = ()
) -> tuple[Generator, Statement]:
    """The generator and its statement; `seeded` if any noise of the run can be drawn again."""
    algorithm, request = prepared.algorithm, prepared.request
    generator = released(algorithm, state, prepared.schema, request.recipe, prepared.values)
    promise = statement(
        ledger,
        delta=request.delta or 0.0,
        adjacency=prepared.adjacency,
        sampling=sampling_of(algorithm),
        unit=prepared.unit,
        seeded=seeded,
        inferred=prepared.schema.inferred(),
        caveats=(
            *algorithm.caveats,
            *algorithm.transport.caveats,
            *caveats,
            *caveats_accepted(accepted_in(prepared.schema)),
        ),
        units=public_units(prepared.recipe, prepared.unit, algorithm.schedule.clients, prepared.values),
    )
    return generator, promise


def write_result(place: Folder, generator: Generator, statement: Statement) -> None:
    """Write what a run released and the statement about it, and close the run."""
    generator.save(place.generator)
    statement.save(place.privacy)
    close(place)
