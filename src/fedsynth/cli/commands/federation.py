"""`federation`: start-up kits, a server, and what runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.lazy import group, leads_to

app = group(
    "federation", "A real federation: start-up kits with keys, a server, and sites that keep their rows."
)
Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="What `create` made, or one kit that was taken from it.")
]


@app.command()
@leads_to("federation:create")
def create(
    sites: Annotated[str, typer.Option(metavar="A,B,C", help="The sites' names, with commas.")],
    host: Annotated[str, typer.Option(help="Name or address at which the sites reach the server.")],
    out: Annotated[Path, typer.Option(help="Folder for the kits; must not exist.")],
    port: Annotated[int, typer.Option(help="The one port that the server opens.")] = 8002,
    as_json: flags.AsJson = False,
) -> None:
    """Make a start-up kit for the server, the coordinator and each site, and the authority that signs them.

    Example: fedsynth federation create --sites st-mary,charite,ucl --host fl.example.org --port 8002 --out kits
    """


@app.command()
@leads_to("federation:renew")
def renew(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `create` made, with its authority.")],
    party: Annotated[
        list[str] | None, typer.Option(help="server, coordinator or a site; default: all.")
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Make new keys and certificates; a kit's other files stay as they are.

    Example: fedsynth federation renew kits --party ucl
    """


@app.command()
@leads_to("federation:serve")
def serve(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The server's kit.")],
    listen: Annotated[
        str | None, typer.Option(help="Address of this machine to listen on, if not the host's own.")
    ] = None,
) -> None:
    """Run the server until Ctrl-C or `fedsynth federation stop`. It holds no data and sees no rows.

    Example: fedsynth federation serve kits/server
    """


@app.command()
@leads_to("federation:status")
def status(folder: Directory, as_json: flags.AsJson = False) -> None:
    """Who is connected and what runs: asked of the server with the coordinator's kit, and of this machine.

    Example: fedsynth federation status kits
    """


@app.command()
@leads_to("federation:stop")
def stop(folder: Directory, as_json: flags.AsJson = False) -> None:
    """Stop the server and the sites that run on this machine from these kits.

    Example: fedsynth federation stop kits
    """


@app.command("try")
@leads_to("try_out:try_out")
def try_out(
    data: Annotated[Path, typer.Argument(help="A table; its rows are dealt to the sites.")],
    schema: Annotated[Path, typer.Option(help="Its public schema.")],
    out: Annotated[Path, typer.Option(help="Folder for kits, data and state; must not exist.")],
    site_column: Annotated[str | None, typer.Option(help="Column that names the site of a row.")] = None,
    client_column: Annotated[str | None, typer.Option(help="Column that says who owns a row.")] = None,
    sites: Annotated[str, typer.Option(help="Without --site-column: names of the sites.")] = "ada,bern,cern",
    epsilon: Annotated[float, typer.Option(help="Each site's budget over all runs.")] = 10.0,
    delta: Annotated[float, typer.Option(help="Each site's delta.")] = 1e-3,
    unit: Annotated[str, typer.Option(help="client or record: whom each site's budget protects.")] = "client",
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8002,
) -> None:
    """Deal a table to sites on this machine and start them all; then `fedsynth run --federation` works.

    A rehearsal: all keys and all rows are on one machine, so nobody is protected from anybody.

    Example: fedsynth federation try patients.csv --schema schema.json --client-column "patient id" --out try
    """
