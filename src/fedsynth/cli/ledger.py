"""The commands `fedsynth ledger show` and `fedsynth ledger verify`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.exit_codes import Code
from fedsynth.cli.flags import argument, group, option
from fedsynth.cli.output import show as show_result
from fedsynth.errors import BadInput, nearest

if TYPE_CHECKING:
    from fedsynth.privacy.ledger import Ledger, LedgerLine

NAME = "ledger.jsonl"
UNITS = ("client", "record")
app = group("ledger", "List what was released, and check that the list is unchanged.")
Where = Annotated[Path, argument("A run's folder, or the ledger.jsonl itself.", "DIR")]


@app.command()
def show(
    folder: Where,
    delta: Annotated[float | None, option("Also print what it all costs at this delta.")] = None,
    adjacency: Annotated[str, option("add-remove, replace-one or zero-out.")] = "add-remove",
    unit: Annotated[str | None, option("client or record, where the ledger holds both.")] = None,
    as_json: flags.AsJson = False,
) -> None:
    """List every release, and what they cost together.

    Example: fedsynth ledger show RUN --delta 1e-5
    """
    from fedsynth.privacy.ledger import plain

    if unit not in (None, *UNITS):
        raise BadInput(f"--unit {unit}: {nearest(str(unit), UNITS)}")
    ledger = _ledger(folder)
    lines = ledger.lines()
    epsilon = None if delta is None else ledger.epsilon(delta, adjacency=adjacency, unit=unit)
    finite = None if epsilon is None or math.isinf(epsilon) else epsilon
    words = [_described(line) for line in lines]
    if epsilon is not None:
        cost = "unbounded" if finite is None else f"{finite:.4g}"
        words.append(
            f"Together: epsilon {cost} at delta {delta:g} ({adjacency}), over all runs on this ledger."
        )
    result = {"lines": [plain(line) for line in lines], "epsilon": finite, "delta": delta}
    show_result(as_json, result, "\n".join(words))


@app.command()
def verify(folder: Where, as_json: flags.AsJson = False) -> None:
    """Check a ledger, and a run's files and statement against it. Exits with 1 if anything was changed.

    Example: fedsynth ledger verify RUN
    """
    from fedsynth.synthesis.released_files import problems_of

    ledger = _ledger(folder)
    run = folder if folder.is_dir() else folder.parent if folder.name == NAME else None
    problems = ledger.verify() or ([] if run is None else problems_of(run))
    result = {"intact": not problems, "problems": problems}
    broken = "\n".join(f"Broken: {problem}." for problem in problems)
    show_result(as_json, result, broken or _intact(ledger))
    if problems:
        raise typer.Exit(Code.FAILED)


def _intact(ledger: Ledger) -> str:
    files = ledger.files()
    named = "" if files is None else f", {len(files)} files as it names them"
    return f"Intact: {len(ledger.lines())} lines, last hash {ledger.head[:16]}{named}."


def _ledger(folder: Path) -> Ledger:
    from fedsynth.privacy.ledger import Ledger

    path = folder / NAME if folder.is_dir() else folder
    if not path.is_file():
        raise BadInput(f"{path}: there is no ledger; give the folder of a run, or the file {NAME}")
    return Ledger(path)


def _described(line: LedgerLine) -> str:
    from fedsynth.privacy.wording import event_words

    if line.files is not None:
        return f"{line.index:5d}  {line.time[:19]}  {line.what}: {', '.join(sorted(line.files))}"
    times = "" if line.count == 1 else f" x {line.count}"
    whom = f"{line.holder:8s} {line.unit}/{line.trust}"
    return f"{line.index:5d}  {line.time[:19]}  {whom}  {line.what}{times}: {event_words(line.event)}"
