"""The schema and the rows that a request names."""

from __future__ import annotations

from fedsynth.data.clients import RawClients, clients_in
from fedsynth.data.modality import Source
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
    return clients_in(path_of(request), source_of(request, schema), schema)


def path_of(request: Request) -> str:
    """The file or folder of a request's rows."""
    if request.data is None:
        raise BadInput(
            "DATA: name the file or folder that holds the rows, for example fedsynth run patients.csv ..."
        )
    return request.data


def source_of(request: Request, schema: Schema) -> Source:
    """Who owns the rows of a request."""
    column = request.client_column or (schema.client if request.clients is None else None)
    rng, texts = Rng(request.split_seed).at("split"), request.text_column or "text"
    return Source("", column, request.clients, request.split, rng, texts)
