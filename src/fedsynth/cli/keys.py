"""The commands `fedsynth keys create`, `renew`, `show` and `open`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli.flags import AsJson
from fedsynth.errors import BadInput
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.sealed import opened
from fedsynth.transport import keys

BROKEN = 1  # exit code: a check failed

app = typer.Typer(
    name="keys",
    help="Make the keys of a federation, away from its server.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
KeyFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder made by `fedsynth keys create`.")]


def register(main: typer.Typer) -> None:
    """Add the commands to the main one."""
    main.add_typer(app)


@app.command()
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
        int, typer.Option(help="For noise shared out over the sites: bits of its ring (0: none).")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Make encryption keys and identities: one folder a party, with a README that says which goes where.

    Example: fedsynth keys create --sites berlin,lyon,turin --out KEYS
    """
    named = [name.strip() for name in sites.split(",") if name.strip()]
    made = keys.create(out, clients=clients, sites=named, holder=holder, scheme=scheme, ring_bits=ring_bits)
    _print(out, made, as_json)


@app.command()
def renew(
    folder: KeyFolder,
    identity: Annotated[
        list[str] | None, typer.Option(help="Also give this site a new identity; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replace the encryption keys; the old secrets stay beside the new ones until you delete them.

    Example: fedsynth keys renew KEYS --identity lyon
    """
    _print(folder, keys.renew(folder, identity or []), as_json)


@app.command()
def show(folder: KeyFolder, as_json: AsJson = False) -> None:
    """Show fingerprints and who can open, and check that no secret lies open. Exits with 1 if one does.

    Example: fedsynth keys show KEYS
    """
    made, found = keys.Record.load(folder), keys.problems(folder)
    if as_json:
        typer.echo(json.dumps({**made.to_json(), "problems": found}))
    else:
        _print(folder, made, as_json=False)
        typer.echo("\n".join(f"Problem: {problem}." for problem in found) or "No secret lies open.")
    if found:
        raise typer.Exit(BROKEN)


@app.command("open")
def open_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run over the transport he.")],
    key: Annotated[Path, typer.Option(help="A key-holder's he.secret.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the generator goes (default: into RUN, for fedsynth sample).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Open the generator that a run over sealed sums left sealed, with a secret key that its server never had.

    Example: fedsynth keys open RUN --key KEYS/berlin/he.secret
    """
    place = Folder(run)
    target = out or place.generator
    if target.exists():
        raise BadInput(f"{target}: exists already; choose another --out")
    opened(place, keys.load_keys(key)).save(target)
    told = f"Wrote {target}; draw rows with fedsynth sample {run} --rows 1000 --out rows.parquet"
    typer.echo(json.dumps({"out": str(target)}) if as_json else told)


def _print(folder: Path, made: keys.Record, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(made.to_json()))
        return
    chosen = made.parameters
    size = f"{chosen.scheme.upper()}, degree {chosen.degree}, modulus {list(chosen.modulus_bits)}"
    typer.echo(
        f"{folder}: keys number {made.serial} of {made.created}, {size}, sums of up to {made.clients} clients"
    )
    typer.echo(f"Fingerprint {_grouped(made.fingerprint)}")
    typer.echo(f"Can open: {', '.join(made.openers)}. Cannot: server. See {folder / 'README.txt'}.")
    for name, public in made.sites.items():
        typer.echo(f"Identity of {name}: {_grouped(public[:32])}")


def _grouped(text: str) -> str:
    """Hexadecimal digits that can be read out.

    >>> _grouped("0123456789ab")
    '0123 4567 89ab'
    """
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))
