"""The command `fedsynth tune`: which settings serve best, on rows that anybody may see or at a stated price."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedsynth.cli import flags
from fedsynth.cli.flags import option, request_flags
from fedsynth.cli.output import files_in, show, tell
from fedsynth.cli.run import request_of
from fedsynth.errors import BadInput
from fedsynth.synthesis.request import Request

if TYPE_CHECKING:
    from fedsynth.assess.tuning.search import Trial

TRIALS, BEST = "trials.json", "best.toml"
_OWN = ("data", "seed", "split_seed", "budget")  # of the search, not of the run that follows it
_SHOWN = 10


@request_flags(
    "text_column",
    "noise_multiplier",
    "private",
    "transport",
    "simulate_speeds",
    "rows",
    data="Rows to search on; see --public and --charge.",
    epsilon="Privacy budget of the run (with --charge: in all).",
)
def tune(
    *,
    tried: Annotated[
        list[str] | None,
        option("A value to try; repeat it for more values and settings.", "--try", metavar="KEY=VALUE"),
    ] = None,
    public: Annotated[bool, option("Anybody may see DATA: the search is free.", "--public")] = False,
    from_run: Annotated[
        Path | None, option("Search on a private run's synthetic rows: free.", "--from", metavar="RUN")
    ] = None,
    charge: Annotated[
        bool, option("DATA are private: the search is charged, and its best is the run.", "--charge")
    ] = False,
    trials: Annotated[
        float, option("With --charge: trainings on average; how many there are is drawn at random.")
    ] = 5.0,
    runs: Annotated[int, option("Trainings of each candidate, where the search is free.")] = 1,
    request: dict[str, Any],
    config: flags.Config = None,
    set_: flags.Settings = None,
    out: Annotated[Path | None, option("Folder for the result; must not exist.")] = None,
    quiet: flags.Quiet = False,
    as_json: flags.AsJson = False,
) -> None:
    """Find good settings. Looking at private rows to choose them costs privacy, so say what DATA are.

    With --public or --from RUN the search is free: every combination is trained as a run with this epsilon would be
    and judged by held-out rows. The best is written as best.toml, for `fedsynth run --config`. With --charge the rows
    are private: a random number of random combinations is trained, only the best leaves, and the ledger has it all.

    Example: fedsynth tune similar.csv --public --schema schema.json --clients 500 --epsilon 1 --delta 1e-5
    --recipe dpd_fvae --try clip=0.3 --try clip=1 --try latent=8 --try latent=16 --out TUNED
    """
    if out is None:
        raise BadInput("--out: say where to write the result, for example --out TUNED")
    if sum((public, charge, from_run is not None)) != 1:
        raise BadInput(
            "say what the rows are: --public (anybody may see them), --from RUN (a private run's synthetic rows) or "
            "--charge (private: the search is paid for)"
        )
    if "budget" in request and not charge:
        raise BadInput("--budget: a search that is free spends none of it; leave it out, or say --charge")
    run_request = request_of(request | _of_run(from_run, request), config, set_ or [])
    choices: dict[str, list[str]] = {}
    for name, value in flags.settings_in(tried, "--try"):
        choices.setdefault(name, []).append(value)
    if charge:
        _charged(run_request, choices, trials, out, as_json)
    else:
        _free(run_request, choices, runs, out, from_run, quiet, as_json)


def _of_run(run: Path | None, request: dict[str, Any]) -> dict[str, Any]:
    """Take over from a run, for a search on its synthetic rows, what the command line does not say."""
    from fedsynth.synthesis.folder import Folder
    from fedsynth.synthesis.released_files import checked_run

    if run is None:
        return {}
    place = Folder(run)
    if "data" in request:
        raise BadInput("DATA: leave it out with --from, which searches on the run's own synthetic rows")
    sample = run / "synthetic.parquet"
    if not place.finished or not sample.exists():
        raise BadInput(f"{run}: no finished run with a synthetic table; make one with `fedsynth run`")
    if not checked_run(run).statement.private:
        raise BadInput(
            f"{run}: its synthetic rows are not private (see its statement), so a search on them is not free; if "
            f"anybody may see them all the same, say fedsynth tune {sample} --public"
        )
    if "clients" not in request:
        raise BadInput("--clients: synthetic rows have no owners; say to how many clients they are dealt")
    earlier = Request.from_toml(place.read_recipe())
    kept = {name: getattr(earlier, name) for name in ("recipe", "epsilon", "delta", "label")}
    kept |= {"data": str(sample), "schema": str(place.schema)}
    return {name: value for name, value in kept.items() if value is not None and name not in request}


def _free(
    request: Request,
    choices: dict[str, list[str]],
    runs: int,
    out: Path,
    source: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    import tomli_w

    from fedsynth.assess.tuning.search import FreeSearch, best_of, candidates
    from fedsynth.cli.progress import StepProgress
    from fedsynth.data.atomic import write_file
    from fedsynth.synthesis.inputs import read_clients, schema_of

    if out.exists():
        raise BadInput(f"{out}: exists already; choose another name")
    schema = schema_of(request)
    request = request.resolved(schema)
    search = FreeSearch(request, schema, read_clients(request, schema), runs, request.seed or 0)
    with StepProgress(quiet=quiet) as progress:
        trials = search.trials(candidates(request.recipe, choices), progress)
    best = best_of(trials)
    cost = (
        "nothing: the rows were declared public" if source is None else "nothing: it read synthetic rows only"
    )
    result = {"measure": search.measure, "cost": cost, "trials": [trial.to_dict() for trial in trials]}
    out.mkdir(parents=True)
    write_file(out / TRIALS, json.dumps(result, indent=1) + "\n")
    chosen = request.changed(arguments=best.settings).to_toml()
    write_file(out / BEST, tomli_w.dumps({name: value for name, value in chosen.items() if name not in _OWN}))
    lines = [
        f"{search.measure}; the search cost {cost}.",
        *(f"  {_line(trial)}" for trial in trials[:_SHOWN]),
    ]
    lines.append(f"\nWritten to {out}: {BEST} (fedsynth run DATA --config {out / BEST} --out RUN), {TRIALS}")
    show(as_json, {"out": str(out), "best": best.to_dict(), **result}, "\n".join(lines))


def _line(trial: Trial) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in trial.to_dict()["settings"].items())
    if trial.score is None:
        return f"failed  {settings}: {trial.failed}"
    return f"{trial.score:.4f} ± {trial.spread:.4f}  {settings}"


def _charged(
    request: Request, choices: dict[str, list[str]], trials: float, out: Path, as_json: bool
) -> None:
    from fedsynth.assess.tuning.charged_search import ChargedSearch
    from fedsynth.assess.tuning.search import candidates
    from fedsynth.cli.sample import write_sample
    from fedsynth.synthesis.inputs import read_clients, schema_of
    from fedsynth.synthesis.synthesizer import Synthesizer

    schema = schema_of(request)
    request = request.resolved(schema)
    tried = candidates(request.recipe, choices)
    tell("fedsynth: searching; how long it takes is drawn at random, so no progress is shown")
    best = ChargedSearch(request, schema, read_clients(request, schema), tried, trials).run(out)
    synthesizer = Synthesizer.load(out)
    write_sample(synthesizer, out)
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in best.items()}
    statement = synthesizer.privacy
    result = {"out": str(out), "best": plain, "privacy": statement.to_dict()}
    show(as_json, result, f"{statement}\n\nBest: {plain}. {files_in(out)}")
