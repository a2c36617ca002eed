"""The command `fedsynth tune`: which settings serve best, on rows that anybody may see or at a stated price."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tomli_w
import typer

from fedsynth.assess.tuning.charged_search import ChargedSearch
from fedsynth.assess.tuning.search import FreeSearch, Trial, best_of, candidates
from fedsynth.cli import flags
from fedsynth.cli.run import read_clients, request_of, schema_of, write_sample
from fedsynth.cli.step_progress import StepProgress
from fedsynth.data.atomic import replacing
from fedsynth.errors import BadInput
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.released_files import checked_run
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer

TRIALS, BEST = "trials.json", "best.toml"
_OWN = ("data", "seed", "split_seed", "budget")  # of the search, not of the run that follows it
_SHOWN = 10


def tune(
    data: Path | None,
    tried: list[str] | None,
    public: bool,
    from_run: Path | None,
    charge: bool,
    trials: float,
    runs: int,
    schema: Path | None,
    recipe: str | None,
    client_column: str | None,
    clients: int | None,
    split: str | None,
    label: str | None,
    epsilon: float | None,
    delta: float | None,
    rounds: int | None,
    unit: str | None,
    trust: str | None,
    budget: Path | None,
    config: Path | None,
    set_: list[str] | None,
    seed: int | None,
    device: str | None,
    accept: list[str] | None,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Find settings that serve well. Looking at private rows to choose them costs privacy, so say what DATA are."""
    if out is None:
        raise BadInput("--out: say where the result shall be written, for example --out TUNED")
    if sum((public, charge, from_run is not None)) != 1:
        raise BadInput(
            "say what the rows are: --public (anybody may see them), --from RUN (a private run's synthetic rows) or "
            "--charge (private: the search is paid for)"
        )
    if budget is not None and not charge:
        raise BadInput("--budget: a search that is free spends none of it; leave it out, or say --charge")
    given: dict[str, Any] = {
        "data": str(data) if data else None,
        "schema": str(schema) if schema else None,
        "recipe": recipe,
        "client_column": client_column,
        "clients": clients,
        "split": split,
        "label": label,
        "epsilon": epsilon,
        "delta": delta,
        "rounds": rounds,
        "unit": unit,
        "trust": trust,
        "budget": str(budget) if budget else None,
        "seed": seed,
        "device": device,
        "accept": tuple(accept or ()),
    }
    request = request_of(_started(given, from_run), config, set_ or [])
    choices = _choices(tried or [])
    if charge:
        _charged(request, choices, trials, out, as_json)
    else:
        _free(request, choices, runs, out, from_run, quiet, as_json)


def _started(given: dict[str, Any], run: Path | None) -> dict[str, Any]:
    """What was given, and for a search on a run's synthetic rows what that run was asked for."""
    if run is None:
        return given
    place = Folder(run)
    if given["data"]:
        raise BadInput("DATA: leave it out with --from, which searches on the run's own synthetic rows")
    sample = run / "synthetic.parquet"
    if not place.finished or not sample.exists():
        raise BadInput(f"{run}: no finished run with a synthetic table; make one with `fedsynth run`")
    if not checked_run(run).statement.private:
        raise BadInput(
            f"{run}: its synthetic rows are not private (see its statement), so a search on them is not free; if "
            f"anybody may see them all the same, say fedsynth tune {sample} --public"
        )
    if given["clients"] is None:
        raise BadInput("--clients: synthetic rows have no owners; say to how many clients they are dealt")
    earlier = Request.from_toml(place.read_recipe())
    known = {
        "recipe": earlier.recipe,
        "epsilon": earlier.epsilon,
        "delta": earlier.delta,
        "label": earlier.label,
    }
    said = {name: value for name, value in given.items() if value is not None and value != ()}
    return {**given, **known, **said, "data": str(sample), "schema": str(given["schema"] or place.schema)}


def _choices(texts: list[str]) -> dict[str, list[str]]:
    """The values of each setting, in the order given."""
    choices: dict[str, list[str]] = {}
    for name, value in flags.settings_in(texts, "--try"):
        choices.setdefault(name, []).append(value)
    return choices


def _free(
    request: Request,
    choices: dict[str, list[str]],
    runs: int,
    out: Path,
    source: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    if out.exists():
        raise BadInput(f"{out}: exists already; choose another name")
    schema = schema_of(request)
    search = FreeSearch(request, schema, read_clients(request, schema), runs, request.seed or 0)
    with StepProgress(quiet=quiet) as tell:
        done = search.trials(candidates(request.recipe, choices), tell)
    best = best_of(done)
    cost = (
        "nothing: the rows were declared public" if source is None else "nothing: it read synthetic rows only"
    )
    result = {"measure": search.measure, "cost": cost, "trials": [trial.to_dict() for trial in done]}
    out.mkdir(parents=True)
    with replacing(out / TRIALS) as temporary:
        temporary.write_text(json.dumps(result, indent=1) + "\n")
    chosen = request.changed(arguments=best.settings).to_toml()
    with replacing(out / BEST) as temporary:
        temporary.write_text(
            tomli_w.dumps({name: value for name, value in chosen.items() if name not in _OWN})
        )
    if as_json:
        typer.echo(json.dumps({"out": str(out), "best": best.to_dict(), **result}))
        return
    typer.echo(f"{search.measure}; the search cost {cost}.")
    for trial in done[:_SHOWN]:
        typer.echo(f"  {_told(trial)}")
    typer.echo(f"\nWritten to {out}: {BEST} (fedsynth run DATA --config {out / BEST} --out RUN), {TRIALS}")


def _told(trial: Trial) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in trial.to_dict()["settings"].items())
    if trial.score is None:
        return f"failed  {settings}: {trial.failed}"
    return f"{trial.score:.4f} ± {trial.spread:.4f}  {settings}"


def _charged(
    request: Request, choices: dict[str, list[str]], trials: float, out: Path, as_json: bool
) -> None:
    schema = schema_of(request)
    tried = candidates(request.recipe, choices)
    typer.echo("fedsynth: searching; how long it takes is drawn at random, so no progress is shown", err=True)
    best = ChargedSearch(request, schema, read_clients(request, schema), tried, trials).run(out)
    made = Synthesizer.load(out)
    write_sample(made, out)
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in best.items()}
    if as_json:
        typer.echo(json.dumps({"out": str(out), "best": plain, "privacy": made.privacy.to_dict()}))
        return
    typer.echo(str(made.privacy))
    typer.echo(
        f"\nBest: {plain}. Written to {out}: " + ", ".join(sorted(path.name for path in out.iterdir()))
    )
