"""A federation on one machine, for rehearsal: its rows dealt to sites, and each site's folder."""

from __future__ import annotations

import re
import shutil
import unicodedata
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from fedsynth.data.schema import Schema
from fedsynth.data.table import write_table
from fedsynth.errors import BadInput
from fedsynth.privacy.chain import head_path
from fedsynth.recipes.registry import all_recipes
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.payer import ledger_of


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


def count_clients(frames: dict[str, pd.DataFrame], client_column: str | None) -> int:
    """Count the clients of all sites: a sealed sum must have room for them."""
    if client_column is None:
        return len(frames)
    return sum(frame[client_column].nunique() for frame in frames.values())


def write_site(
    folder: Path, frame: pd.DataFrame, schema: Path, client_column: str | None, budget: dict[str, Any]
) -> None:
    """Write a site's rows, its schema and a site.toml that allows everything but pooled recipes."""
    agreed = Schema.load(schema)
    write_table(frame, folder / "rows.parquet")
    agreed.save(folder / "schema.json")
    if ledger_of(agreed, schema) is not None:  # paid for by these very rows: each site counts it
        for source, target in zip(_files(schema), _files(folder / "schema.json"), strict=True):
            shutil.copyfile(source, target)
    data = {"file": "rows.parquet", "schema": "schema.json"}
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
