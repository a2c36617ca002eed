"""The command `fedsynth federation try`: a whole federation on this machine, to see how it works."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.federated import federation_installed, say
from fedsynth.cli.flags import option
from fedsynth.errors import BadInput, FedsynthError

if TYPE_CHECKING:
    from fedsynth.data.schema import Schema

_PATIENCE_S = 180.0


def try_out(
    data: Annotated[Path, flags.argument("A table, or a folder of linked ones; dealt to the sites.")],
    schema: Annotated[Path, option("Its public schema.")],
    out: Annotated[Path, option("Folder for kits, data and state; must not exist.")],
    site_column: Annotated[str | None, option("Column that names the site of a row.")] = None,
    client_column: flags.ClientColumn = None,
    sites: Annotated[str, option("Without --site-column: names of the sites.")] = "ada,bern,cern",
    epsilon: Annotated[float, option("Each site's budget over all runs.")] = 10.0,
    delta: Annotated[float, option("Each site's delta.")] = 1e-3,
    unit: Annotated[str, option("client or record: whom each site's budget protects.")] = "client",
    port: Annotated[int, option("Port on 127.0.0.1.")] = 8002,
) -> None:
    """Rehearse a federation on this machine. Deals a table to sites and starts them all; then
    `fedsynth run --federation` works.

    A rehearsal: all keys and all rows are on one machine, so nobody is protected from anybody.

    Example: fedsynth federation try patients.csv --schema schema.json --client-column "patient id" --out try
    """
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import Kit
        from fedsynth.deploy.nvflare.membership import create
        from fedsynth.deploy.nvflare.node import check_port
        from fedsynth.deploy.nvflare.session import ConnectionLost, CoordinatorSession, wait_for
    from fedsynth.data.schema import Schema
    from fedsynth.deploy.rehearsal import count_clients, dealt_rows, write_site
    from fedsynth.synthesis.payer import ledger_of
    from fedsynth.transport.keys import create as create_keys

    agreed = Schema.load(schema)
    ledger_of(agreed, schema)  # refuse a schema without what it cost before anything is written
    names = [name.strip() for name in sites.split(",")]
    frames = dealt_rows(data, agreed, site_column, client_column, names)
    if site_column is not None and site_column in [column.name for column in agreed.columns]:
        raise BadInput(
            f"--site-column {site_column}: the schema has it as a column to be made, but no site has it in its "
            f"rows; remove it from {schema}, or draft it anew with --drop {site_column}"
        )
    # nobody joins a rehearsal later: the passphrase of its authority is thrown away
    create(tuple(frames), "127.0.0.1", port, out, secrets.token_hex())
    check_port(Kit.load(out / "server", "server"))
    create_keys(out / "keys", sites=tuple(frames), clients=count_clients(frames, client_column, agreed))
    budget = {"epsilon": epsilon, "delta": delta, "unit": unit}
    for name, frame in frames.items():
        folder = out / "sites" / name
        write_site(folder, frame, schema, client_column, budget)
        (out / "keys" / name).rename(folder / "keys")
    processes = {"server": _start(out, "server", ["federation", "serve", str(out / "server")])}
    for name in frames:
        folder = out / "sites" / name
        words = ["site", "start", str(folder), "--config", str(folder / "site.toml")]
        processes[name] = _start(out, name, words)
    say(f"starting the server and {', '.join(frames)} on 127.0.0.1:{port}")

    def connected() -> bool:
        try:
            with CoordinatorSession(Kit.load(out, "coordinator")) as session:
                return len(session.sites()) == len(frames)
        except (FedsynthError, ConnectionLost):
            return False

    def settled() -> bool:
        return any(process.poll() is not None for process in processes.values()) or connected()

    try:
        in_time = wait_for(settled, _PATIENCE_S, 1.0)
    except KeyboardInterrupt:
        _stop_all(out, frames)
        raise
    ended = [name for name, process in processes.items() if process.poll() is not None]
    if ended or not in_time:
        _stop_all(out, frames)
        log = out / f"{ended[0]}.log" if ended else out / "server.log"
        why = f"{ended[0]} stopped" if ended else f"not all sites are connected after {_PATIENCE_S:g} s"
        last = (log.read_text().strip().splitlines() or [""])[-1]
        raise BadInput(f"{why} ({last}); all was stopped again: look at {log}")
    typer.echo(
        f"{len(frames)} sites are connected. Now, for example:\n  {next_command(out, schema, agreed, unit)}\n"
        f"and at the end:\n  fedsynth federation stop {out}"
    )


def next_command(out: Path, schema: Path, agreed: Schema, unit: str) -> str:
    """Return a run that these sites take part in and that this schema allows."""
    what = " --unit record --trust distributed" if unit == "record" else ""
    what += " --accept inferred" if agreed.inferred() else ""
    return f"fedsynth run --federation {out} --schema {schema}{what} --epsilon 1 --out {out}-run"


def _stop_all(out: Path, sites: Iterable[str]) -> None:
    from fedsynth.deploy.nvflare.node import stop

    for path in [out / "server", *(out / "sites" / name for name in sites)]:
        stop(path)


def _start(out: Path, name: str, words: list[str]) -> subprocess.Popen[bytes]:
    with (out / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "fedsynth.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
