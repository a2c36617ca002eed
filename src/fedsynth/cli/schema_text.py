"""The command `fedsynth schema text`: the public schema of texts, with a vocabulary that is public or paid for."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from fedsynth.cli.payment import budget_of
from fedsynth.data.draft import draft_text_schema
from fedsynth.data.schema import Schema
from fedsynth.data.text import read_texts, read_vocabulary
from fedsynth.errors import BadInput
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng
from fedsynth.synthesis.folder import beside
from fedsynth.synthesis.paid_vocabulary import pay_for_vocabulary

_SOURCES = {
    "public": "public, as you declare",
    "paid": "paid for",
    "inferred": "inferred: a private run refuses it; give --vocabulary or --pay",
}


def text(
    out: Path,
    file: Path | None,
    vocabulary: str | None,
    pay: str | None,
    words: int,
    length: int | None,
    text_column: str,
    client_column: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the schema of texts: bytes, words from a public file, or words that the clients pay for."""
    if out.exists() and not force:
        raise BadInput(f"{out}: this file exists; choose another name or overwrite it with --force")
    if vocabulary is not None and pay is not None:
        raise BadInput("--vocabulary and --pay: words are public or paid for; choose one of them")
    schema = (
        _public(vocabulary, words, length)
        if vocabulary
        else _learned(file, pay, words, length, text_column, client_column, out)
    )
    schema.save(out)
    count = 256 if schema.vocabulary == "bytes" else len(schema.vocabulary or ())
    source = schema.provenance.get("vocabulary", "public")
    if as_json:
        typer.echo(json.dumps({"out": str(out), "vocabulary": source, "symbols": count}))
        return
    typer.echo(
        f"Wrote {out}: {count} {'bytes' if schema.vocabulary == 'bytes' else 'words'} ({_SOURCES[source]})."
    )
    if source == "paid":
        typer.echo(f"What it cost is in {beside(out)}; every run on this schema counts it.")


def _public(vocabulary: str, words: int, length: int | None) -> Schema:
    listed = "bytes" if vocabulary == "bytes" else read_vocabulary(vocabulary)[:words]
    return Schema(kind="text", vocabulary=listed, length=length)


def _learned(
    file: Path | None,
    pay: str | None,
    words: int,
    length: int | None,
    text_column: str,
    client_column: str | None,
    out: Path,
) -> Schema:
    if file is None:
        raise BadInput(
            "FILE: name the texts that the words are learned from, or give --vocabulary bytes or a file"
        )
    if pay is None:
        return draft_text_schema(read_texts(file, text_column, None)[text_column], words, length)
    if client_column is None:
        raise BadInput("--client-column: say whose a text is, so that the words are paid for by client")
    epsilon, delta = budget_of(pay)
    frame = read_texts(file, text_column, client_column)
    paid = pay_for_vocabulary(
        frame[text_column].tolist(),
        frame[client_column].to_numpy(),
        epsilon=epsilon,
        delta=delta,
        most=words,
        length=length,
        ledger=Ledger(beside(out)),
        rng=Rng(),
    )
    return paid.with_client(client_column)  # who paid: a promise to others cannot count on it
