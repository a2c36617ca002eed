"""The command `fedsynth experiment run`: measure one row of a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsynth.cli.flags import settings_in
from fedsynth.cli.progress import TrainingProgress
from fedsynth.data.atomic import replacing
from fedsynth.errors import BadInput
from fedsynth.evaluation.experiment import Experiment, run_experiment
from fedsynth.evaluation.joined import joined
from fedsynth.evaluation.score import Score
from fedsynth.federation.loop import Round
from fedsynth.report.picture import write_grid

app = typer.Typer(
    name="experiment",
    help="Measure recipes on public data sets and write down what came out.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(main: typer.Typer) -> None:
    """Add the command to the main one."""
    main.add_typer(app)


@app.callback()
def _group() -> None:
    """Keep `run` a subcommand, so that others can join it."""


@app.command()
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
    target = (out or file.parent / "results") / f"{file.stem}.json"
    if target.exists() and not force:
        raise BadInput(f"{target}: exists already; replace it with --force, or choose another --out")
    experiment = Experiment.load(file).changed(dict(settings_in(set_)), device, runs)
    with TrainingProgress(experiment.request.epsilon, quiet=quiet) as progress:

        def watch(number: int) -> _Runs:
            return _Runs(progress, number, len(experiment.each))

        result = run_experiment(experiment, watch)
    target.parent.mkdir(parents=True, exist_ok=True)
    if "shown" in result:
        write_grid(result.pop("shown"), target.with_suffix(".png"))
    with replacing(target) as temporary:
        temporary.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    if as_json:
        typer.echo(json.dumps(result))
        return
    for entry in result["scores"]:
        typer.echo(str(Score.from_dict(entry)))
    typer.echo(f"Wrote {target}.")


@app.command()
def join(
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="Results of one row.")],
    out: Annotated[Path, typer.Option(help="Where to write the joined result.")],
) -> None:
    """Put together a row that was measured in pieces.

    Example: fedsynth experiment join a/row.json b/row.json --out results/row.json
    """
    result = joined([_read(file) for file in files])
    with replacing(out) as temporary:
        temporary.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    typer.echo(f"Wrote {out}: {result['runs']} trainings.")


def _read(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file}: is no result of an experiment ({error})") from None


class _Runs:
    """Shows several runs as one: their rounds follow one another."""

    def __init__(self, progress: TrainingProgress, number: int, runs: int) -> None:
        self._progress, self._number, self._runs = progress, number, runs

    def __call__(self, done: Round, epsilon: float | None, rounds: int) -> None:
        """Show a finished round of this run."""
        shifted = Round(**{**vars(done), "version": self._number * rounds + done.version})
        self._progress(shifted, epsilon, self._runs * rounds)
