"""The command `fedsynth view`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli.flags import argument, option


def view(
    folder: Annotated[Path, argument("A folder that holds runs.", "DIR")],
    host: Annotated[
        str, option("Address to listen on; beyond this machine a token is required.")
    ] = "127.0.0.1",
    port: Annotated[int, option("Port; 0 takes a free one.", min=0, max=65535)] = 8765,
) -> None:
    """Show runs in the browser, live and side by side. With their reports; nothing is changed.

    Example: fedsynth view runs
    """
    from fedsynth.assess.report.server import open_server, serve

    server, address = open_server(folder, host, port)
    typer.echo(f"Open {address} in a browser; stop with Ctrl-C.")
    serve(server)
