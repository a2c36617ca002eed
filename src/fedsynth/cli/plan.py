"""The command `fedsynth plan`: what privacy would cost, before anybody's data are read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from fedsynth.assess.report.plan_plot import Panel, check_name, save_plot
from fedsynth.cli.step_progress import StepProgress
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, FedsynthError
from fedsynth.privacy.accountant import COARSE, answer
from fedsynth.privacy.events import repeat
from fedsynth.privacy.gaussian import LegacyNoise, analytic_noise, legacy_noise
from fedsynth.privacy.planning import PlanRow, Population, Settings, plan_rows, projected_rows
from fedsynth.recipes.budget import Target, fit_budget
from fedsynth.recipes.registry import RECIPES, Recipe, recipe_named
from fedsynth.recipes.task import Task

MOST_EPSILON = 500.0  # e^epsilon is beyond the largest number soon after
NOISE = "noise_multiplier"  # the argument of recipes that add noise


def plan(
    schema: Path,
    clients: int,
    records: int,
    epsilon: float,
    delta: float,
    recipe: str | None,
    project: str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Noise, rounds and cohort for every recipe, unit and kind of trust, side by side. Reads no data."""
    if plot is not None:
        check_name(plot)
    if epsilon > MOST_EPSILON:
        raise BadInput(
            f"--epsilon {epsilon:g}: above {MOST_EPSILON:g} nothing is promised; plan with a smaller one"
        )
    people = Population(clients, records, epsilon, delta)
    chosen = [recipe_named(recipe)] if recipe else list(RECIPES.values())
    read = Schema.load(schema)
    tasks = {one.name: replace(one.task(read, clients), records=records) for one in chosen}
    runs = {}
    with StepProgress(quiet=len(chosen) == 1) as tell:  # all of them take half a minute
        for done, one in enumerate(chosen):
            tell(one.name, done, len(chosen))
            runs[one.name] = _as_it_would_run(one, tasks[one.name], people)
    noisy = [one for one in chosen if runs[one.name].get(NOISE) is not None]
    if plot is not None and not noisy:
        raise BadInput(f"--plot {plot}: there is no noise to plot. {_run_sentence(runs[chosen[0].name])}")
    rows = [row for one in noisy for row in plan_rows(settings_of(one, tasks[one.name]), people)]
    projected = _projected(rows, _numbers(project, clients))
    local = _local(rows, people)
    if plot is not None:
        save_plot(_panels(_first(rows)), epsilon, plot)
        typer.echo(f"Wrote {plot}", err=True)
    if as_json:
        typer.echo(json.dumps(_as_json(people, rows, projected, runs, local)))
        return
    shown = rows if recipe else [row for row in rows if row.offered]
    _print(people, shown, projected, runs, local)


def settings_of(recipe: Recipe, task: Task) -> Settings:
    """What the plan needs of a recipe, from its default arguments."""
    defaults = {name: argument.default for name, argument in recipe.arguments().items()}
    rate = defaults["cohort"] / task.clients if defaults.get("cohort") else defaults.get("rate", 1.0)
    return Settings(
        recipe.name,
        min(1.0, rate),
        defaults["rounds"],
        defaults.get("epochs", 1),
        defaults.get("batch_size") or defaults.get("generator_batch") or task.public_records(),
        recipe.pooled,
        offers=recipe.offers,
    )


def _as_it_would_run(recipe: Recipe, task: Task, people: Population) -> dict[str, Any]:
    """Noise and rounds by the very objects that would run, the class balance included."""
    changes = {"records": people.records} if "records" in recipe.arguments() else {}
    try:
        target = Target(people.epsilon, people.delta)
        algorithm, values = fit_budget(recipe, task, recipe.values(changes), target)
    except FedsynthError as error:
        return {"recipe": recipe.name, "problem": str(error)}
    return {
        "recipe": recipe.name,
        "unit": recipe.unit,
        "rounds": algorithm.rounds,
        "cohort": algorithm.schedule.expected,
        "noise_multiplier": values.get(NOISE),
        "parameters": algorithm.dim - (algorithm.loss_share > 0),
    }


def _numbers(text: str | None, clients: int) -> list[int]:
    if text is None:
        return []
    try:
        numbers = [int(float(piece)) for piece in text.split(",")]
    except (ValueError, OverflowError) as error:
        raise BadInput(
            f"--project {text}: expected numbers of clients with commas between, such as 10000,1e6"
        ) from error
    if any(number < clients for number in numbers):
        raise BadInput(f"--project {text}: a projection is to at least the {clients} clients of the plan")
    return numbers


def _projected(rows: Sequence[PlanRow], populations: Sequence[int]) -> list[PlanRow]:
    return [
        found
        for row in rows
        if row.unit == "client" and row.trust == "central"
        for found in projected_rows(row, populations)
    ]


def _local(rows: Sequence[PlanRow], people: Population) -> dict[str, LegacyNoise | float]:
    releases = next((row.releases for row in rows if (row.unit, row.trust) == ("client", "local")), 1)
    return {
        "releases": float(releases),
        "noise": analytic_noise(people.epsilon, people.delta, releases),
        "legacy": legacy_noise(people.epsilon, people.delta, releases),
    }


def _first(rows: Sequence[PlanRow]) -> PlanRow:
    """The row that the plot is about: client-level if there is one."""
    return next((row for row in rows if (row.unit, row.trust) == ("client", "central")), rows[0])


def _panels(row: PlanRow) -> list[Panel]:
    """Epsilon as one thing changes and the others stay; coarse, which errs upwards."""
    rounds = sorted({max(1, round(row.rounds * 2.0**power)) for power in range(-4, 3)})
    noises = [row.noise_multiplier * 2.0 ** (power / 2) for power in range(-2, 5)]
    return [
        *_population_panel(row),
        Panel(
            "more rounds", "rounds", {"central": [(n, _cost(row, n, row.noise_multiplier)) for n in rounds]}
        ),
        Panel(
            "more noise", "noise multiplier", {"central": [(z, _cost(row, row.rounds, z)) for z in noises]}
        ),
    ]


def _population_panel(row: PlanRow) -> list[Panel]:
    if row.unit != "client":
        return []
    moved = projected_rows(row, [row.clients * 4**power for power in range(6)])
    by_trust = {
        f"{trust} (projection)": [(found.clients, found.epsilon) for found in moved if found.trust == trust]
        for trust in ("central", "local")
    }
    return [Panel(f"{row.recipe}: more clients, same noise in the mean", "clients", by_trust)]


def _cost(row: PlanRow, rounds: int, noise: float) -> float:
    event = repeat(PoissonSampledDpEvent(row.rate, GaussianDpEvent(noise)), rounds)
    return answer(event, row.delta, precision=COARSE).epsilon


def _as_json(
    people: Population,
    rows: Sequence[PlanRow],
    projected: Sequence[PlanRow],
    runs: dict[str, dict[str, Any]],
    local: dict[str, Any],
) -> dict[str, Any]:
    return {
        **asdict(people),
        "rows": [_finite(asdict(row)) for row in rows],
        "projections": [_finite(asdict(row)) for row in projected],
        "as_it_would_run": list(runs.values()),
        "local": {**local, "legacy": asdict(local["legacy"])},
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and math.isinf(value) else value
        for key, value in values.items()
    }


_HEAD = (
    f"{'recipe':18s}{'unit':8s}{'trust':13s}{'clients':>11s}{'cohort':>10s}{'rounds':>9s}"
    f"{'noise':>9s}{'in mean':>10s}{'epsilon':>9s}"
)


def _print(
    people: Population,
    rows: Sequence[PlanRow],
    projected: Sequence[PlanRow],
    runs: dict[str, dict[str, Any]],
    local: dict[str, Any],
) -> None:
    typer.echo(f"Budget: epsilon {people.epsilon:g} at delta {people.delta:g}; no data were read.\n\n{_HEAD}")
    for row in rows:
        typer.echo(_described(row) + ("" if row.offered else "   (not offered by this recipe)"))
    for run in runs.values():
        typer.echo(_run_sentence(run))
    if projected:
        typer.echo(f"\nPROJECTIONS: not what a run costs here, but what it would cost there.\n{_HEAD}")
        for row in projected:
            typer.echo(_described(row))
    legacy = local["legacy"]
    typer.echo(
        f"\nLocal Gaussian noise for {local['releases']:.0f} releases: {local['noise']:.4g} times the sensitivity "
        f"(optimal). Legacy, thesis equations 4.4.10-11: {legacy.noise_multiplier:.4g}, which is really epsilon "
        f"{legacy.true_epsilon:.4g}, not {legacy.claimed_epsilon:g}."
    )


def _described(row: PlanRow) -> str:
    return (
        f"{row.recipe:18s}{row.unit:8s}{row.trust:13s}{row.clients:>11,d}{row.cohort:>10,.4g}{row.rounds:>9,d}"
        f"{row.noise_multiplier:>9.4g}{row.noise_in_mean:>10.3g}{row.epsilon:>9.4g}"
    )


def _run_sentence(run: dict[str, Any]) -> str:
    if "problem" in run:
        return f"{run['recipe']} is not planned: {run['problem']}"
    noise, cohort = run["noise_multiplier"], f"{run['cohort']:,.4g} client{'' if run['cohort'] == 1 else 's'}"
    how = "messages drawn by epsilon" if noise is None else f"noise multiplier {noise:.5g}"
    return (
        f"{run['recipe']} would run {run['rounds']:,} rounds of about {cohort} with {how} "
        f"({run['unit']} unit, {run['parameters']:,} shared parameters, class balance paid)."
    )
