"""The command `fedsynth federation try`: a whole federation on this machine, to see how it works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import unicodedata
from itertools import chain, count
from pathlib import Path

import numpy as np
import pandas as pd
import tomli_w
import typer

from fedsynth.cli.federation import federation_installed, say
from fedsynth.data.schema import Schema
from fedsynth.data.table import read_table, write_table
from fedsynth.errors import BadInput, FedsynthError
from fedsynth.privacy.chain import head_path
from fedsynth.recipes.registry import RECIPES
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.payer import ledger_of
from fedsynth.transport.keys import create as create_keys

_PATIENCE_S = 180.0


def try_out(
    data: Path,
    schema: Path,
    out: Path,
    site_column: str | None,
    client_column: str | None,
    sites: str,
    epsilon: float,
    delta: float,
    unit: str,
    port: int,
) -> None:
    """Deal a table to sites on this machine and start them all; then `fedsynth run --federation` works."""
    with federation_installed():
        from fedsynth.deploy.nvflare.kits import Kit, create
        from fedsynth.deploy.nvflare.node import check_port
        from fedsynth.deploy.nvflare.session import Line, LineLost, wait_for
    agreed = Schema.load(schema)
    paid = ledger_of(agreed, schema)
    frames = _dealt(read_table(data), site_column, client_column, [name.strip() for name in sites.split(",")])
    create(tuple(frames), "127.0.0.1", port, out)
    check_port(Kit.load(out / "server", "server"))
    create_keys(out / "keys", sites=tuple(frames), clients=_clients(frames, client_column))
    for name, frame in frames.items():
        folder = out / "sites" / name
        write_table(frame, folder / "rows.parquet")
        agreed.save(folder / "schema.json")
        if paid is not None:  # by these very rows: each site counts it
            for source, target in zip(_files(schema), _files(folder / "schema.json"), strict=True):
                shutil.copyfile(source, target)
        keys = _site_keys(client_column, epsilon, delta, unit, agreed.label)
        (out / "keys" / name).rename(folder / "keys")
        (folder / "site.toml").write_text(tomli_w.dumps(keys))
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
        f"--recipe dpd_fvae --epsilon 8 --delta {delta:g} --out RUN\nand at the end:\n  fedsynth federation stop {out}"
    )


def _dealt(
    frame: pd.DataFrame, site_column: str | None, client_column: str | None, sites: list[str]
) -> dict[str, pd.DataFrame]:
    """Rows by site: by the column, or clients in turn."""
    for name in (site_column, client_column):
        if name is not None and name not in frame.columns:
            raise BadInput(
                f"column {name!r} is not in the table; it has {', '.join(map(str, frame.columns))}"
            )
    if site_column is not None:
        lost = int(frame[site_column].isna().sum())
        if lost:
            raise BadInput(
                f"--site-column {site_column}: {lost} of {len(frame)} rows name no site; fill or drop them"
            )
        parts = {str(name): part.drop(columns=site_column) for name, part in frame.groupby(site_column)}
        dealt = dict(zip(_plain(list(parts)), parts.values(), strict=True))
    else:
        owner = np.arange(len(frame)) if client_column is None else pd.factorize(frame[client_column])[0]
        dealt = {name: frame[owner % len(sites) == turn] for turn, name in enumerate(sites)}
    empty = [name for name, part in dealt.items() if part.empty]
    if empty:
        raise BadInput(f"no rows are left for {', '.join(empty)}; name fewer --sites")
    return {name: part.reset_index(drop=True) for name, part in dealt.items()}


def _files(schema: Path) -> tuple[Path, Path]:
    """The ledger beside a schema, and the file that guards its end."""
    return beside(schema), head_path(beside(schema))


def _clients(frames: dict[str, pd.DataFrame], client_column: str | None) -> int:
    """How many there are over all sites: a sealed sum must have room for them."""
    if client_column is None:
        return len(frames)
    return sum(frame[client_column].nunique() for frame in frames.values())


def _plain(names: list[str]) -> list[str]:
    """Names that certificates take: lower-case letters, digits and hyphens, no two alike.

    >>> _plain(["Zürich", "St. Mary", "st mary", "北京"])
    ['zurich', 'st-mary', 'st-mary-2', 'site']
    """
    found: list[str] = []
    for name in names:
        letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        plain = re.sub(r"[^a-z0-9]+", "-", letters).strip("-")[:30].strip("-") or "site"
        others = (f"{plain}-{number}" for number in count(2))
        found.append(next(other for other in chain([plain], others) if other not in found))
    return found


def _site_keys(
    column: str | None, epsilon: float, delta: float, unit: str, label: str | None
) -> dict[str, dict[str, object]]:
    data: dict[str, object] = {"file": "rows.parquet", "schema": "schema.json"}
    data |= {"client_column": column} if column else {}
    data |= {"label": label} if label else {}
    recipes = [name for name, recipe in RECIPES.items() if not recipe.pooled]
    return {
        "data": data,
        "budget": {"epsilon": epsilon, "delta": delta, "unit": unit},
        "policy": {
            "recipes": recipes,
            "transports": ["clear", "secagg", "he"],
            "minimum_cohort": 2,
            "inspect": True,
        },
        "keys": {"folder": "keys"},
        "state": {"folder": "state"},
    }


def _start(out: Path, name: str, words: list[str]) -> None:
    with (out / f"{name}.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "fedsynth.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
