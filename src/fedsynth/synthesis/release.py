"""What leaves a finished run: the generator with the parts that may be known, and the statement about them."""

from __future__ import annotations

from fedsynth.federation.state import ServerState
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.statement import Statement, statement
from fedsynth.recipes.budget import sampling_of
from fedsynth.synthesis.generator import Generator
from fedsynth.synthesis.training import Prepared


def release(
    prepared: Prepared, ledger: Ledger, state: ServerState, *, seeded: bool, caveats: tuple[str, ...] = ()
) -> tuple[Generator, Statement]:
    """The generator and its statement; `seeded` if any noise of the run can be drawn again."""
    algorithm, request = prepared.algorithm, prepared.request
    parts = [part for part in algorithm.broadcast if part in algorithm.model.generative]
    released = {part: state.parts[part] for part in parts}
    generator = Generator(prepared.schema, request.recipe, prepared.values, released, state.balance)
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
