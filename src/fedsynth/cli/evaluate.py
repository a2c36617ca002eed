"""The command `fedsynth evaluate`: how faithful and how useful a synthetic data set is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from fedsynth.assess.attacks.shadow_game import MINUTES
from fedsynth.assess.attacks.table_attacks import Claim
from fedsynth.assess.origin import Origin
from fedsynth.assess.scores.holdout import check_apart
from fedsynth.assess.scores.networks import network_named
from fedsynth.assess.scores.score import Score
from fedsynth.assess.suite import INTERNAL, Data, evaluate
from fedsynth.cli.step_progress import StepProgress
from fedsynth.data.conform import conform
from fedsynth.data.image import read_images
from fedsynth.data.schema import Schema
from fedsynth.data.table import check_columns, read_table
from fedsynth.errors import BadInput, nearest
from fedsynth.privacy.statement import Statement
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import checked_run

_BETTER = {"max": "higher", "min": "lower", "range": "within"}
_BESIDE = {  # entries of a score's detail that a reader needs beside it
    "train_on_real": "trained on real",
    "majority": "majority class",
    "unigrams": "unigrams of real",
    "real_halves": "two halves of real",
    "real_alone": "real alone",
    "real_repeated": "real repeated",
    "real_and_synthetic": "with synthetic",
    "test": "unseen real rows",
    "real": "real",
    "unseen_real": "unseen real images",
    "network": "network",
    "at_least": "surely above",
    "allowed": "allowed by the claim",
}


def evaluate_command(
    real: Path,
    synthetic: Path,
    schema: Path,
    test: Path | None,
    client_column: str | None,
    run: Path | None,
    privacy: Path | None,
    epsilon: float | None,
    delta: float | None,
    deep: bool,
    shadow_minutes: float | None,
    out: Path | None,
    cache: Path | None,
    network: str,
    classifiers: str,
    text_column: str,
    seed: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure how faithful and useful synthetic data are. Compares with real rows: the result is internal."""
    known = Schema.load(schema)
    ours = _read(real, known, text_column, ours=True)
    held = None if test is None else _read(test, known, text_column, ours=True)
    made = _read(synthetic, known, text_column)
    known = owned(known, client_column, {f"--real {real}": ours, f"--test {test}": held})
    _check_columns({real: ours, test: held, synthetic: made}, known)
    origin = _origin(
        run, privacy, epsilon, delta, ours, seed, MINUTES if shadow_minutes is None else shadow_minutes
    )
    with StepProgress(quiet=quiet) as progress:
        found = evaluate(
            ours,
            made,
            known,
            test=held,
            deep=deep,
            seed=seed,
            progress=progress,
            cache=cache or (out / "cache" if out else None),
            network=network_named(network) if known.kind == "image" else None,
            claim=origin.claim,
            sampler=origin.sampler,
            shadows=origin.shadows,
            reader=origin.reader,
            classifiers=[name.strip() for name in classifiers.split(",") if name.strip()],
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


def _check_columns(files: Mapping[Path | None, Data | None], schema: Schema) -> None:
    """Refuse tables of other columns at once: every score would fail, for the same reason."""
    for path, data in files.items():
        problems = check_columns(data, schema) if isinstance(data, pd.DataFrame) else []
        if problems:
            raise BadInput(f"{path}: does not fit the schema: {'; '.join(problems)}")


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


def _origin(
    run: Path | None,
    privacy: Path | None,
    epsilon: float | None,
    delta: float | None,
    real: Data,
    seed: int,
    minutes: float,
) -> Origin:
    """What is claimed of the synthetic data and how they were made, as far as the command line says."""
    given = [
        name for name, value in (("--run", run), ("--privacy", privacy), ("--epsilon", epsilon)) if value
    ]
    if len(given) > 1:
        raise BadInput(f"{' and '.join(given)}: each names a claim; give one of them")
    if (epsilon is None) != (delta is None):
        raise BadInput("--epsilon and --delta: a claim has both; give the other one as well")
    if run:
        return Origin.of_run(run, real, seed=seed, minutes=minutes)
    if privacy:
        run = privacy.parent
        in_a_run = privacy == Folder(run).privacy and Folder(run).recipe.exists()
        return Origin(Claim.of(checked_run(run).statement if in_a_run else Statement.load(privacy)))
    if epsilon is None or delta is None:
        return Origin()
    if not (epsilon > 0 and 0 < delta < 1):
        raise BadInput(
            f"--epsilon {epsilon:g} --delta {delta:g}: expected epsilon above 0 and delta in (0, 1)"
        )
    return Origin(Claim(epsilon, delta))


def owned(schema: Schema, column: str | None, files: Mapping[str, Data | None]) -> Schema:
    """The schema with the client column that the command line names.

    Refused where a table lacks it, and where somebody has rows in both tables: they are no test of each other.
    """
    tables = {name: data for name, data in files.items() if isinstance(data, pd.DataFrame)}
    for name, table in tables.items():
        if column is not None and column not in table.columns:
            raise BadInput(
                f"--client-column {column}: {name} has no such column; {nearest(column, table.columns)}"
            )
    found = schema if column is None else schema.with_client(column)
    for real, test in pairwise(tables.values()):
        check_apart(real, test, found)
    return found


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
