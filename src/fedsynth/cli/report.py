"""The command `fedsynth report`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import typer

from fedsynth.assess.attacks.shadow_game import MINUTES
from fedsynth.assess.origin import Origin
from fedsynth.assess.report.internal import NAME, write_report
from fedsynth.assess.report.public import write_public
from fedsynth.assess.report.record import Data, Record, Released, read_data
from fedsynth.assess.scores.networks import network_named
from fedsynth.assess.scores.score import failure
from fedsynth.assess.suite import DETAILS, SCORES, Evaluation, evaluate
from fedsynth.cli.evaluate import owned
from fedsynth.cli.step_progress import StepProgress
from fedsynth.data.conform import conform
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import synthetic_path


def report(
    folder: Path,
    real: Path | None,
    test: Path | None,
    client_column: str | None,
    deep: bool,
    shadow_minutes: float | None,
    network: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write report.html: is it private, faithful and useful, in one page that opens from disk."""
    if test and not real:
        raise BadInput("--test needs --real as well: the rows that the run was trained on")
    released = Released.read(folder)
    rows = None if real is None else _real_rows(real, released.schema)
    depth = _Depth(deep, MINUTES if shadow_minutes is None else shadow_minutes, network, client_column)
    evaluation = _earlier(folder) if rows is None else _measure(folder, released, rows, test, depth, quiet)
    public = write_public(folder, released)
    target = folder / NAME
    write_report(Record.read(folder, evaluation, rows, released), target)
    size = target.stat().st_size
    told = {
        "out": str(target),
        "public": str(public),
        "bytes": size,
        "compared_with_real_rows": evaluation is not None,
    }
    words = (
        f"Wrote {target} ({size / 1024:.0f} KiB). It is internal: open it in a browser, do not publish it.\n"
        f"Wrote {public}: made from released files alone, {_fate(released)}."
    )
    typer.echo(json.dumps(told) if as_json else words)


def _fate(released: Released) -> str:
    return (
        "this one may be published"
        if released.statement.private
        else "but without a complete privacy promise: do not publish it"
    )


@dataclass(frozen=True)
class _Depth:
    """How thoroughly is measured."""

    deep: bool
    minutes: float
    network: str
    client_column: str | None


def _measure(
    folder: Path, released: Released, real: Data, test: Path | None, depth: _Depth, quiet: bool
) -> Evaluation:
    if released.synthetic is None:
        raise BadInput(
            f"{folder}: there are no synthetic data; make some with fedsynth sample "
            f"{folder} --rows 10000 --out {synthetic_path(Folder(folder), released.schema)}"
        )
    held = None if test is None else _real_rows(test, released.schema)
    schema = owned(released.schema, depth.client_column, {"the real table": real, "the test table": held})
    origin = Origin.of_run(folder, real, minutes=depth.minutes)
    try:
        with StepProgress(quiet=quiet) as progress:
            found = evaluate(
                _measured(real, schema),
                _measured(released.synthetic, schema),
                schema,
                test=None if held is None else _measured(held, schema),
                deep=depth.deep,
                progress=progress,
                cache=folder / "cache",
                claim=origin.claim,
                sampler=origin.sampler,
                shadows=origin.shadows,
                network=network_named(depth.network) if schema.kind == "image" else None,
            )
    except BadInput as error:
        if released.schema.kind == "table":
            raise
        typer.echo(f"fedsynth: not measured: {error}", err=True)
        return Evaluation((failure("faithfulness", str(error)),), {})
    found.save(folder)
    return found


def _measured(data: Data, schema: Schema) -> Data | list[str]:
    """Data as `evaluate` takes them: of a table of texts, the column `text` or the first one."""
    if schema.kind != "text" or not isinstance(data, pd.DataFrame):
        return data
    column = "text" if "text" in data.columns else data.columns[0]
    return [str(text) for text in data[column].dropna()]


def _real_rows(path: Path, schema: Schema) -> Data:
    """Rows of our own, made to fit columns that were paid for, as in training."""
    found = read_data(path, schema)
    return conform(found, schema) if isinstance(found, pd.DataFrame) else found


def _earlier(folder: Path) -> Evaluation | None:
    """What was measured before, if anything."""
    known = (folder / SCORES).is_file() or (folder / DETAILS).is_file()
    return Evaluation.load(folder) if known else None
