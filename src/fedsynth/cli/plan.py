"""The command `fedsynth plan`: what privacy would cost, before anybody's data are read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedsynth.cli import flags
from fedsynth.cli.flags import option
from fedsynth.cli.output import show, tell
from fedsynth.errors import BadInput
from fedsynth.synthesis.request import DELTA

if TYPE_CHECKING:
    from fedsynth.recipes.plans import Plans

_DOUBLINGS = 6  # of the number of clients, in a chart


def plan(
    schema: Annotated[Path, option("The public schema.")],
    clients: Annotated[int, option("How many clients would take part.")],
    records: Annotated[int, option("How many records they hold together; a public guess will do.")],
    epsilon: Annotated[float, option("Privacy budget.")],
    delta: flags.Delta = DELTA,
    recipe: Annotated[str | None, option("Only this recipe; auto: the one that a run would take.")] = None,
    unit: Annotated[str | None, option("client or record (default: all that a recipe offers).")] = None,
    trust: Annotated[str | None, option("central, local or distributed (default: all offered).")] = None,
    project: Annotated[str | None, option("Other numbers of clients: 10000,1000000.")] = None,
    plot: Annotated[Path | None, option("Write the plan as a page (.html) or its chart (.png).")] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Show what each recipe would do with a privacy budget.

    Noise, rounds and cohort of each, and what to expect from the one that a run would take. Reads no data.

    Each line is composed and calibrated as the run would be, with everything that it releases.

    Example: fedsynth plan --schema schema.json --clients 500 --records 60000 --epsilon 1 --delta 1e-5 --project 50000
    """
    from fedsynth.cli.progress import StepProgress
    from fedsynth.data.schema import Schema
    from fedsynth.recipes.planned import PlanPopulation
    from fedsynth.recipes.plans import make_plans

    if plot is not None:
        from fedsynth.assess.report.plan_plot import check_name

        check_name(plot)
    numbers = _numbers(project)
    with StepProgress(quiet=False) as progress:
        people = PlanPopulation(clients, records, epsilon, delta)
        plans = make_plans(Schema.load(schema), people, recipe, unit, trust, numbers, progress)
    if plot is not None:
        _draw(plans, plot, numbers)
    show(as_json, plans.to_dict(), str(plans))


def _draw(plans: Plans, plot: Path, numbers: list[int]) -> None:
    """Write the page or the chart, over doublings of today's clients, as far as was asked for."""
    from fedsynth.assess.report.plan_plot import save_plot

    clients = plans.population.clients
    farthest = max(numbers, default=clients * 2 ** (_DOUBLINGS - 1))
    doublings = [clients * 2**power for power in range(1, math.ceil(math.log2(farthest / clients)))]
    charted = [
        run
        for number in sorted({clients, *doublings, farthest, *numbers})
        if (run := plans.main.projected(number)) is not None
    ]
    if plot.suffix == ".png" and not charted:
        raise BadInput(f"--plot {plot}: {plans.main.recipe.name} has no noise to plot; write a page (.html)")
    save_plot(plot, plans, charted)
    tell(f"Wrote {plot}")


def _numbers(text: str | None) -> list[int]:
    try:
        return [int(float(piece)) for piece in text.split(",")] if text else []
    except (ValueError, OverflowError) as error:
        raise BadInput(
            f"--project {text}: expected numbers of clients with commas between, such as 10000,1e6"
        ) from error
