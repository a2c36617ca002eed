"""The command `fedsynth experiment run`: measure one row of a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from fedsynth.assess.report.picture import write_grid
from fedsynth.assess.scores.score import Score
from fedsynth.cli.flags import settings_in
from fedsynth.cli.progress import TrainingProgress
from fedsynth.data.atomic import replacing
from fedsynth.errors import BadInput
from fedsynth.federation.loop import Round

try:
    from fedsynth.research.experiment import Experiment, run_experiment
    from fedsynth.research.joined import joined
except ModuleNotFoundError as missing:
    if not (missing.name or "").startswith("fedsynth.research"):
        raise
    raise BadInput(
        "experiments are not part of the installed package; run them from a checkout of the project: make install"
    ) from None


def run(
    file: Path,
    out: Path | None,
    set_: list[str] | None,
    runs: int | None,
    device: str | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run a recipe on a public data set several times, score it, and write results/ROW.json."""
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


def join(
    files: list[Path],
    out: Path,
    as_json: bool,
) -> None:
    """Put together a row that was measured in pieces."""
    result = joined([_read(file) for file in files])
    with replacing(out) as temporary:
        temporary.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    typer.echo(json.dumps(result) if as_json else f"Wrote {out}: {result['runs']} trainings.")


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
