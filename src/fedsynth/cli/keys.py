"""The commands `fedsynth keys create`, `renew`, `show` and `open`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.exit_codes import Code
from fedsynth.cli.flags import argument, group, names_in, option
from fedsynth.cli.output import show as show_result
from fedsynth.errors import BadInput

if TYPE_CHECKING:
    from fedsynth.transport.keys import KeyRecord

app = group("keys", "Make the keys of a federation, away from its server.")
KeyFolder = Annotated[Path, argument("A folder made by `fedsynth keys create`.", "DIR")]


@app.command()
def create(
    out: Annotated[Path, option("A new folder, on a machine that the server cannot read.")],
    sites: Annotated[
        str, option("Names of the sites: each gets a folder and an identity.", metavar="A,B,C")
    ] = "",
    clients: Annotated[
        int | None, option("The most clients in one sum (default: the number of sites).")
    ] = None,
    holder: Annotated[
        str | None, option("Only this site can open sums, for --transport he-open (default: all can, he).")
    ] = None,
    scheme: Annotated[str, option("bfv (exact, short) or ckks (as in PP-FedGAN).")] = "bfv",
    ring_bits: Annotated[
        int, option("For noise shared out over the sites: bits of its ring (0: none).", min=0)
    ] = 0,
    as_json: flags.AsJson = False,
) -> None:
    """Make encryption keys and identities. One folder per party, with a README that says which goes where.

    Example: fedsynth keys create --sites berlin,lyon,turin --out KEYS
    """
    from fedsynth.transport import keys

    names = names_in(sites)
    record = keys.create(out, clients=clients, sites=names, holder=holder, scheme=scheme, ring_bits=ring_bits)
    show_result(as_json, record.to_json(), _words(out, record))


@app.command()
def renew(
    folder: KeyFolder,
    identity: Annotated[
        list[str] | None, option("Also give this site a new identity; may be repeated.")
    ] = None,
    add: Annotated[list[str] | None, option("A new site; may be repeated.")] = None,
    drop: Annotated[list[str] | None, option("A site that leaves; may be repeated.")] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Replace the encryption keys. The old secrets stay beside the new ones until you delete them.

    Every site then gets its new folder: all of them have to know the same identities.

    Example: fedsynth keys renew KEYS --identity lyon
    """
    from fedsynth.transport import keys

    record = keys.renew(folder, identity or [], add=add or [], drop=drop or [])
    show_result(as_json, record.to_json(), _words(folder, record))


@app.command()
def show(folder: KeyFolder, as_json: flags.AsJson = False) -> None:
    """Show fingerprints and who can open sums. Exits with 1 if others can read a secret.

    Example: fedsynth keys show KEYS
    """
    from fedsynth.transport import keys

    record, problems = keys.KeyRecord.load(folder), keys.problems(folder)
    verdict = "\n".join(f"Problem: {problem}." for problem in problems) or "No secret lies open."
    result = {**record.to_json(), "problems": problems}
    show_result(as_json, result, f"{_words(folder, record)}\n{verdict}")
    if problems:
        raise typer.Exit(Code.FAILED)


@app.command("open")
def open_run(
    run: Annotated[Path, argument("A finished run over the transport he.", "RUN")],
    key: Annotated[Path, option("A key-holder's he.secret.")],
    out: Annotated[
        Path | None, option("Where the generator goes (default: into RUN, for fedsynth sample).")
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Open the generator of a run over encrypted sums. Needs a secret key that its server never had.

    Example: fedsynth keys open RUN --key KEYS/berlin/he.secret
    """
    from fedsynth.deploy.sealed_release import opened
    from fedsynth.synthesis.folder import Folder
    from fedsynth.synthesis.released_files import renewing
    from fedsynth.transport import keys

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
    words = f"Wrote {target}; draw rows with fedsynth sample {run} --rows 1000 --out rows.parquet"
    show_result(as_json, {"out": str(target)}, words)


def _words(folder: Path, record: KeyRecord) -> str:
    chosen = record.parameters
    size = f"{chosen.scheme.upper()}, degree {chosen.degree}, modulus {list(chosen.modulus_bits)}"
    lines = [
        f"{folder}: keys number {record.serial} of {record.created}, {size}, sums of up to {record.clients} clients",
        f"Fingerprint {_grouped(record.fingerprint)}",
        f"Can open: {', '.join(record.openers)}. Cannot: server. See {folder / 'README.txt'}.",
        *(f"Identity of {name}: {_grouped(public[:32])}" for name, public in record.sites.items()),
    ]
    return "\n".join(lines)


def _grouped(text: str) -> str:
    """Hexadecimal digits that can be read out.

    >>> _grouped("0123456789ab")
    '0123 4567 89ab'
    """
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))
