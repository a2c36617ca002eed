"""The commands `fedsynth experiment run`, `join` and `inversion`: measure a row of a table, attack a recipe.

Like what they run (`research/`) they are not in the wheel: `fedsynth` has them in a checkout alone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedsynth.cli import flags
from fedsynth.cli.flags import argument, group, option, settings_in
from fedsynth.cli.output import show
from fedsynth.errors import BadInput

if TYPE_CHECKING:
    from fedsynth.cli.progress import TrainingProgress
    from fedsynth.federation.loop import Round

app = group("experiment", "Measure recipes on public data sets, and record the results.")


@app.command()
def run(
    file: Annotated[Path, argument("TOML: data set, recipe, arguments, seeds.", "FILE")],
    out: Annotated[Path | None, option("Folder for ROW.json (default: results beside FILE).")] = None,
    set_: Annotated[
        list[str] | None, option("Another recipe argument.", "--set", metavar="KEY=VALUE")
    ] = None,
    runs: Annotated[int | None, option("Do only this many runs.")] = None,
    device: flags.Device = None,
    force: Annotated[bool, option("Replace a result that exists.", "--force")] = False,
    quiet: flags.Quiet = False,
    as_json: Annotated[bool, option("Print the result as one JSON object.", "--json")] = False,
) -> None:
    """Run a recipe on a public data set several times and score it. Writes results/ROW.json.

    Example: fedsynth experiment run experiments/adult/dpd_fvae.toml --out experiments/adult/results
    """
    from fedsynth.assess.report.picture import write_grid
    from fedsynth.assess.scores.score import Score
    from fedsynth.cli.progress import TrainingProgress
    from fedsynth.research.experiment import Experiment, run_experiment

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
    _write(result, target)
    lines = [str(Score.from_dict(entry)) for entry in result["scores"]]
    show(as_json, result, "\n".join([*lines, f"Wrote {target}."]))


@app.command()
def join(
    files: Annotated[list[Path], argument("Results of one row.", "FILES...")],
    out: Annotated[Path, option("Where to write the joined result.")],
    as_json: flags.AsJson = False,
) -> None:
    """Put together a row that was measured in pieces.

    Example: fedsynth experiment join a/row.json b/row.json --out results/row.json
    """
    from fedsynth.research.joined import joined

    result = joined([_read(file) for file in files])
    _write(result, out)
    show(as_json, result, f"Wrote {out}: {result['runs']} trainings.")


@app.command()
def inversion(
    recipe: Annotated[str, argument("Name of a recipe.", "RECIPE")],
    data: Annotated[str, option("A public table or set of images.")] = "adult",
    epsilon: Annotated[float, option("The budget that the noise of the sum is calibrated to.")] = 8.0,
    delta: Annotated[float, option("Its delta.")] = 1e-5,
    no_privacy: Annotated[bool, option("Add no noise to the sum.", "--no-privacy")] = False,
    clients: Annotated[int, option("How many clients there are.", min=2)] = 500,
    set_: Annotated[list[str] | None, option("A recipe argument.", "--set", metavar="KEY=VALUE")] = None,
    seed: Annotated[int, option("Another draw of clients and starts.")] = 0,
    as_json: flags.AsJson = False,
) -> None:
    """Rebuild rows from single updates: an attack.

    The attacker is a server without secure sums, in the first round; each attacked client has one row or image. Tables
    are read in closed form; images take a search of some minutes.

    Example: fedsynth experiment inversion fvae --data adult
    """
    from fedsynth.recipes.budget import Target
    from fedsynth.research.inverted import inverted

    target = None if no_privacy else Target(epsilon, delta)
    scores = inverted(recipe, data, target, clients, dict(settings_in(set_)), seed=seed)
    if all(score.failed for score in scores):
        raise BadInput(f"{scores[0].failed}; attack another recipe")
    lines = [
        str(score) if score.failed else f"{score}; without an update {score.detail['baseline']:.3f}"
        for score in scores
    ]
    show(as_json, {"scores": [score.to_dict() for score in scores]}, "\n".join(lines))


def _write(result: dict[str, Any], target: Path) -> None:
    from fedsynth.data.atomic import write_file

    write_file(target, json.dumps(result, indent=1, allow_nan=False) + "\n")


def _read(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file}: is not a result of an experiment ({error})") from None


class _Runs:
    """Shows several runs as one: their rounds follow one another."""

    def __init__(self, progress: TrainingProgress, number: int, runs: int) -> None:
        self._progress, self._number, self._runs = progress, number, runs

    def __call__(self, done: Round, epsilon: float | None, rounds: int) -> None:
        """Show a finished round of this run."""
        shifted = replace(done, version=self._number * rounds + done.version)
        self._progress(shifted, epsilon, self._runs * rounds)
