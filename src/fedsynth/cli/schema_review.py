"""The command `fedsynth schema review`: go through what a draft read from rows, column by column."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth.cli import flags
from fedsynth.cli.flags import argument, option
from fedsynth.cli.output import show, tell
from fedsynth.errors import BadInput

if TYPE_CHECKING:
    from fedsynth.data.modality import Data
    from fedsynth.data.review import Inferred
    from fedsynth.data.schema import Schema

_GREETING = """\
{count} of {schema} were read from your rows, so a private run refuses them.
For each: what does everybody know, without looking at these rows?

  Enter    accept the proposal: it is public
  k        keep what was read: it is public as it is
  0 to 120 other bounds; or categories: F, M, X; or more of them: + X
  d        drop the column         s   skip it (stays inferred)
  b        one back                q   write the file and stop
"""


def review(
    schema: Annotated[Path, argument("The schema to review; it is written when you are done.", "SCHEMA")],
    file: Annotated[
        Path | None, argument("The rows: answers that they do not fit are refused.", "FILE")
    ] = None,
    out: Annotated[Path | None, option("Write here instead, and leave SCHEMA as it is.")] = None,
    accept_all: Annotated[
        bool,
        option("Accept every proposal without asking; privacy statements will say so.", "--accept-all"),
    ] = False,
    listing: Annotated[bool, option("Only list what is inferred, with the proposals.", "--list")] = False,
    as_json: flags.AsJson = False,
) -> None:
    r"""Say what is publicly known of the inferred columns of a schema.

    For each column it shows what was read from the rows, proposes rounder and wider bounds, and asks. What you answer
    is marked "public" in the file. A proposal is only a suggestion made from the rows: accept it if you would have said
    the same without them. Answers can come from standard input, one line for each column.

    Example: fedsynth schema review schema.json patients.csv

    Example: printf '0 to 110\nk\n' | fedsynth schema review schema.json
    """
    from fedsynth.data.review import inferred_in, with_proposals
    from fedsynth.data.schema import Schema

    known = Schema.load(schema)
    entries = inferred_in(known)
    if listing:
        show(as_json, {"inferred": [_as_json(entry) for entry in entries]}, _listed(entries, schema))
        return
    rows = _read(file, known)
    if accept_all:
        known = with_proposals(known)
        _check(known, rows)
    elif entries:
        tell(_GREETING.format(count=_counted(len(entries)), schema=schema))
        known = _ask_about(known, entries, rows)
    known.save(out or schema)
    left = known.inferred()
    reviewed = len(entries) - len(left)
    words = [f"Wrote {out or schema}: {_counted(reviewed)} reviewed."]
    rows_of = file or "FILE"
    if left:
        words += [
            f"Still inferred: {', '.join(left)}.",
            f"Go on: fedsynth schema review {out or schema} {rows_of}",
        ]
    else:
        words += ["Nothing is inferred any more."]
        words += [f"Next: fedsynth run {rows_of} --schema {out or schema} --epsilon 1 --out RUN"]
    show(as_json, {"out": str(out or schema), "reviewed": reviewed, "inferred": list(left)}, "\n".join(words))


def _ask_about(schema: Schema, entries: list[Inferred], rows: Data | None) -> Schema:
    """Ask about each entry; every answer makes the next schema, so that one can go back."""
    schemas, place = [schema], 0
    while place < len(entries):
        entry = entries[place]
        tell(_question(entry, place + 1, len(entries)))
        answer = _answer()
        if answer == "q":
            break
        if answer == "b":
            place, schemas = max(0, place - 1), schemas[: max(1, place)]
            continue
        try:
            schemas = [*schemas[: place + 1], _with(schemas[place], entry, answer, rows)]
        except BadInput as error:
            if not sys.stdin.isatty():
                raise
            tell(f"  {error}")
            continue
        place += 1
    return schemas[-1]


def _answer() -> str:
    """Return the next line; the end of the input stops the review, and what was answered is kept."""
    if sys.stdin.isatty():
        typer.echo("  > ", nl=False, err=True)
    line = sys.stdin.readline()
    return line.strip() if line else "q"


def _with(schema: Schema, entry: Inferred, answer: str, rows: Data | None) -> Schema:
    from fedsynth.data.review import answered, made_public, with_rules, without

    if answer == "s":
        return schema
    if entry.name.endswith("constraints") and entry.column is None and answer not in ("", "k"):
        return with_rules(schema, entry.name, "" if answer == "d" else answer)
    if answer == "d":
        if entry.column is None:
            raise BadInput(f"{entry.name}: is not a column; keep it (k), or skip it (s)")
        return without(schema, entry.name)
    column = entry.proposal if not answer else entry.column
    if answer and answer != "k":
        if entry.column is None:
            raise BadInput(f"{entry.name}: {answer!r} is not an answer; keep it (k), or skip it (s)")
        column = answered(entry.column, answer)
    changed = made_public(schema, entry.name, column)
    _check(changed, rows, entry.name)
    return changed


def _check(schema: Schema, rows: Data | None, name: str | None = None) -> None:
    """Refuse a schema that the rows do not fit; of a column, for its own problems alone."""
    from fedsynth.data.table import check

    if rows is None:
        return
    problems = [problem for problem in check(rows, schema) if name is None or f"column {name!r}" in problem]
    if problems:
        raise BadInput("; ".join(problems[:5]))


def _read(file: Path | None, schema: Schema) -> Data | None:
    from fedsynth.data.modality import modality_of

    if file is None:
        return None
    if schema.kind != "table":
        raise BadInput(f"{file}: rows are checked for a single table only; leave FILE out")
    return modality_of(schema).read(file)


def _question(entry: Inferred, number: int, count: int) -> str:
    others = "value lies outside" if entry.column is not None and entry.column.numeric else "other exists"
    proposal = _wider(entry) or f"as it is, if everybody knows that no {others}"
    if entry.column is None and entry.name.endswith("constraints"):
        proposal = "all of them, if they hold for everybody; or the numbers of those that do: 1, 3"
    return f"{number}/{count}  {entry.name}: {entry.described}\n  proposal: {proposal}"


def _listed(entries: list[Inferred], schema: Path) -> str:
    if not entries:
        return f"{schema}: nothing is inferred."
    lines = [f"{_counted(len(entries))} of {schema} were read from rows:"]
    for entry in entries:
        wider = _wider(entry)
        lines.append(f"  {entry.name}: {entry.described}" + (f"; proposal: {wider}" if wider else ""))
    return "\n".join([*lines, f"Review them: fedsynth schema review {schema}"])


def _wider(entry: Inferred) -> str:
    """Return the proposal in words, empty where it is what was read."""
    proposal = entry.proposal
    return "" if proposal is None or proposal == entry.column else proposal.allowed()


def _as_json(entry: Inferred) -> dict[str, Any]:
    column, wider = entry.column, entry.proposal
    return {
        "name": entry.name,
        "inferred": None if column is None else column.to_dict(),
        "proposal": None if wider is None else wider.to_dict(),
    }


def _counted(columns: int) -> str:
    return f"{columns} column{'' if columns == 1 else 's'}"
