"""The command `fedsynth report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.flags import option
from fedsynth.cli.output import show
from fedsynth.errors import BadInput

if TYPE_CHECKING:
    from fedsynth.assess.origin import Origin
    from fedsynth.assess.report.record import Data, Released
    from fedsynth.assess.suite import Evaluation
    from fedsynth.data.schema import Schema


def report(
    folder: flags.Run,
    real: Annotated[Path | None, option("Real rows that the run was trained on.")] = None,
    test: Annotated[Path | None, option("Real rows that the generator never saw.")] = None,
    client_column: Annotated[
        str | None, option("Column that says whose a real row is (default: as the run's schema says).")
    ] = None,
    deep: Annotated[
        bool, option("Measure longer: more rows and classifiers, and shadow generators.", "--deep")
    ] = False,
    shadow_minutes: flags.ShadowMinutes = None,
    network: Annotated[
        str, option("For images: lenet, efficientnet-lite0, inception-v3, or a file of the last.")
    ] = "lenet",
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Write report.html: is it private, faithful and useful, in one page that opens from disk.

    With --real the synthetic rows are measured against the real ones, which makes the page internal; without,
    scores that were measured before are shown.

    Example: fedsynth report RUN --real patients.csv --test held-out.csv
    """
    from fedsynth.assess.attacks.shadow_game import MINUTES
    from fedsynth.assess.inputs import owned
    from fedsynth.assess.origin import Origin
    from fedsynth.assess.report.internal import NAME, write_report
    from fedsynth.assess.report.public import write_public
    from fedsynth.assess.report.record import Record, Released

    if test and not real:
        raise BadInput("--test needs --real as well: the rows that the run was trained on")
    released = Released.read(folder)
    if real is None:
        real_rows, evaluation = None, _earlier(folder)
    else:
        real_rows = _real_rows(real, released.schema)
        _require_synthetic(folder, released)
        test_rows = None if test is None else _real_rows(test, released.schema)
        tables = {"the real table": real_rows, "the test table": test_rows}
        schema = owned(released.schema, client_column, tables)
        minutes = MINUTES if shadow_minutes is None else shadow_minutes
        origin = Origin.of_run(folder, real_rows, minutes=minutes)
        evaluation = _measure(folder, released, real_rows, test_rows, schema, origin, deep, network, quiet)
    public = write_public(folder, released)
    target = folder / NAME
    write_report(Record.read(folder, evaluation, real_rows, released), target)
    size = target.stat().st_size
    result = {
        "out": str(target),
        "public": str(public),
        "bytes": size,
        "compared_with_real_rows": evaluation is not None,
    }
    fate = (
        "this one may be published"
        if released.statement.private
        else "but without a complete privacy promise: do not publish it"
    )
    words = (
        f"Wrote {target} ({size / 1024:.0f} KiB). It is internal: open it in a browser, do not publish it.\n"
        f"Wrote {public}: made from released files alone, {fate}."
    )
    show(as_json, result, words)


def _require_synthetic(folder: Path, released: Released) -> None:
    from fedsynth.synthesis.folder import Folder
    from fedsynth.synthesis.released_files import synthetic_path

    if released.synthetic is None:
        raise BadInput(
            f"{folder}: there are no synthetic data; make some with fedsynth sample "
            f"{folder} --rows 10000 --out {synthetic_path(Folder(folder), released.schema)}"
        )


def _measure(
    folder: Path,
    released: Released,
    real: Data,
    test: Data | None,
    schema: Schema,
    origin: Origin,
    deep: bool,
    network: str,
    quiet: bool,
) -> Evaluation:
    """Measure the run's synthetic data and keep the scores in its folder."""
    from fedsynth.assess.scores.networks import network_named
    from fedsynth.assess.scores.score import failure
    from fedsynth.assess.suite import Evaluation, evaluate
    from fedsynth.cli.progress import StepProgress

    assert released.synthetic is not None
    try:
        with StepProgress(quiet=quiet) as progress:
            evaluation = evaluate(
                _measured(real, schema),
                _measured(released.synthetic, schema),
                schema,
                test=None if test is None else _measured(test, schema),
                deep=deep,
                progress=progress,
                cache=folder / "cache",
                network=network_named(network) if schema.kind == "image" else None,
                **vars(origin),
            )
    except BadInput as error:
        if schema.kind == "table":
            raise
        typer.echo(f"fedsynth: not measured: {error}", err=True)
        return Evaluation((failure("faithfulness", str(error)),), {})
    evaluation.save(folder)
    return evaluation


def _measured(data: Data, schema: Schema) -> Data | list[str]:
    """Data as `evaluate` takes them: of a table of texts, the column `text` or the first one."""
    if schema.kind != "text" or isinstance(data, tuple):
        return data
    column = "text" if "text" in data.columns else data.columns[0]
    return [str(text) for text in data[column].dropna()]


def _real_rows(path: Path, schema: Schema) -> Data:
    """Read rows of our own and make them fit columns that were paid for, as in training."""
    from fedsynth.assess.report.record import read_data
    from fedsynth.data.conform import conform

    data = read_data(path, schema)
    return data if isinstance(data, tuple) else conform(data, schema)


def _earlier(folder: Path) -> Evaluation | None:
    """The scores that were measured before, if any."""
    from fedsynth.assess.suite import DETAILS, SCORES, Evaluation

    known = (folder / SCORES).is_file() or (folder / DETAILS).is_file()
    return Evaluation.load(folder) if known else None
