"""The command `fedsynth view`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.report.server import open_server, serve

_PORT = 8765


def register(app: typer.Typer) -> None:
    """Add the command to the main one."""
    app.command()(view)


def view(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that holds runs.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine a token is asked.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = _PORT,
) -> None:
    """Show runs in the browser: live while they run, side by side, with their reports. Read-only.

    Example: fedsynth view runs
    """
    server, address = open_server(folder, host, port)
    typer.echo(f"Open {address} in a browser; stop with Ctrl-C.")
    serve(server)
