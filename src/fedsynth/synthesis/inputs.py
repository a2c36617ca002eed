"""The schema and the rows that a request names."""

from __future__ import annotations

from fedsynth.data.clients import RawClients, clients_from, image_clients_from, text_clients_from
from fedsynth.data.image import is_images, read_images, read_owners
from fedsynth.data.schema import Schema
from fedsynth.data.table import read_table
from fedsynth.data.text import read_texts
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
    column = request.client_column or (schema.client if request.clients is None else None)
    rng = Rng(request.split_seed).at("split")
    if schema.kind == "image":
        images, labels = read_images(request.data)
        if column is not None:
            return image_clients_from(images, labels, owners=read_owners(request.data, column))
        if request.clients is None:
            raise BadInput(
                "--clients: say to how many simulated clients the images are dealt, or with --client-column which "
                "array of an npz file names their owners"
            )
        return image_clients_from(images, labels, clients=request.clients, split=request.split, rng=rng)
    if schema.kind == "text":
        texts = read_texts(request.data, request.text_column or "text", column)
        owners = None if column is None else texts[column].to_numpy()
        return text_clients_from(
            texts[request.text_column or "text"].tolist(),
            schema,
            owners=owners,
            clients=None if column else request.clients,
            rng=rng,
        )
    if is_images(request.data):
        raise BadInput(
            f"{request.data}: images, but the schema is of a {schema.kind}; expected a CSV or Parquet file"
        )
    frame = read_table(request.data, schema)
    if column is None and schema.client in frame.columns:
        frame = frame.drop(columns=schema.client)
    if column is None and request.clients is None:  # nothing says whose a row is: each is somebody's
        return clients_from(frame, clients=len(frame), split="rows")
    return clients_from(
        frame, client_column=column, clients=request.clients, split=request.split, label=schema.label, rng=rng
    )
