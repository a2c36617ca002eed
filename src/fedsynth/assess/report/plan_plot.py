"""A plan as a page or a picture: what each recipe would cost here, and among more clients."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from fedsynth.assess.report.curve import curve
from fedsynth.assess.report.markup import tag
from fedsynth.assess.report.page import Section, figure, page, table
from fedsynth.errors import BadInput
from fedsynth.recipes.planned import PlannedRun
from fedsynth.recipes.plans import LEGEND, Plans, counted

_HEADINGS = ("recipe", "unit", "trust", "cohort", "rounds", "noise", "noise in the mean", "epsilon")


def check_name(path: Path) -> None:
    """Refuse a file that the plot cannot be written to."""
    if path.suffix not in (".png", ".html"):
        raise BadInput(f"--plot {path}: expected a name that ends with .png or .html")


def save_plot(path: Path, plans: Plans, projections: Sequence[PlannedRun]) -> None:
    """Write the plan: a page with all runs and a chart of the projections, or the chart alone as PNG."""
    check_name(path)
    if path.suffix == ".png":
        path.write_bytes(_png(projections, plans.population.epsilon))
    else:
        path.write_text(plan_page(plans, projections), encoding="utf-8")


def plan_page(plans: Plans, projections: Sequence[PlannedRun]) -> str:
    """The plan as a page: in words, as a table, and one chart for the recipe that was asked for."""
    head = [tag("h1", "What privacy would cost"), [tag("p", sentence) for sentence in plans.words]]
    rows = [
        (
            run.recipe,
            run.unit,
            run.trust,
            counted(run.cohort),
            f"{run.rounds:,}",
            "by epsilon" if run.noise_multiplier is None else f"{run.noise_multiplier:.4g}",
            "–" if run.noise_in_mean is None else f"{run.noise_in_mean:.3g}",
            f"{run.epsilon:.3g}",
        )
        for run in plans.runs
    ]
    listed = table(_HEADINGS, rows, "Ways to be private", numbers=(3, 4, 5, 6, 7))
    doubts = [tag("ul", [tag("li", sentence) for sentence in plans.doubts])] if plans.doubts else []
    sections = [Section("runs", "As it would run", [listed, tag("p", LEGEND, class_="soft"), *doubts])]
    if projections:
        first = projections[0]
        points = [(float(run.clients), run.epsilon) for run in projections]
        drawn = curve("epsilon", points, limit=plans.population.epsilon, across="clients", logarithmic=True)
        note = "The same noise in the mean among more clients, at a delta that shrinks as they grow."
        caption = f"{first.recipe}, {first.trust} trust: epsilon by the number of clients"
        sections.append(
            Section("more", "Among more clients", [tag("div", figure(caption, drawn, note), class_="charts")])
        )
    return page(
        "fedsynth plan",
        head,
        sections,
        [tag("p", f"Made by fedsynth plan on {date.today()} from public numbers: no data were read.")],
    )


def _png(projections: Sequence[PlannedRun], budget: float) -> bytes:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput("--plot needs matplotlib; install it with: pip install 'fedsynth[report]'") from error
    first = projections[0]
    drawing = Figure(figsize=(5.6, 3.8), layout="constrained")
    axes = drawing.subplots()
    axes.plot(
        [run.clients for run in projections], [run.epsilon for run in projections], marker="o", markersize=3
    )
    axes.axhline(budget, color="0.5", linestyle="--", linewidth=1, label="budget")
    axes.set(title=f"{first.recipe}, {first.trust} trust: more clients", xlabel="clients", ylabel="epsilon")
    axes.set(xscale="log", yscale="log")
    axes.legend(fontsize=8)
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=140)
    return buffer.getvalue()
