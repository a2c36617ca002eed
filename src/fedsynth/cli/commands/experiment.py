"""`experiment`: measure recipes on public data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth.cli import flags
from fedsynth.cli.lazy import group, leads_to

app = group("experiment", "Measure recipes on public data sets and write down what came out.")


@app.command("run")
@leads_to("experiment:run")
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML: data set, recipe, arguments, seeds.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for ROW.json (default: results beside FILE).")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Another recipe argument.")
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Do only the first so many runs.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a result that exists.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Run a recipe on a public data set several times, score it, and write results/ROW.json.

    Example: fedsynth experiment run experiments/adult/dpd_fvae.toml --out experiments/adult/results
    """


@app.command()
@leads_to("experiment:join")
def join(
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="Results of one row.")],
    out: Annotated[Path, typer.Option(help="Where to write the joined result.")],
    as_json: flags.AsJson = False,
) -> None:
    """Put together a row that was measured in pieces.

    Example: fedsynth experiment join a/row.json b/row.json --out results/row.json
    """
