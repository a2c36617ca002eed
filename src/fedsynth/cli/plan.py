"""The command `fedsynth plan`: what privacy would cost, before anybody's data are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth.cli import flags
from fedsynth.cli.flags import option
from fedsynth.cli.output import show
from fedsynth.errors import BadInput
from fedsynth.synthesis.request import AUTO

if TYPE_CHECKING:
    from fedsynth.privacy.planning import PlanRow, Population

MOST_EPSILON = 500.0  # e^epsilon is beyond the largest number soon after


def plan(
    schema: Annotated[Path, option("The public schema.")],
    clients: Annotated[int, option("How many clients would take part.")],
    records: Annotated[int, option("How many records they hold together; a public guess will do.")],
    epsilon: Annotated[float, option("Privacy budget.")],
    delta: flags.Delta,
    recipe: Annotated[str | None, option("Only this recipe; auto: the one that a run would take.")] = None,
    project: Annotated[str | None, option("Other numbers of clients: 10000,1000000.")] = None,
    plot: Annotated[
        Path | None, option("Write epsilon against clients, rounds, noise (.png, .html).")
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Noise, rounds and cohort for every recipe, unit and kind of trust, side by side. Reads no data.

    Example: fedsynth plan --schema schema.json --clients 500 --records 60000 --epsilon 1 --delta 1e-5 --project 50000
    """
    from fedsynth.assess.report.plan_plot import check_name, panels_of, save_plot
    from fedsynth.cli.progress import StepProgress
    from fedsynth.data.schema import Schema
    from fedsynth.privacy.planning import Population, plan_rows, projected_rows
    from fedsynth.recipes.choice import choose
    from fedsynth.recipes.planned import NOISE, planned_run, settings_of
    from fedsynth.recipes.registry import all_recipes, recipe_named

    if plot is not None:
        check_name(plot)
    if epsilon > MOST_EPSILON:
        raise BadInput(
            f"--epsilon {epsilon:g}: above {MOST_EPSILON:g} nothing is promised; plan with a smaller one"
        )
    people = Population(clients, records, epsilon, delta)
    public = Schema.load(schema)
    choice = choose(public)
    recipe = choice.recipe.name if recipe == AUTO else recipe
    chosen = [recipe_named(recipe)] if recipe else list(all_recipes().values())
    tasks = {one.name: replace(one.task(public, clients), records=records) for one in chosen}
    runs = {}
    with StepProgress(quiet=len(chosen) == 1) as progress:  # all of them take half a minute
        for done, one in enumerate(chosen):
            progress(one.name, done, len(chosen))
            runs[one.name] = planned_run(one, tasks[one.name], people)
    noisy = [one for one in chosen if runs[one.name].get(NOISE) is not None]
    if plot is not None and not noisy:
        raise BadInput(f"--plot {plot}: there is no noise to plot. {_run_sentence(runs[chosen[0].name])}")
    rows = [row for one in noisy for row in plan_rows(settings_of(one, tasks[one.name]), people)]
    populations = _numbers(project, clients)
    central = [row for row in rows if (row.unit, row.trust) == ("client", "central")]
    projected = [moved for row in central for moved in projected_rows(row, populations)]
    local = _local(rows, people)
    if plot is not None:
        save_plot(panels_of(rows), epsilon, plot)
        typer.echo(f"Wrote {plot}", err=True)
    result = {
        **asdict(people),
        "auto": {
            "recipe": choice.recipe.name,
            "unit": choice.unit,
            "trust": choice.trust,
            "reason": choice.reason,
        },
        "rows": [_finite(row) for row in rows],
        "projections": [_finite(row) for row in projected],
        "as_it_would_run": list(runs.values()),
        "local": {**local, "legacy": asdict(local["legacy"])},
    }
    shown = rows if recipe else [row for row in rows if row.offered]
    lines = [f"auto would take {choice}.", *_lines(people, shown, projected, runs.values(), local)]
    show(as_json, result, "\n".join(lines))


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


def _local(rows: Sequence[PlanRow], people: Population) -> dict[str, Any]:
    """The noise of local releases, by the exact formula and by that of the thesis."""
    from fedsynth.privacy.gaussian import analytic_noise, legacy_noise

    releases = next((row.releases for row in rows if (row.unit, row.trust) == ("client", "local")), 1)
    return {
        "releases": float(releases),
        "noise": analytic_noise(people.epsilon, people.delta, releases),
        "legacy": legacy_noise(people.epsilon, people.delta, releases),
    }


def _finite(row: PlanRow) -> dict[str, Any]:
    """The row as JSON has it, which knows no infinity."""
    return {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in asdict(row).items()
    }


_HEAD = (
    f"{'recipe':18s}{'unit':8s}{'trust':13s}{'clients':>11s}{'cohort':>10s}{'rounds':>9s}"
    f"{'noise':>9s}{'in mean':>10s}{'epsilon':>9s}"
)


def _lines(
    people: Population,
    rows: Sequence[PlanRow],
    projected: Sequence[PlanRow],
    runs: Iterable[Mapping[str, Any]],
    local: Mapping[str, Any],
) -> list[str]:
    legacy = local["legacy"]
    heading = f"\nPROJECTIONS: not what a run costs here, but what it would cost there.\n{_HEAD}"
    return [
        f"Budget: epsilon {people.epsilon:g} at delta {people.delta:g}; no data were read.\n\n{_HEAD}",
        *(_described(row) + ("" if row.offered else "   (not offered by this recipe)") for row in rows),
        *map(_run_sentence, runs),
        *([heading, *map(_described, projected)] if projected else []),
        f"\nLocal Gaussian noise for {local['releases']:.0f} releases: {local['noise']:.4g} times the sensitivity "
        f"(optimal). Legacy, thesis equations 4.4.10-11: {legacy.noise_multiplier:.4g}, which is really epsilon "
        f"{legacy.true_epsilon:.4g}, not {legacy.claimed_epsilon:g}.",
    ]


def _described(row: PlanRow) -> str:
    return (
        f"{row.recipe:18s}{row.unit:8s}{row.trust:13s}{row.clients:>11,d}{row.cohort:>10,.4g}{row.rounds:>9,d}"
        f"{row.noise_multiplier:>9.4g}{row.noise_in_mean:>10.3g}{row.epsilon:>9.4g}"
    )


def _run_sentence(run: Mapping[str, Any]) -> str:
    if "problem" in run:
        return f"{run['recipe']} is not planned: {run['problem']}"
    noise, cohort = run["noise_multiplier"], f"{run['cohort']:,.4g} client{'' if run['cohort'] == 1 else 's'}"
    how = "messages drawn by epsilon" if noise is None else f"noise multiplier {noise:.5g}"
    return (
        f"{run['recipe']} would run {run['rounds']:,} rounds of about {cohort} with {how} "
        f"({run['unit']} unit, {run['parameters']:,} shared parameters, class balance paid)."
    )
