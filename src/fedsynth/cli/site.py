"""The command `fedsynth site`: a party of a federation that keeps its rows."""

from __future__ import annotations

from pathlib import Path

from fedsynth.cli.federation import federation_installed, say
from fedsynth.deploy.site.site_file import SiteFile


def start(
    kit: Path,
    config: Path,
    wait: float,
) -> None:
    """Run this site until Ctrl-C or `fedsynth federation stop`: it connects out and waits for runs."""
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.node import become, wait_for_server
        from fedsynth.deploy.site_job import SITE_FILE
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
