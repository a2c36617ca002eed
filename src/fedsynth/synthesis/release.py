"""What leaves a finished run: the generator with the parts that may be known, and the statement about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsynth.data.clients import RawClients
from fedsynth.data.partition import parse_split
from fedsynth.data.schema import Schema
from fedsynth.federation.algorithm import Algorithm
from fedsynth.federation.state import ServerState
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.statement import Statement, statement
from fedsynth.privacy.wording import caveats_dealt
from fedsynth.recipes.budget import sampling_of
from fedsynth.synthesis.generator import Generator
from fedsynth.synthesis.training import Prepared


def released(
    algorithm: Algorithm, state: ServerState, schema: Schema, recipe: str, values: Mapping[str, Any]
) -> Generator:
    """The parts of a trained state that make rows and were sent to clients anyway, with the class balance."""
    parts = [part for part in algorithm.broadcast if part in algorithm.model.generative]
    return Generator(schema, recipe, values, {part: state.parts[part] for part in parts}, state.balance)


def caveats_of(prepared: Prepared, raw: RawClients) -> tuple[str, ...]:
    """What the statement must say of a promise to participants that are simulated."""
    if raw.dealt is None or prepared.recipe.pooled or not prepared.request.private:
        return ()
    reads_rows = parse_split(raw.dealt).reads_rows
    return tuple(caveats_dealt(raw.dealt, prepared.unit, reads_rows=reads_rows))


def release(
    prepared: Prepared, ledger: Ledger, state: ServerState, *, seeded: bool, caveats: tuple[str, ...] = ()
) -> tuple[Generator, Statement]:
    """The generator and its statement; `seeded` if any noise of the run can be drawn again."""
    algorithm, request = prepared.algorithm, prepared.request
    generator = released(algorithm, state, prepared.schema, request.recipe, prepared.values)
    told = statement(
        ledger,
        delta=request.delta or 0.0,
        adjacency=prepared.adjacency,
        sampling=sampling_of(algorithm),
        unit=prepared.unit,
        seeded=seeded,
        inferred=prepared.schema.inferred(),
        caveats=(*algorithm.caveats, *algorithm.transport.caveats, *caveats),
    )
    return generator, told
