"""`site`: a party of a federation that keeps its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli.lazy import group, leads_to

app = group("site", "A site of a federation: keeps its rows and decides what it takes part in.")


@app.command()
@leads_to("site:start")
def start(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="This site's start-up kit.")],
    config: Annotated[Path, typer.Option(help="site.toml: data, budget, policy, state folder.")],
    wait: Annotated[float, typer.Option(help="Seconds to wait for a server that does not answer.")] = 300.0,
) -> None:
    """Run this site until Ctrl-C or `fedsynth federation stop`: it connects out and waits for runs.

    Everything is checked first: keys and certificate, site.toml, and that all rows fit the schema.

    Example: fedsynth site start ucl --config site.toml
    """
