"""`evaluate`, `report`, `compare` and `view`: how good synthetic data are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.lazy import leads_to

app = typer.Typer()


@app.command("evaluate")
@leads_to("evaluate:evaluate_command")
def evaluate_command(
    real: Annotated[Path, typer.Option(help="Real data that the generator was trained on.")],
    synthetic: Annotated[
        Path, typer.Option(help="Synthetic data: a table, images or texts, as the schema says.")
    ],
    schema: Annotated[Path, typer.Option(help="The schema.json of both.")],
    test: Annotated[Path | None, typer.Option(help="Real data that the generator never saw.")] = None,
    client_column: Annotated[
        str | None, typer.Option(help="Column that says whose a real row is: nobody is held out in part.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="The run that made the data: its claim, generator and recipe.")
    ] = None,
    privacy: Annotated[
        Path | None, typer.Option(help="The privacy.json that attacks are held against.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Or the claim itself, with --delta.")] = None,
    delta: Annotated[float | None, typer.Option(help="See --epsilon.")] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="More rows and classifiers; with --run also shadow generators. Slow."),
    ] = False,
    shadow_minutes: flags.ShadowMinutes = None,
    out: Annotated[Path | None, typer.Option(help="Folder for scores.json and details.json.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps what was measured (default: OUT/cache).")
    ] = None,
    network: Annotated[
        str,
        typer.Option(
            help="For images: lenet (trained on real ones), efficientnet-lite0, inception-v3 (from torch hub), "
            "or a file of Inception-v3."
        ),
    ] = "lenet",
    classifiers: Annotated[
        str,
        typer.Option(help="Names separated by commas, or all; the thesis's further ones come with --deep."),
    ] = "",
    text_column: Annotated[str, typer.Option(help="For texts in a table: the column.")] = "text",
    seed: Annotated[int, typer.Option(help="For subsets of rows, folds and classifiers.")] = 0,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Measure how faithful and useful synthetic data are. Compares with real rows: the result is internal.

    Without --test, a fifth of the real rows is held out from the classifiers; the generator may have seen them,
    and nothing is attacked.

    Example: fedsynth evaluate --real adult.csv --synthetic RUN/synthetic.parquet --schema RUN/schema.json
    """


@app.command()
@leads_to("report:report")
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run.")],
    real: Annotated[Path | None, typer.Option(help="Real rows that the run was trained on.")] = None,
    test: Annotated[Path | None, typer.Option(help="Real rows that the generator never saw.")] = None,
    client_column: Annotated[
        str | None,
        typer.Option(help="Column that says whose a real row is (default: as the run's schema says)."),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Measure longer: more rows and classifiers, and shadow generators.")
    ] = False,
    shadow_minutes: flags.ShadowMinutes = None,
    network: Annotated[
        str, typer.Option(help="For images: lenet, efficientnet-lite0, inception-v3, or a file of the last.")
    ] = "lenet",
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Write report.html: is it private, faithful and useful, in one page that opens from disk.

    With --real the synthetic rows are measured against the real ones, which makes the page internal; without,
    scores that were measured before are shown.

    Example: fedsynth report RUN --real patients.csv --test held-out.csv
    """


@app.command()
@leads_to("compare:compare")
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN ...", help="Two runs or more.")],
    as_json: flags.AsJson = False,
) -> None:
    """Set runs side by side: promise, faithfulness and usefulness. Scores come from real rows: internal.

    Example: fedsynth compare RUN-epsilon-1 RUN-epsilon-8
    """


@app.command()
@leads_to("view:view")
def view(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that holds runs.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine a token is asked.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8765,
) -> None:
    """Show runs in the browser: live while they run, side by side, with their reports. Read-only.

    Example: fedsynth view runs
    """
