"""The schema and the rows that a request names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fedsynth.data.clients import RawClients, together
from fedsynth.data.modality import Data, Source, modality_of
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.synthesis.payer import check_payer
from fedsynth.synthesis.request import Request


def schema_of(request: Request) -> Schema:
    """Load the schema of a request, with the label and client column that it names."""
    if request.schema is None:
        raise BadInput(
            "--schema: a public schema is needed; start with `fedsynth schema draft DATA --out schema.json`"
        )
    schema = Schema.load(request.schema)
    if request.private:
        recipe = recipe_named(request.resolved(schema).recipe)
        unit, _ = recipe.protection(request.unit, request.trust)
        owner = request.client_column or schema.client
        check_payer(schema, None if request.clients else owner, unit)
    schema = schema.with_label(request.label) if request.label else schema
    return schema.with_client(request.client_column) if request.client_column else schema


def read_clients(request: Request, schema: Schema) -> RawClients:
    """Read the rows of a request and their owners."""
    if request.data is None:
        raise BadInput(
            "DATA: name the file or folder that holds the rows, for example fedsynth run patients.csv ..."
        )
    return modality_of(schema).clients(_source(request, schema, request.data))


def clients_in(data: Data, request: Request, schema: Schema) -> RawClients:
    """The clients of what was passed to `Synthesizer.fit`, owned as the request says.

    A list has one entry for each site. Without an owner's column a site is one client, as in a federation.
    """
    if isinstance(data, RawClients):
        return data
    source = _source(request, schema, "")
    if not isinstance(data, list) or (schema.vocabulary and all(isinstance(one, str) for one in data)):
        return _owned(data, source, schema)
    if not data or source.clients is not None or schema.tables:
        reason = (
            "linked tables"
            if schema.tables
            else "clients= deals out the rows of one table, and"
            if data
            else "it"
        )
        raise BadInput(f"data: {reason} cannot be a list with an entry for each site; pass one table")
    alone = replace(source, alone=source.client_column is None)
    return together([_owned(site, alone, schema) for site in data], schema)


def _owned(data: Data, source: Source, schema: Schema) -> RawClients:
    modality = modality_of(schema)
    if isinstance(data, str | Path):
        return modality.clients(replace(source, path=data))
    if isinstance(data, np.ndarray):
        data = (data, None)
    fits = isinstance(data, list | pd.DataFrame) if schema.vocabulary else modality.fits(data)
    if not fits:
        raise BadInput(
            f"data: got an object of type {type(data).__name__} for {modality.describe()}; expected "
            f"{modality.expected}, the path of a file, a list with one of these for each site, or what clients_from "
            "returns"
        )
    return modality.owned(data, source)


def _source(request: Request, schema: Schema, path: Path | str) -> Source:
    column = request.client_column or (schema.client if request.clients is None else None)
    rng, texts = Rng(request.split_seed).at("split"), request.text_column or "text"
    return Source(path, column, request.clients, request.split, rng, texts)
