"""The commands `fedsynth ledger show` and `fedsynth ledger verify`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import typer

from fedsynth.cli.exit_codes import Code
from fedsynth.errors import BadInput, nearest
from fedsynth.privacy.ledger import Ledger, Line, plain
from fedsynth.privacy.wording import event_words
from fedsynth.synthesis.released_files import problems_of

NAME = "ledger.jsonl"
UNITS = ("client", "record")


def show(
    folder: Path,
    delta: float | None,
    adjacency: str,
    unit: str | None,
    as_json: bool,
) -> None:
    """List every release, and what they cost together."""
    if unit not in (None, *UNITS):
        raise BadInput(f"--unit {unit}: {nearest(str(unit), UNITS)}")
    ledger = _ledger(folder)
    lines = ledger.lines()
    epsilon = None if delta is None else ledger.epsilon(delta, adjacency=adjacency, unit=unit)
    finite = None if epsilon is None or math.isinf(epsilon) else epsilon
    if as_json:
        typer.echo(json.dumps({"lines": [plain(line) for line in lines], "epsilon": finite, "delta": delta}))
        return
    for line in lines:
        typer.echo(_described(line))
    if epsilon is not None:
        cost = "unbounded" if finite is None else f"{finite:.4g}"
        typer.echo(
            f"Together: epsilon {cost} at delta {delta:g} ({adjacency}), over all runs on this ledger."
        )


def verify(folder: Path, as_json: bool) -> None:
    """Check the chain of hashes, and a run's files and statement against it. Exits with 1 if anything was changed."""
    ledger = _ledger(folder)
    run = folder if folder.is_dir() else folder.parent if folder.name == NAME else None
    problems = ledger.verify() or ([] if run is None else problems_of(run))
    if as_json:
        typer.echo(json.dumps({"intact": not problems, "problems": problems}))
    elif problems:
        typer.echo("\n".join(f"Broken: {problem}." for problem in problems))
    else:
        typer.echo(f"Intact: {len(ledger.lines())} lines, last hash {ledger.head[:16]}{_named(ledger)}.")
    if problems:
        raise typer.Exit(Code.FAILED)


def _named(ledger: Ledger) -> str:
    files = ledger.files()
    return "" if files is None else f", {len(files)} files as it names them"


def _ledger(folder: Path) -> Ledger:
    path = folder / NAME if folder.is_dir() else folder
    if not path.is_file():
        raise BadInput(f"{path}: there is no ledger; give the folder of a run, or the file {NAME}")
    return Ledger(path)


def _described(line: Line) -> str:
    if line.files is not None:
        return f"{line.index:5d}  {line.time[:19]}  {line.what}: {', '.join(sorted(line.files))}"
    times = "" if line.count == 1 else f" x {line.count}"
    whom = f"{line.holder:8s} {line.unit}/{line.trust}"
    return f"{line.index:5d}  {line.time[:19]}  {whom}  {line.what}{times}: {event_words(line.event)}"
