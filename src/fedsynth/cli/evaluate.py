"""The command `fedsynth evaluate`: how faithful and how useful a synthetic data set is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fedsynth.data.conform import conform
from fedsynth.data.image import read_images
from fedsynth.data.schema import Schema
from fedsynth.data.table import read_table
from fedsynth.errors import BadInput
from fedsynth.evaluation.score import Score
from fedsynth.evaluation.suite import INTERNAL, Data, evaluate

_SECONDS = 5.0  # between two lines when there is no terminal
_BETTER = {"max": "higher", "min": "lower", "range": "within"}
_BESIDE = {  # entries of a score's detail that a reader needs beside it
    "train_on_real": "trained on real",
    "majority": "majority class",
    "real_halves": "two halves of real",
    "real_alone": "real alone",
    "real_repeated": "real repeated",
    "real_and_synthetic": "with synthetic",
    "test": "unseen real rows",
    "network": "network",
}


def register(main: typer.Typer) -> None:
    """Add the command to the main one."""
    main.command("evaluate")(evaluate_command)


def evaluate_command(
    real: Annotated[Path, typer.Option(help="Real data that the generator was trained on.")],
    synthetic: Annotated[Path, typer.Option(help="Synthetic data: a table or images, as the schema says.")],
    schema: Annotated[Path, typer.Option(help="The schema.json of both.")],
    test: Annotated[Path | None, typer.Option(help="Real data that the generator never saw.")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="More rows and more classifiers; slow.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for scores.json and details.json.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps what was measured (default: OUT/cache).")
    ] = None,
    seed: Annotated[int, typer.Option(help="For subsets of rows, folds and classifiers.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output.")
    ] = False,
) -> None:
    """Measure how faithful and useful synthetic data are. Compares with real rows: the result is internal.

    Without --test, a fifth of the real rows is held out from the classifiers; the generator may have seen them.

    Example: fedsynth evaluate --real adult.csv --synthetic RUN/synthetic.parquet --schema RUN/schema.json
    """
    known = Schema.load(schema)
    kept = cache or (out / "cache" if out else None)
    with _StepProgress(quiet=quiet) as progress:
        found = evaluate(
            _read(real, known, ours=True),
            _read(synthetic, known),
            known,
            test=None if test is None else _read(test, known, ours=True),
            deep=deep,
            seed=seed,
            progress=progress,
            cache=kept,
        )
    if out:
        found.save(out)
    if as_json:
        printed: dict[str, Any] = {"internal": INTERNAL, "rows": found.details["rows"]}
        typer.echo(json.dumps({**printed, "scores": [score.to_dict() for score in found.scores]}))
        return
    for line in _lines(found.scores):
        typer.echo(line)
    typer.echo(INTERNAL + "; do not publish these numbers.")
    if out:
        typer.echo(f"Wrote {out / 'scores.json'}.")


def _read(path: Path, schema: Schema, *, ours: bool = False) -> Data:
    """A table or images; rows of our own are made to fit columns that were paid for, as in training."""
    if schema.kind == "table":
        frame = read_table(path, schema)
        return conform(frame, schema) if ours else frame
    if schema.kind == "image":
        return read_images(path)
    raise BadInput(f"{path}: data of kind {schema.kind!r} cannot be read here; expected a table or images")


def _lines(scores: Iterable[Score]) -> list[str]:
    """A readable line for each score: name, value, which way is better, and what it should be set beside."""
    listed = list(scores)
    width = max((len(score.name) for score in listed), default=0)
    return [f"{score.name:<{width}}  {_told(score)}" for score in listed]


def _told(score: Score) -> str:
    if score.value is None:
        return f"failed: {score.failed}"
    spread = "" if score.spread is None else f" ± {score.spread:.3f}"
    beside = "; ".join(
        f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}"
        for key, name in _BESIDE.items()
        if (value := score.detail.get(key)) is not None and not (key == "test" and isinstance(value, str))
    )
    better = f"{_BETTER[score.goal]} is better"
    return f"{score.value:7.3f}{spread:<8}  {better:<16}  {beside}".rstrip()


class _StepProgress:
    """Shows which piece is being measured: a bar on a terminal, a line now and then elsewhere. On stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            parts = (BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
            title = TextColumn("{task.description}")
            self._bar = Progress(*parts, title, TimeElapsedColumn(), console=self._console)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, title: str, done: int, total: int) -> None:
        """Show what comes next."""
        if self._quiet:
            return
        if self._bar:
            if self._task is None:
                self._task = self._bar.add_task(title, total=total)
            self._bar.update(self._task, description=title, completed=done)
            return
        now = time.monotonic()
        if now - self._last >= _SECONDS or done == total:
            self._last = now
            self._console.print(f"{done}/{total}  {title}", soft_wrap=True)
