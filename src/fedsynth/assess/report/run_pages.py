"""The pages of `fedsynth view`: a list of runs, live while one is running, and runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsynth.assess.report.axis import short
from fedsynth.assess.report.curve import curve
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import Section, figure, page, table
from fedsynth.assess.report.runs import RunSummary, why_not_compared
from fedsynth.assess.report.scatter import Seat, seats
from fedsynth.synthesis.folder import Folder

_MOST_LIVE = 6
_STATES = {"finished": "finished", "running": "● running", "stopped": "stopped", "broken": "cannot be read"}


def list_page(runs: Sequence[RunSummary], paths: Mapping[str, Path]) -> str:
    """Every run with its state; ticked ones can be compared."""
    head = [
        tag("h1", "Runs"),
        tag(
            "p",
            "Read-only, and internal: scores compare with real rows. This list renews itself.",
            class_="soft",
        ),
    ]
    chosen = table(
        ["compare", "run", "state", "recipe", "promise", "round", "epsilon", "loss", "participants", "pages"],
        [_row(run) for run in runs],
        "Runs",
        (6, 7, 8),
    )
    form = tag(
        "form",
        chosen,
        tag("p", tag("button", "Compare the ticked runs", type="submit")),
        action="/compare",
        method="get",
    )
    empty = tag("p", "There are no runs in this folder yet.")
    live = [_live(run, paths[run.key]) for run in runs if run.state in ("running", "stopped")][:_MOST_LIVE]
    sections = [Section("runs", "All runs", [form if runs else empty])]
    sections += [Section("live", "Not finished", live)] if live else []
    return page("Runs", head, sections, [_FOOT], live=True)


_FOOT = tag("p", "fedsynth view: nothing leaves this machine, nothing is changed.")


def _row(run: RunSummary) -> list[Any]:
    box = tag("input", type="checkbox", name="run", value=run.key, aria_label=f"Compare {run.name}")
    links = [[tag("a", page.removesuffix(".html"), href=f"/run/{run.key}/{page}"), " "] for page in run.pages]
    state = _STATES[run.state] + (f": {run.problem}" if run.problem else "")
    return [
        box,
        run.name,
        state,
        run.recipe,
        run.promise,
        _progress(run),
        "–" if run.epsilon is None else short(run.epsilon),
        "–" if run.loss is None else short(run.loss),
        "–" if run.clients is None else f"{run.clients:,}" + (f", {run.dropped} lost" if run.dropped else ""),
        links or "–",
    ]


def _progress(run: RunSummary) -> Any:
    if run.round is None:
        return "–"
    words = f"{run.round} of {run.rounds}" if run.rounds else str(run.round)
    if run.state == "finished" or not run.rounds:
        return words
    label = f"Progress of {run.name}"
    return [tag("progress", value=run.round, max=run.rounds, aria_label=label), " ", words]


def _live(run: RunSummary, path: Path) -> Markup:
    history = Folder(path).read_history()
    pictures = []
    for key in ("loss", "epsilon"):
        points = [(float(line["version"]), float(line[key])) for line in history if line.get(key) is not None]
        if len(points) > 1:
            pictures.append(figure(f"{run.name}: {key}", curve(key, points), _STATES[run.state]))
    waiting = tag("p", f"{run.name}: {_STATES[run.state]}, no curve yet.", class_="soft")
    return tag("div", pictures, class_="charts wide") if pictures else waiting


def compare_page(runs: Sequence[RunSummary]) -> str:
    """Chosen runs side by side, and quality against epsilon."""
    head = [tag("h1", "Runs side by side"), tag("p", tag("a", "Back to all runs", href="/"))]
    rows = [
        [
            str(number),
            run.name,
            run.recipe,
            run.promise,
            _number(run.shapes),
            _number(run.pairs),
            _beside(run),
        ]
        for number, run in enumerate(runs, start=1)
    ]
    heads = ["number", "run", "recipe", "promise", "column shapes", "column pairs", "useful (real)"]
    reason = why_not_compared(runs)
    if reason is None and any(run.frechet for run in runs):
        heads.append("distance of images (FID)")
        rows = [
            [*row, _number(run.frechet.value if run.frechet else None)]
            for row, run in zip(rows, runs, strict=True)
        ]
    pictures = quality_pictures(runs)
    advice = tag("p", "There are no scores to draw: measure the runs with fedsynth report RUN --real FILE.")
    refusal = tag("p", f"Image scores are not compared. {reason}.", class_="warning") if reason else None
    body = [
        refusal,
        tag("div", pictures, class_="charts wide") if pictures else advice,
        table(heads, rows, "Runs", range(4, len(heads))),
    ]
    return page(
        "Runs side by side", head, [Section("compare", "Quality against epsilon", body)], [_FOOT], live=True
    )


def quality_pictures(runs: Sequence[RunSummary]) -> list[Markup]:
    """Faithfulness and usefulness against epsilon, for the runs that were measured."""
    finished = [(number, run) for number, run in enumerate(runs, start=1) if run.state == "finished"]
    pictures = []
    for title, key in (("Faithful: column pairs", "pairs"), ("Useful: trained on synthetic rows", "useful")):
        points = [
            Seat(number, run.name, run.epsilon, getattr(run, key))
            for number, run in finished
            if getattr(run, key) is not None
        ]
        if points:
            real = [run.useful_real for _, run in finished if run.useful_real is not None]
            best = max(real) if real and key == "useful" else None
            note = "dashed: trained on real rows" if best is not None else ""
            pictures.append(figure(title, seats(points, title, best), note))
    return pictures


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _beside(run: RunSummary) -> str:
    return "–" if run.useful is None else f"{run.useful:.3f} ({_number(run.useful_real)})"
