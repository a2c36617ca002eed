"""The command `fedsynth site`: a party of a federation that keeps its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli.federation import federation_installed, say
from fedsynth.synthesis.site_file import SiteFile

app = typer.Typer(
    name="site",
    help="A site of a federation: keeps its rows and decides what it takes part in.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def start(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="This site's start-up kit.")],
    config: Annotated[Path, typer.Option(help="site.toml: data, budget, policy, state folder.")],
    wait: Annotated[float, typer.Option(help="Seconds to wait for a server that does not answer.")] = 300.0,
) -> None:
    """Run this site until Ctrl-C or `fedsynth federation stop`: it connects out and waits for runs.

    Everything is checked first: keys and certificate, site.toml, and that all rows fit the schema.

    Example: fedsynth site start ucl --config site.toml
    """
    with federation_installed():
        from fedsynth.engines.nvflare_kits import Kit
        from fedsynth.engines.nvflare_node import become, wait_for_server
        from fedsynth.synthesis.attendant import SITE_FILE
    loaded = Kit.load(kit, "site")
    described = SiteFile.load(config)
    holding = described.holding()
    wait_for_server(loaded, wait)
    allowed = ", ".join(described.policy.recipes)
    say(
        f"{loaded.name}: {len(holding.clients)} clients in {described.data.name}; takes part in {allowed} "
        f"up to epsilon {described.policy.budget.epsilon:g}; connected to {loaded.host}:{loaded.port}; stop with Ctrl-C"
    )
    become(loaded, {SITE_FILE: str(described.path)})
