"""`keys`: encryption keys and identities."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.lazy import group, leads_to

app = group("keys", "Make the keys of a federation, away from its server.")
KeyFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder made by `fedsynth keys create`.")]


@app.command()
@leads_to("keys:create")
def create(
    out: Annotated[Path, typer.Option(help="A new folder, on a machine that the server cannot read.")],
    sites: Annotated[
        str, typer.Option(metavar="A,B,C", help="Names of the sites: each gets a folder and an identity.")
    ] = "",
    clients: Annotated[
        int | None, typer.Option(help="The most clients in one sum (default: the number of sites).")
    ] = None,
    holder: Annotated[
        str | None,
        typer.Option(help="Only this site can open sums, for --transport he-open (default: all can, he)."),
    ] = None,
    scheme: Annotated[str, typer.Option(help="bfv (exact, short) or ckks (as in PP-FedGAN).")] = "bfv",
    ring_bits: Annotated[
        int, typer.Option(help="For noise shared out over the sites: bits of its ring (0: none).", min=0)
    ] = 0,
    as_json: flags.AsJson = False,
) -> None:
    """Make encryption keys and identities: one folder a party, with a README that says which goes where.

    Example: fedsynth keys create --sites berlin,lyon,turin --out KEYS
    """


@app.command()
@leads_to("keys:renew")
def renew(
    folder: KeyFolder,
    identity: Annotated[
        list[str] | None, typer.Option(help="Also give this site a new identity; may be repeated.")
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Replace the encryption keys; the old secrets stay beside the new ones until you delete them.

    Example: fedsynth keys renew KEYS --identity lyon
    """


@app.command()
@leads_to("keys:show")
def show(folder: KeyFolder, as_json: flags.AsJson = False) -> None:
    """Show fingerprints and who can open, and check that no secret lies open. Exits with 1 if one does.

    Example: fedsynth keys show KEYS
    """


@app.command("open")
@leads_to("keys:open_run")
def open_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run over the transport he.")],
    key: Annotated[Path, typer.Option(help="A key-holder's he.secret.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the generator goes (default: into RUN, for fedsynth sample).")
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Open the generator that a run over sealed sums left sealed, with a secret key that its server never had.

    Example: fedsynth keys open RUN --key KEYS/berlin/he.secret
    """
