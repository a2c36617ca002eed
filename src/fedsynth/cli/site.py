"""The command `fedsynth site start`: a party of a federation that keeps its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fedsynth.cli.federated import federation_installed, say
from fedsynth.cli.flags import argument, group, option

app = group("site", "A site of a federation: keeps its rows and decides what it takes part in.")


@app.command()
def start(
    kit: Annotated[Path, argument("This site's start-up kit.", "KIT")],
    config: Annotated[Path, option("site.toml: data, budget, policy, state folder.")],
    wait: Annotated[float, option("Seconds to wait for a server that does not answer.")] = 300.0,
) -> None:
    """Run this site until Ctrl-C or `fedsynth federation stop`: it connects out and waits for runs.

    Everything is checked first: keys and certificate, site.toml, and that all rows fit the schema.

    Example: fedsynth site start ucl --config site.toml
    """
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.node import become, wait_for_server
        from fedsynth.deploy.site_job import SITE_FILE
    from fedsynth.deploy.site.site_file import SiteFile

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
