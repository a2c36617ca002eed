"""The plan of a run: every recipe that fits the schema on one budget, and what to expect of the one that would run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any

from fedsynth.data.modality import kinds_of
from fedsynth.data.notebook import card
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.recipes.choice import Choice, choose
from fedsynth.recipes.measured import expectation
from fedsynth.recipes.planned import PlannedRun, PlanPopulation, RunPlan, plan_run
from fedsynth.recipes.registry import all_recipes, recipe_named

MOST_EPSILON = 500.0  # e^epsilon is beyond the largest number soon after
_WIDTH = 80
_HEAD = (
    f"\n{'recipe':16s}{'unit':7s}{'trust':12s}{'cohort':>8s}{'rounds':>7s}{'noise':>11s}{'in mean':>9s}"
    f"{'epsilon':>9s}"
)
LEGEND = (
    "Cohort: clients in a round, on average. Noise: in multiples of the clip bound; by epsilon where answers are "
    "randomized instead. Noise in the mean: what is left of it after averaging."
)
Progress = Callable[[str, int, int], None]  # which recipe, how many are done, of how many


@dataclass(frozen=True)
class Plans:
    """The cost of privacy: `str` is the table, `runs` its lines, `projections` the cost among more clients."""

    population: PlanPopulation
    choice: Choice | None  # the recipe that `auto` takes; None if another was named
    main: RunPlan  # of the recipe that would run
    every: tuple[RunPlan, ...]
    projections: tuple[PlannedRun, ...]

    @property
    def runs(self) -> tuple[PlannedRun, ...]:
        """The runs that can be planned, the recipe that would run first."""
        return tuple(plan.run for plan in self.every if plan.run is not None)

    @property
    def expected(self) -> str:
        """Say what to expect of the recipe that would run, from what was measured."""
        people = self.population
        units = people.clients if self.main.unit == "client" else people.records
        return expectation(self.main.recipe.name, units, people.epsilon)

    @property
    def words(self) -> list[str]:
        """The budget, which recipe would run, and what to expect of it."""
        people = self.population
        budget = (
            f"Budget: epsilon {people.epsilon:g} at delta {people.delta:g} for {people.clients:,} clients with "
            f"{people.records:,} records."
        )
        usual = [f"Unless told otherwise, a run takes {self.choice}."] if self.choice else []
        return [budget, *usual, self.expected]

    @property
    def doubts(self) -> list[str]:
        """Runs that cannot be planned, and those that would hardly be useful."""
        doubted = [plan for plan in self.every if plan.doubt]
        return [
            *(_problem(plan) for plan in self.every if plan.problem),
            *(f"{plan.recipe.name} ({plan.unit}, {plan.trust}): {plan.doubt}." for plan in doubted),
        ]

    def to_dict(self) -> dict[str, Any]:
        """All numbers of the plan, for JSON."""
        problems = [
            {"recipe": plan.recipe.name, "unit": plan.unit, "trust": plan.trust, "problem": plan.problem}
            for plan in self.every
            if plan.problem
        ]
        auto = self.choice and {
            "recipe": self.choice.recipe.name,
            "unit": self.choice.unit,
            "trust": self.choice.trust,
            "reason": self.choice.reason,
        }
        return {
            **asdict(self.population),
            "auto": auto,
            "expect": self.expected,
            "rows": [asdict(run) for run in self.runs],
            "problems": problems,
            "projections": [asdict(run) for run in self.projections],
        }

    def __str__(self) -> str:
        return "\n".join([*(fill(sentence, _WIDTH) for sentence in self.words), *self._lines()])

    def _lines(self) -> list[str]:
        lines = [_HEAD, *map(_described, self.runs), fill(LEGEND, _WIDTH), ""]
        lines += [fill(sentence, _WIDTH) for sentence in self.doubts]
        if self.projections:
            first = self.projections[0]
            about = (
                "PROJECTIONS: not what a run costs here, but what it would cost among more clients, with the same "
                f"noise in the mean and a delta that shrinks as they grow ({first.recipe}, {first.trust} trust)."
            )
            lines += ["", fill(about, _WIDTH)]
            lines += [
                f"{run.clients:>12,d} clients: epsilon {run.epsilon:.3g} at delta {run.delta:.2g}, noise "
                f"{run.noise_multiplier:.4g}"
                for run in self.projections
            ]
        return lines

    def _repr_html_(self) -> str:
        facts = {
            f"{run.recipe} ({run.unit}, {run.trust})": f"epsilon {run.epsilon:.3g}, {run.rounds:,} rounds"
            for run in self.runs
        }
        return card("What privacy would cost", facts, "\n\n".join(self.words))


def make_plans(
    schema: Schema,
    population: PlanPopulation,
    recipe: str | None = None,
    unit: str | None = None,
    trust: str | None = None,
    project: Sequence[int] = (),
    progress: Progress | None = None,
) -> Plans:
    """Plan one recipe, or all that fit the schema (None), with what each offers; "auto" is the one a run would take."""
    if population.epsilon > MOST_EPSILON:
        raise BadInput(
            f"--epsilon {population.epsilon:g}: above {MOST_EPSILON:g} nothing is promised; plan with a smaller one"
        )
    small = [number for number in project if number < population.clients]
    if small:
        raise BadInput(
            f"--project {small[0]}: a projection is to at least the {population.clients} clients of the plan"
        )
    choice = choose(schema, unit, trust) if recipe in (None, "auto") else None
    planned_recipe = choice.recipe if choice else recipe_named(str(recipe))
    fitting = [one for one in all_recipes().values() if {*one.kinds} & {*kinds_of(schema)}]
    wanted = [
        (one, offer)
        for one in sorted(
            [planned_recipe] if recipe else fitting, key=lambda one: one.name != planned_recipe.name
        )
        for offer in _offers(one.offers, unit, trust, every=one.name == planned_recipe.name)
    ]
    if not wanted:
        planned_recipe.protection(unit, trust)  # says what it offers
    plans = []
    for done, (one, offer) in enumerate(wanted):
        if progress and len(wanted) > 1:
            progress(one.name, done, len(wanted))
        plans.append(plan_run(one, schema, population, *offer))
    if progress and len(wanted) > 1:
        progress("done", len(wanted), len(wanted))
    main = next((plan for plan in plans if plan.recipe.name == planned_recipe.name), None)
    if main is None or (recipe and all(plan.run is None for plan in plans)):
        raise Incompatible(_problem(plans[0]) if plans else f"{planned_recipe.name}: nothing to plan")
    projections = (main.projected(number) for number in project)
    return Plans(population, choice, main, tuple(plans), tuple(run for run in projections if run is not None))


def _offers(
    offers: Sequence[tuple[str, str]], unit: str | None, trust: str | None, *, every: bool
) -> Sequence[tuple[str, str]]:
    """The offers that meet what is asked for: all of them, or the first."""
    meeting = [offer for offer in offers if unit in (None, offer[0]) and trust in (None, offer[1])]
    return meeting if every else meeting[:1]


def counted(cohort: float) -> str:
    """How many clients, in few letters.

    >>> counted(0.25), counted(341.3), counted(20_000), counted(1_234_567)
    ('0.25', '341', '20,000', '1.23M')
    """
    if cohort >= 1e6:
        return f"{cohort / 1e6:.3g}M"
    return f"{cohort:,.0f}" if cohort >= 10 else f"{cohort:.2g}"


def _described(run: PlannedRun) -> str:
    noise = "by epsilon" if run.noise_multiplier is None else f"{run.noise_multiplier:.4g}"
    mean = "–" if run.noise_in_mean is None else f"{run.noise_in_mean:.3g}"
    return (
        f"{run.recipe:16s}{run.unit:7s}{run.trust:12s}{counted(run.cohort):>8s}{run.rounds:>7,d}{noise:>11s}{mean:>9s}"
        f"{run.epsilon:>9.3g}"
    )


def _problem(plan: RunPlan) -> str:
    return f"{plan.recipe.name} ({plan.unit}, {plan.trust}) is not planned: {plan.problem}"
