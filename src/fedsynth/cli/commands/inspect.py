"""`inspect`: look at data that nobody may look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.lazy import leads_to

app = typer.Typer()


@app.command("inspect")
@leads_to("inspect:inspect_data")
def inspect_data(
    config: Annotated[
        Path, typer.Option(metavar="FILE.toml", help="Data, model, selections, training, test.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="A new folder for the page, the models and the ledger.")
    ],
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="EARLIER", help="An earlier inspection: its cost counts, and what changed is shown."
        ),
    ] = None,
    federation: Annotated[
        Path | None,
        typer.Option(
            metavar="KITS",
            help="Over real sites: what `fedsynth federation create` made. Sites judge their own rows; each must "
            "allow it with inspect = true under [policy] of its site.toml.",
        ),
    ] = None,
    minimum_sites: flags.MinimumSites = 2,
    round_timeout: flags.RoundTimeout = 600.0,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Train generative models on rows that meet a criterion, and show what they look like and how they differ.

    Over sites, the file's [data] names the schema alone (each site's site.toml has the rows), and [model] an ONNX file,
    which goes to the sites and runs there only, or an entry point that they have installed and allow.

    Example: fedsynth inspect --config pixels.toml --out INSPECTION

    Example: fedsynth inspect --federation kits --config pixels.toml --out INSPECTION
    """
