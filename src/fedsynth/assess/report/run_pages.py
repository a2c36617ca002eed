"""The pages of `fedsynth view`: a list of runs, live while one is running, and runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsynth.assess.report.axis import short
from fedsynth.assess.report.curve import curve
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import Section, figure, page, table
from fedsynth.assess.report.runs import RunSummary, scored_on_others, why_not_compared
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
            "Read-only and internal: scores compare with real rows. Updates automatically.",
            class_="soft",
        ),
    ]
    chosen = table(
        [
            "run",
            "compare",
            "state",
            "last written",
            "recipe",
            "promise",
            "round",
            "epsilon",
            "loss",
            "clients",
        ]
        + ["pages"],
        [_row(run) for run in runs],
        "Runs",
        (7, 8, 9),
        "stack",
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
        run.name,
        box,
        state,
        run.date or "–",
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
    if run.state == "running" and run.seconds_left is not None:
        words += f", about {duration(run.seconds_left)} left"
    label = f"Progress of {run.name}"
    return [tag("progress", value=run.round, max=run.rounds, aria_label=label), " ", words]


def duration(seconds: float) -> str:
    """A time that is left, in the unit that people would use.

    >>> duration(40), duration(700), duration(9000)
    ('40 s', '12 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _live(run: RunSummary, path: Path) -> Markup:
    history = Folder(path).read_history()
    pictures = []
    for key in ("loss", "epsilon"):
        points = [(float(line["version"]), float(line[key])) for line in history if line.get(key) is not None]
        if len(points) > 1:
            pictures.append(figure(f"{run.name}: {key}", curve(key, points), _STATES[run.state]))
    waiting = tag("p", f"{run.name}: {_STATES[run.state]}, no curve yet.", class_="soft")
    return tag("div", pictures, class_="charts") if pictures else waiting


def compare_page(runs: Sequence[RunSummary]) -> str:
    """Chosen runs side by side, and quality against epsilon."""
    head = [tag("h1", "Runs side by side"), tag("p", tag("a", "Back to all runs", href="/"))]
    if not runs:
        words = "No run was ticked. Go back, tick two runs or more in the column “compare”, and try again."
        return _side_by_side(head, [tag("p", words, class_="warning")])
    rows = [
        [
            run.name,
            str(number),
            run.recipe,
            run.promise,
            run.date or "–",
            _number(run.shapes),
            _number(run.pairs),
            _beside(run),
        ]
        for number, run in enumerate(runs, start=1)
    ]
    heads = [
        "run",
        "number",
        "recipe",
        "promise",
        "last written",
        "column shapes",
        "column pairs",
        "useful (real)",
    ]
    reason = why_not_compared(runs)
    if reason is None and any(run.frechet for run in runs):
        heads.append("distance of images (FID)")
        rows = [
            [*row, _number(run.frechet.value if run.frechet else None)]
            for row, run in zip(rows, runs, strict=True)
        ]
    refusals = [f"Image scores are not compared. {reason}."] if reason else []
    refusals += [
        f"Not drawn together: {other}. Measure them on the same file."
        for what in ("real", "test")
        if (other := scored_on_others(runs, what))
    ]
    pictures = quality_pictures(runs)
    unmeasured = [run.name for run in runs if not (run.shapes or run.useful or run.frechet)]
    advice = (
        f"No scores yet: {', '.join(unmeasured)}. Measure with fedsynth report RUN --real FILE --test FILE."
    )
    return _side_by_side(
        head,
        [
            [tag("p", words, class_="warning") for words in refusals],
            tag("p", advice) if unmeasured else None,
            tag("div", pictures, class_="charts") if pictures else None,
            table(heads, rows, "Runs", range(5, len(heads)), "stack"),
        ],
    )


def _side_by_side(head: Sequence[Any], body: Sequence[Any]) -> str:
    chapter = Section("compare", "Quality against epsilon", body)
    return page("Runs side by side", head, [chapter], [_FOOT], live=True)


def quality_pictures(runs: Sequence[RunSummary]) -> list[Markup]:
    """Faithfulness and usefulness against epsilon, for runs that were measured on the same rows."""
    finished = [(number, run) for number, run in enumerate(runs, start=1) if run.state == "finished"]
    pictures = []
    for title, key, rows in (
        ("Faithful: column pairs", "pairs", "real"),
        ("Useful: trained on synthetic rows", "useful", "test"),
    ):
        points = [
            Seat(number, run.name, run.epsilon, getattr(run, key))
            for number, run in finished
            if getattr(run, key) is not None
        ]
        if points and scored_on_others(runs, rows) is None:
            real = [run.useful_real for _, run in finished if run.useful_real is not None]
            best = max(real) if real and key == "useful" else None
            note = "dashed: trained on real rows" if best is not None else ""
            pictures.append(figure(title, seats(points, title, best), note))
    return pictures


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _beside(run: RunSummary) -> str:
    return "–" if run.useful is None else f"{run.useful:.3f} ({_number(run.useful_real)})"
