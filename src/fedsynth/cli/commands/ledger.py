"""`ledger`: what was released."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.lazy import group, leads_to

app = group("ledger", "Look at what was released, and check that nobody changed the record of it.")
Where = Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder, or the ledger.jsonl itself.")]


@app.command()
@leads_to("ledger:show")
def show(
    folder: Where,
    delta: Annotated[float | None, typer.Option(help="Also print what it all costs at this delta.")] = None,
    adjacency: Annotated[str, typer.Option(help="add-remove, replace-one or zero-out.")] = "add-remove",
    unit: Annotated[str | None, typer.Option(help="client or record, where the ledger holds both.")] = None,
    as_json: flags.AsJson = False,
) -> None:
    """List every release, and what they cost together.

    Example: fedsynth ledger show RUN --delta 1e-5
    """


@app.command()
@leads_to("ledger:verify")
def verify(folder: Where, as_json: flags.AsJson = False) -> None:
    """Check the chain of hashes, and a run's files and statement against it. Exits with 1 if anything was changed.

    Example: fedsynth ledger verify RUN
    """
