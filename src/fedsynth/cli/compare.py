"""The command `fedsynth compare`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.flags import argument
from fedsynth.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table

    from fedsynth.assess.report.runs import RunSummary

_FEWEST = 2
_NAMES, _COLUMN = 20, 28  # letters of the first column and of a run


def compare(
    runs: Annotated[list[Path], argument("Two runs or more.", "RUN RUN ...")],
    as_json: flags.AsJson = False,
) -> None:
    """Set runs side by side: promise, faithfulness and usefulness. Scores come from real rows: internal.

    Example: fedsynth compare RUN-epsilon-1 RUN-epsilon-8
    """
    from rich.console import Console

    from fedsynth.assess.report.runs import scored_on_others, summary, why_not_compared
    from fedsynth.assess.suite import INTERNAL

    if len(runs) < _FEWEST:
        raise BadInput(f"{len(runs)} run: name two or more, for example fedsynth compare RUN-1 RUN-2")
    summaries = [summary(path, str(path)) for path in runs]
    for path, run in zip(runs, summaries, strict=True):
        if run.state == "broken":
            raise BadInput(run.problem if str(path) in run.problem else f"{path}: {run.problem}")
    reason = why_not_compared(summaries)
    if as_json:
        entries = [run.to_dict() for run in summaries]
        apart = {what: scored_on_others(summaries, what) for what in ("real", "test")}
        typer.echo(
            json.dumps({"internal": INTERNAL, "not_compared": reason, "other_rows": apart, "runs": entries})
        )
        return
    console = Console(highlight=False)
    for some in _fitting(summaries, console.width):
        console.print(_table(some, reason))
    others = [scored_on_others(summaries, what) for what in ("real", "test")]
    for why in (reason, *others):
        if why:
            console.print(f"Not compared: {why}.", markup=False)
    if any(run.pairs is None and run.useful is None and run.frechet is None for run in summaries):
        console.print("Runs without scores: measure them with fedsynth report RUN --real FILE --test FILE.")
    console.print(f"{INTERNAL}; do not publish these numbers.")


def _fitting(runs: Sequence[RunSummary], width: int) -> list[Sequence[RunSummary]]:
    """The runs in groups of as many as fit side by side."""
    each = max(1, (width - _NAMES) // _COLUMN)
    return [runs[start : start + each] for start in range(0, len(runs), each)]


def _table(runs: Sequence[RunSummary], reason: str | None) -> Table:
    """A column for each run, a row for each thing to compare; image scores only where they can be."""
    from rich.table import Table

    from fedsynth.assess.image_steps import FRECHET

    table = Table(box=None, padding=(0, 2))
    table.add_column("")
    for run in runs:
        table.add_column(run.name, justify="right", overflow="fold")
    for name, cell in _ROWS.items():
        table.add_row(name, *(cell(run) for run in runs))
    if any(run.frechet for run in runs):
        values = [run.frechet.value if run.frechet else None for run in runs]
        table.add_row(FRECHET, *(["not compared"] * len(runs) if reason else map(_number, values)))
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _short(value: float | None) -> str:
    from fedsynth.assess.report.axis import short

    return "–" if value is None else short(value)


def _rounds(run: RunSummary) -> str:
    done = run.round or 0
    return str(done) if run.state == "finished" or run.rounds is None else f"{done} of {run.rounds}"


_ROWS: dict[str, Callable[[RunSummary], str]] = {
    "state": lambda run: run.state,
    "recipe": lambda run: run.recipe,
    "promise": lambda run: run.promise,
    "epsilon": lambda run: _short(run.epsilon),
    "last written": lambda run: run.date or "–",
    "rounds": _rounds,
    "loss": lambda run: _short(run.loss),
    "column shapes": lambda run: _number(run.shapes),
    "column pairs": lambda run: _number(run.pairs),
    "useful": lambda run: _number(run.useful),
    "  trained on real": lambda run: _number(run.useful_real),
}
