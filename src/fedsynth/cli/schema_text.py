"""The command `fedsynth schema text`: the public schema of texts, with a vocabulary that is public or paid for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedsynth.cli import flags
from fedsynth.cli.flags import argument, budget_in, option
from fedsynth.cli.output import show
from fedsynth.errors import BadInput

if TYPE_CHECKING:
    from fedsynth.data.schema import Schema

_SOURCES = {
    "public": "public, as you declare",
    "paid": "paid for",
    "inferred": "inferred: a private run refuses it; give --vocabulary or --pay",
}


def text(
    out: Annotated[Path, option("Where to write the schema.")],
    file: Annotated[
        Path | None, argument("Texts (JSON lines, CSV, Parquet), unless --vocabulary.", "FILE")
    ] = None,
    vocabulary: Annotated[
        str | None, option("bytes, or a file of public words, one per line, the most frequent first.")
    ] = None,
    pay: Annotated[str | None, option("Learn the words under noise.", metavar="epsilon=E[,delta=D]")] = None,
    words: Annotated[int, option("The most words to keep.", min=1)] = 1000,
    length: Annotated[int | None, option("Most words (20) or bytes (64) in a piece of text.", min=1)] = None,
    text_column: Annotated[str, option("Column that holds the texts.")] = "text",
    client_column: Annotated[str | None, option("Column that says who wrote a text.")] = None,
    force: flags.Force = False,
    as_json: flags.AsJson = False,
) -> None:
    """Write the schema of texts. Their units are bytes, words from a public file, or words that the clients pay for.

    With --pay the words come from one noisy release, those that clearly more than one client writes; its cost is
    written beside the schema (schema.ledger.jsonl) and counts in every run on it. Without --vocabulary and --pay the
    most frequent words are read off the texts and marked "inferred", which a private run refuses.

    Example: fedsynth schema text posts.jsonl --client-column user --pay epsilon=1 --out schema.json
    """
    from fedsynth.synthesis.folder import beside

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
    unit = "bytes" if schema.vocabulary == "bytes" else "words"
    sentence = f"Wrote {out}: {count} {unit} ({_SOURCES[source]})."
    if source == "paid":
        sentence += f"\nWhat it cost is in {beside(out)}; every run on this schema counts it."
    show(as_json, {"out": str(out), "vocabulary": source, "symbols": count}, sentence)


def _public(vocabulary: str, words: int, length: int | None) -> Schema:
    from fedsynth.data.schema import Schema
    from fedsynth.data.text import read_vocabulary

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
    from fedsynth.data.draft import draft_text_schema
    from fedsynth.data.text import read_texts
    from fedsynth.privacy.ledger import Ledger
    from fedsynth.rng import Rng
    from fedsynth.synthesis.folder import beside
    from fedsynth.synthesis.paid_vocabulary import pay_for_vocabulary

    if file is None:
        raise BadInput(
            "FILE: name the texts that the words are learned from, or give --vocabulary bytes or a file"
        )
    if pay is None:
        return draft_text_schema(read_texts(file, text_column, None)[text_column], words, length)
    if client_column is None:
        raise BadInput("--client-column: say who wrote a text, so that the words are paid for by client")
    epsilon, delta = budget_in(pay)
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
