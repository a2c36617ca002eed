"""The command `fedsynth evaluate`: how faithful and how useful a synthetic data set is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import pandas as pd
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fedsynth.data.conform import conform
from fedsynth.data.image import read_images
from fedsynth.data.schema import Schema
from fedsynth.data.table import read_table
from fedsynth.errors import BadInput, nearest
from fedsynth.evaluation.efficientnet import efficientnet
from fedsynth.evaluation.features import FeatureNetwork, inception
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
    "real": "real",
    "unseen_real": "unseen real images",
    "network": "network",
}


def register(main: typer.Typer) -> None:
    """Add the command to the main one."""
    main.command("evaluate")(evaluate_command)


def evaluate_command(
    real: Annotated[Path, typer.Option(help="Real data that the generator was trained on.")],
    synthetic: Annotated[
        Path, typer.Option(help="Synthetic data: a table, images or texts, as the schema says.")
    ],
    schema: Annotated[Path, typer.Option(help="The schema.json of both.")],
    test: Annotated[Path | None, typer.Option(help="Real data that the generator never saw.")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="More rows and more classifiers; slow.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for scores.json and details.json.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps what was measured (default: OUT/cache).")
    ] = None,
    network: Annotated[
        str, typer.Option(help="For images: lenet (trained on real ones), efficientnet-lite0, or a file.")
    ] = "lenet",
    text_column: Annotated[str, typer.Option(help="For texts in a table: the column.")] = "text",
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
            _read(real, known, text_column, ours=True),
            _read(synthetic, known, text_column),
            known,
            test=None if test is None else _read(test, known, text_column, ours=True),
            deep=deep,
            seed=seed,
            progress=progress,
            cache=kept,
            network=_network(network) if known.kind == "image" else None,
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


def _read(path: Path, schema: Schema, text_column: str, *, ours: bool = False) -> Data:
    """A table, images or texts; rows of our own are made to fit columns that were paid for, as in training."""
    if schema.kind == "table":
        frame = read_table(path, schema)
        return conform(frame, schema) if ours else frame
    return read_images(path) if schema.kind == "image" else _texts(path, text_column)


def _texts(path: Path, column: str) -> list[str]:
    """The lines of a .txt file, or a column of a table or of JSON lines."""
    name = path.name.lower()
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file; check the path")
    try:
        if name.endswith(".txt"):
            return path.read_text(encoding="utf-8").splitlines()
        lines = name.endswith((".jsonl", ".jsonl.gz"))
        frame = pd.read_json(path, lines=True, dtype=False) if lines else read_table(path)
    except ValueError as error:
        raise BadInput(f"{path}: cannot be read as texts ({error}); check the file") from None
    if column not in frame.columns:
        raise BadInput(f"{path}: has no column {column!r}; name it with --text-column")
    return [str(text) for text in frame[column].dropna()]


def _network(name: str) -> FeatureNetwork | None:
    """The network by name; None for the LeNet that is trained on the real images."""
    if name == "lenet":
        return None
    if name == "efficientnet-lite0":
        return efficientnet()
    if Path(name).suffix:
        return inception(name)
    raise BadInput(
        f"--network {name}: {nearest(name, ('lenet', 'efficientnet-lite0'))}, or a file of Inception-v3"
    )


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
