"""The command `fedsynth federation try`: a whole federation on this machine, to see how it works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.federated import federation_installed, say
from fedsynth.cli.flags import option
from fedsynth.errors import BadInput, FedsynthError

_PATIENCE_S = 180.0


def try_out(
    data: Annotated[Path, flags.argument("A table; its rows are dealt to the sites.")],
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
    """Deal a table to sites on this machine and start them all; then `fedsynth run --federation` works.

    A rehearsal: all keys and all rows are on one machine, so nobody is protected from anybody.

    Example: fedsynth federation try patients.csv --schema schema.json --client-column "patient id" --out try
    """
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import Kit, create
        from fedsynth.deploy.nvflare.node import check_port
        from fedsynth.deploy.nvflare.session import Line, LineLost, wait_for
    from fedsynth.data.schema import Schema
    from fedsynth.data.table import read_table
    from fedsynth.deploy.rehearsal import count_clients, deal, write_site
    from fedsynth.synthesis.payer import ledger_of
    from fedsynth.transport.keys import create as create_keys

    agreed = Schema.load(schema)
    ledger_of(agreed, schema)  # refuse a schema without what it cost before anything is written
    names = [name.strip() for name in sites.split(",")]
    frames = deal(read_table(data, agreed), site_column, client_column, names)
    create(tuple(frames), "127.0.0.1", port, out)
    check_port(Kit.load(out / "server", "server"))
    create_keys(out / "keys", sites=tuple(frames), clients=count_clients(frames, client_column))
    budget = {"epsilon": epsilon, "delta": delta, "unit": unit}
    for name, frame in frames.items():
        folder = out / "sites" / name
        write_site(folder, frame, schema, client_column, budget)
        (out / "keys" / name).rename(folder / "keys")
    _start(out, "server", ["federation", "serve", str(out / "server")])
    for name in frames:
        folder = out / "sites" / name
        _start(out, name, ["site", "start", str(folder), "--config", str(folder / "site.toml")])
    say(f"starting the server and {', '.join(frames)} on 127.0.0.1:{port}")

    def connected() -> bool:
        try:
            with Line(Kit.load(out, "coordinator")) as line:
                return len(line.sites()) == len(frames)
        except (FedsynthError, LineLost):
            return False

    if not wait_for(connected, _PATIENCE_S, 1.0):
        raise BadInput(f"not all sites are connected after {_PATIENCE_S:g} s; look at {out}/*.log")
    typer.echo(
        f"{len(frames)} sites are connected. Now, for example:\n  fedsynth run --federation {out} --schema {schema} "
        f"--epsilon 1 --delta {delta:g} --out RUN\n"
        f"and at the end:\n  fedsynth federation stop {out}"
    )


def _start(out: Path, name: str, words: list[str]) -> None:
    with (out / f"{name}.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "fedsynth.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
