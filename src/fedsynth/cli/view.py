"""The command `fedsynth view`."""

from __future__ import annotations

from pathlib import Path

import typer

from fedsynth.assess.report.server import open_server, serve


def view(
    folder: Path,
    host: str,
    port: int,
) -> None:
    """Show runs in the browser: live while they run, side by side, with their reports. Read-only."""
    server, address = open_server(folder, host, port)
    typer.echo(f"Open {address} in a browser; stop with Ctrl-C.")
    serve(server)
