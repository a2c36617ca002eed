"""The commands `fedsynth keys create`, `renew`, `show` and `open`."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from fedsynth.cli.exit_codes import Code
from fedsynth.deploy.sealed_release import opened
from fedsynth.errors import BadInput
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import renewing
from fedsynth.transport import keys


def create(
    out: Path,
    sites: str,
    clients: int | None,
    holder: str | None,
    scheme: str,
    ring_bits: int,
    as_json: bool,
) -> None:
    """Make encryption keys and identities: one folder a party, with a README that says which goes where."""
    named = [name.strip() for name in sites.split(",") if name.strip()]
    made = keys.create(out, clients=clients, sites=named, holder=holder, scheme=scheme, ring_bits=ring_bits)
    _print(out, made, as_json)


def renew(
    folder: Path,
    identity: list[str] | None,
    as_json: bool,
) -> None:
    """Replace the encryption keys; the old secrets stay beside the new ones until you delete them."""
    _print(folder, keys.renew(folder, identity or []), as_json)


def show(folder: Path, as_json: bool) -> None:
    """Show fingerprints and who can open, and check that no secret lies open. Exits with 1 if one does."""
    made, found = keys.Record.load(folder), keys.problems(folder)
    if as_json:
        typer.echo(json.dumps({**made.to_json(), "problems": found}))
    else:
        _print(folder, made, as_json=False)
        typer.echo("\n".join(f"Problem: {problem}." for problem in found) or "No secret lies open.")
    if found:
        raise typer.Exit(Code.FAILED)


def open_run(
    run: Path,
    key: Path,
    out: Path | None,
    as_json: bool,
) -> None:
    """Open the generator that a run over sealed sums left sealed, with a secret key that its server never had."""
    place = Folder(run)
    target = out or place.generator
    if target.exists():
        raise BadInput(f"{target}: exists already; choose another --out")
    generator = opened(place, keys.load_keys(key))
    if target == place.generator:
        with renewing(place, target.name) as path:
            generator.save(path)
    else:
        generator.save(target)
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
