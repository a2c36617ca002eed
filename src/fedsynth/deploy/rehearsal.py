"""A federation on one machine, for rehearsal: its rows dealt to sites, and each site's folder."""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from fedsynth.data.linked import LinkedSchema, link
from fedsynth.data.linked_tables import Linked
from fedsynth.data.schema import Schema
from fedsynth.data.table_files import read_table, write_table
from fedsynth.errors import BadInput
from fedsynth.privacy.chain import head_path
from fedsynth.recipes.registry import all_recipes
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.payer import ledger_of

Rows = Any  # a table, or linked tables by name


def dealt_rows(
    data: Path, schema: Schema, site_column: str | None, client_column: str | None, sites: list[str]
) -> dict[str, Rows]:
    """Read a table or linked ones and deal them to sites."""
    if not schema.tables:
        return deal(read_table(data, schema), site_column, client_column, sites)
    for flag, column in (("--site-column", site_column), ("--client-column", client_column)):
        if column is not None:
            raise BadInput(f"{flag} {column}: persons of linked tables are dealt in turn; leave it out")
    linked = Linked(schema)
    return deal_persons(linked.tables, linked.read(data), sites)


def deal(
    frame: pd.DataFrame, site_column: str | None, client_column: str | None, sites: list[str]
) -> dict[str, pd.DataFrame]:
    """Deal rows to sites: by the column, or clients in turn."""
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
        dealt = dict(zip(plain_names(list(parts)), parts.values(), strict=True))
    else:
        owner = np.arange(len(frame)) if client_column is None else pd.factorize(frame[client_column])[0]
        dealt = {name: frame[owner % len(sites) == turn] for turn, name in enumerate(sites)}
    empty = [name for name, part in dealt.items() if part.empty]
    if empty:
        raise BadInput(f"no rows are left for {', '.join(empty)}; name fewer --sites")
    return {name: part.reset_index(drop=True) for name, part in dealt.items()}


def deal_persons(
    schema: LinkedSchema, tables: Mapping[str, pd.DataFrame], sites: list[str]
) -> dict[str, dict[str, pd.DataFrame]]:
    """Deal linked tables to sites: persons in turn, each with all rows that belong to it."""
    link(schema, tables)  # refuse rows without a person before any is dealt
    turns = {schema.root.name: np.arange(len(tables[schema.root.name])) % len(sites)}
    if len(turns[schema.root.name]) < len(sites):
        raise BadInput(f"no persons are left for {sites[-1]}; name fewer --sites")
    for table in schema.tables[1:]:
        above = schema.table(str(table.parent))
        rows = pd.Index(tables[above.name][above.id]).get_indexer(tables[table.name][table.key])
        turns[table.name] = turns[above.name][rows]
    return {
        site: {name: tables[name][of == turn].reset_index(drop=True) for name, of in turns.items()}
        for turn, site in enumerate(sites)
    }


def plain_names(names: list[str]) -> list[str]:
    """Turn names into those that certificates take: lower-case letters, digits and hyphens, no two alike.

    >>> plain_names(["Zürich", "St. Mary", "st mary", "北京"])
    ['zurich', 'st-mary', 'st-mary-2', 'site']
    """
    chosen: list[str] = []
    for name in names:
        letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        plain = re.sub(r"[^a-z0-9]+", "-", letters).strip("-")[:30].strip("-") or "site"
        candidates = chain([plain], (f"{plain}-{number}" for number in count(2)))
        chosen.append(next(candidate for candidate in candidates if candidate not in chosen))
    return chosen


def count_clients(frames: Mapping[str, Rows], client_column: str | None, schema: Schema) -> int:
    """Count the clients of all sites: a sealed sum must have room for them."""
    if schema.tables:
        return sum(len(tables[schema.tables[0].name]) for tables in frames.values())
    if client_column is None:
        return len(frames)
    return sum(frame[client_column].nunique() for frame in frames.values())


def write_site(
    folder: Path, rows: Rows, schema: Path, client_column: str | None, budget: dict[str, Any]
) -> None:
    """Write a site's rows, its schema and a site.toml that allows everything but pooled recipes."""
    agreed = Schema.load(schema)
    linked = isinstance(rows, dict)
    if linked:
        (folder / "rows").mkdir(parents=True)
    for name, frame in rows.items() if linked else [("", rows)]:
        write_table(frame, folder / (f"rows/{name}.parquet" if linked else "rows.parquet"))
    agreed.save(folder / "schema.json")
    if ledger_of(agreed, schema) is not None:  # paid for by these very rows: each site counts it
        for source, target in zip(_files(schema), _files(folder / "schema.json"), strict=True):
            shutil.copyfile(source, target)
    data = {"file": "rows" if linked else "rows.parquet", "schema": "schema.json"}
    data |= {"client_column": client_column} if client_column else {}
    data |= {"label": agreed.label} if agreed.label else {}
    policy = {
        "recipes": [name for name, recipe in all_recipes().items() if not recipe.pooled],
        "transports": ["clear", "secagg", "he"],
        "minimum_cohort": 2,
        "inspect": True,
    }
    keys = {"data": data, "budget": budget, "policy": policy}
    keys |= {"keys": {"folder": "keys"}, "state": {"folder": "state"}}
    (folder / "site.toml").write_text(tomli_w.dumps(keys))


def _files(schema: Path) -> tuple[Path, Path]:
    """The ledger beside a schema, and the file that guards its end."""
    return beside(schema), head_path(beside(schema))
