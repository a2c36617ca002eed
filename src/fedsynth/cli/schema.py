"""The commands `fedsynth schema draft`, `fedsynth schema check` and (in schema_text.py) `fedsynth schema text`."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from fedsynth.cli.exit_codes import Code
from fedsynth.cli.payment import budget_of
from fedsynth.data.clients import clients_from
from fedsynth.data.conform import conform
from fedsynth.data.declaration import Declared, read_file, read_flag
from fedsynth.data.draft import draft_image_schema, draft_schema, require_columns
from fedsynth.data.encode import ImageEncoding
from fedsynth.data.image import is_images, read_images
from fedsynth.data.schema import Column, Schema
from fedsynth.data.table import check as check_table
from fedsynth.data.table import read_table
from fedsynth.data.text import read_texts
from fedsynth.errors import BadInput
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.paid_schema import pay_for_schema

_REVIEW = (
    "Inferred bounds and categories were read from the rows and can give a person away. Correct them to what "
    'is publicly known and write "public" in "provenance", or pay for them out of the privacy budget.'
)

_LEFT_OUT = (
    "because nothing in it stands out of the noise: drop it from the file, or write it into the schema with bounds or "
    "categories that are publicly known"
)
_SOURCES = {"inferred": "inferred: review, or pay for it", "paid": "paid for", "public": "as you declare"}


def draft(
    file: Path,
    out: Path,
    label: str | None,
    client_column: str | None,
    pay: str | None,
    column_types: list[str] | None,
    types: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Guess a schema from rows, for you to review."""
    if out.exists() and not force:
        raise BadInput(f"{out}: this file exists; choose another name or overwrite it with --force")
    if pay is None and (types is not None or column_types):
        raise BadInput(
            "--type and --types: only with --pay; without it, correct the types in the draft itself"
        )
    left_out: list[str] = []
    if pay is None:
        schema = _draft(file, label, client_column)
    else:
        listed = [*([] if types is None else read_file(types)), *map(read_flag, column_types or ())]
        schema, left_out = _paid(file, label, client_column, listed, budget_of(pay), out)
    schema.save(out)
    if as_json:
        told = {"out": str(out), "inferred": schema.inferred(), "schema": schema.to_dict()}
        typer.echo(json.dumps({**told, "left_out": left_out}))
        return
    typer.echo(f"Wrote {out}: {_counted(schema)}.")
    for column in schema.columns:
        typer.echo(f"  {_described(column)} ({_SOURCES[schema.provenance.get(column.name, 'public')]})")
    for name in left_out:
        typer.echo(f"  {name}: left out, {_LEFT_OUT}")
    if pay is not None:
        typer.echo(f"What it cost is in {beside(out)}; every run on this schema counts it.")
    elif schema.inferred():
        typer.echo(_REVIEW)


def check(
    file: Path,
    schema: Path,
    text_column: str,
    as_json: bool,
) -> None:
    """Check that data fits its schema; prints every problem. Exit code 0 if it fits, 1 if not."""
    known = Schema.load(schema)
    problems = _problems(file, known, text_column)
    if as_json:
        typer.echo(json.dumps({"fits": not problems, "problems": problems, "inferred": known.inferred()}))
    else:
        for problem in problems:
            typer.echo(problem)
        typer.echo(f"{len(problems)} problems." if problems else f"{file} fits {schema}.")
        if known.inferred():
            typer.echo(f"Still inferred (review, or pay for it): {', '.join(known.inferred())}.")
    if problems:
        raise typer.Exit(Code.FAILED)


def _draft(file: Path, label: str | None, client_column: str | None) -> Schema:
    if file.name.endswith((".jsonl", ".jsonl.gz")):
        raise BadInput(f"{file}: holds texts; their schema is written by `fedsynth schema text`")
    if not is_images(file):
        return draft_schema(read_table(file), label=label, client_column=client_column)
    if label is not None or client_column is not None:
        raise BadInput(
            "--label and --client-column name columns of a table; images bring their labels themselves"
        )
    return draft_image_schema(*read_images(file))


def _paid(
    file: Path,
    label: str | None,
    client_column: str | None,
    types: list[Declared],
    budget: tuple[float, float],
    out: Path,
) -> tuple[Schema, list[str]]:
    """The schema that the rows paid for, its cost in the ledger beside it, and the columns that it leaves out."""
    if is_images(file) or file.name.endswith((".jsonl", ".jsonl.gz")):
        raise BadInput(
            "--pay: only columns of a table can be paid for; an image's classes are declared in its schema, and "
            "words are paid for by `fedsynth schema text --pay`"
        )
    frame = read_table(file, as_written=True)
    require_columns(frame, label=label, client_column=client_column)
    raw = clients_from(frame, client_column=client_column, clients=None if client_column else 1)
    schema = pay_for_schema(
        raw,
        epsilon=budget[0],
        delta=budget[1],
        ledger=Ledger(beside(out)),
        rng=Rng(),
        unit="client" if client_column else "record",
        label=label,
        types=types,
    )
    return schema, [str(name) for name in frame.columns if name not in (*schema.names, client_column)]


def _problems(file: Path, schema: Schema, text_column: str) -> list[str]:
    if schema.kind == "table":
        return check_table(conform(read_table(file, schema), schema), schema)
    try:
        if schema.kind == "text":
            read_texts(file, text_column, schema.client)
        else:
            ImageEncoding(schema).encode(*read_images(file))
    except BadInput as error:
        return [str(error)]
    return []


def _counted(schema: Schema) -> str:
    if schema.kind == "image":
        return f"images of {schema.height} x {schema.width} pixels, {schema.channels} channel(s)"
    return f"{len(schema.columns)} columns"


def _described(column: Column) -> str:
    """A column in a line: its name, type and values."""
    if column.numeric:
        values = f"{column.bounds[0]:.10g} to {column.bounds[1]:.10g}"
    else:
        more = f", ... ({len(column.labels)})" if len(column.labels) > 6 else ""
        values = ", ".join(column.labels[:6]) + more
    return f"{column.name}: {column.type}, {values}{', or missing' if column.missing else ''}"
