"""Numbers on one line: epsilons on a scale, scores between worst and best, releases in the order they were made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedsynth.assess.report.axis import WIDTH, Scale, cut, drawing, level, line, short, text, ticks
from fedsynth.assess.report.markup import Markup, tag

_ROW = 34.0
_MOST_TICKS = 400
_MOST_LETTERS = 47
_LEDGER = "Releases in the order of the ledger"


@dataclass(frozen=True)
class Mark:
    """Something with an epsilon: `form` is claim, audit, one-run or attack."""

    name: str
    epsilon: float
    form: str
    tip: str


def epsilon_ruler(marks: Sequence[Mark]) -> Markup:
    """Claimed epsilon, audited bounds and attacks on one scale, from 0; each row is named."""
    left, right, top = 8.0, WIDTH - 16, 8.0
    highest = max([mark.epsilon for mark in marks] + [1e-3]) * 1.15
    along = Scale(0, highest, left, right)
    bottom = top + _ROW * len(marks)
    feet = ticks(0, highest, 6)
    rows = [_marked(mark, along, top + place * _ROW) for place, mark in enumerate(marks)]
    return drawing(
        WIDTH,
        bottom + 22,
        "Epsilon: " + "; ".join(f"{mark.name} {short(mark.epsilon)}" for mark in marks),
        level(along, top, bottom, feet, [short(foot) for foot in feet]),
        rows,
    )


def _marked(mark: Mark, along: Scale, y: float) -> Markup:
    x, middle = along(mark.epsilon), y + 22
    shapes = {
        "claim": tag("rect", x=along(0), y=middle - 5, width=x - along(0), height=10, class_="claim"),
        "audit": tag("path", d=f"M{x - 7:.1f},{middle}l7,-8l7,8l-7,8z", class_="audit"),
        "one-run": tag("path", d=f"M{x - 7:.1f},{middle + 6}l7,-12l7,12z", class_="audit"),
        "attack": tag("circle", cx=x, cy=middle, r=6, class_="attack"),
    }
    return tag(
        "g",
        text(along.start + 2, y + 11, f"{mark.name} {short(mark.epsilon)}", "name"),
        line(along(0), middle, x, middle, "stem"),
        shapes[mark.form],
        tag("rect", x=0, y=y, width=WIDTH, height=_ROW, class_="hit"),
        data_tip=mark.tip,
    )


@dataclass(frozen=True)
class TimelineRow:
    """Lines of the ledger of one kind, by their place in it; or anything else that happens in an order."""

    name: str
    places: Sequence[int]
    tips: Sequence[str]
    number: str = ""  # of places, in words and before the name; how many times by default


def timeline(releases: Sequence[TimelineRow], count: int, label: str = _LEDGER) -> Markup:
    """Every line of the ledger as a stroke, in the order in which they were written, a row for each kind."""
    left, right, top = 8.0, WIDTH - 16, 4.0
    along = Scale(0, max(count - 1, 1), left + 4, right - 4)
    rows = []
    for row, release in enumerate(releases):
        y = top + row * _ROW
        every = max(1, math.ceil(len(release.places) / _MOST_TICKS))
        strokes = [
            tag("rect", x=along(place) - 1, y=y + 16, width=2.2, height=14, data_tip=words)
            for place, words in list(zip(release.places, release.tips, strict=True))[::every]
        ]
        times = "once" if len(release.places) == 1 else f"{len(release.places)} times"
        words = f"{release.number}: {release.name}" if release.number else f"{release.name}, {times}"
        rows.append(text(left, y + 11, cut(words, _MOST_LETTERS), "name"))
        rows.append(line(left, y + 31, right, y + 31))
        rows.append(tag("g", strokes, class_="strokes"))
    return drawing(WIDTH, top + _ROW * len(releases) + 6, label, rows)


def meter(value: float, low: float, high: float, goal: str, words: str) -> Markup:
    """A score between its worst and its best; the better end is always at the right."""
    share = (value - low) / (high - low) if high > low else 0.0
    share = 1 - share if goal == "min" else share
    along = Scale(0, 1, 1, 119)
    return drawing(
        120,
        14,
        words,
        tag("rect", x=1, y=3, width=118, height=8, rx=4, class_="groove"),
        tag("rect", x=1, y=3, width=max(along(share) - 1, 2), height=8, rx=4, class_="fill", data_tip=words),
    )


@dataclass(frozen=True)
class Compared:
    """One classifier's result: trained on synthetic rows, on real rows, and for always naming one class."""

    name: str
    synthetic: float
    spread: float | None
    real: float
    majority: float


def usefulness(rows: Sequence[Compared], measure: str) -> Markup:
    """Synthetic (disc), real (bar) and the least to beat (cross) on one scale for each classifier."""
    left, right, top = 10.0, WIDTH - 16, 6.0
    values = [v for row in rows for v in (row.synthetic, row.real, row.majority)]
    low, high = min(values), max(values)
    room = 0.08 * (high - low or 0.1)
    along = Scale(low - room, min(high + room, 1.0), left, right)
    bottom = top + 40 * len(rows)
    feet = ticks(along.low, along.high, 6)
    marks = [_compared(row, along, top + 40 * place, measure) for place, row in enumerate(rows)]
    return drawing(
        WIDTH,
        bottom + 22,
        f"{measure} of classifiers trained on synthetic and on real rows",
        level(along, top, bottom, feet, [short(foot) for foot in feet]),
        marks,
    )


def _compared(row: Compared, along: Scale, y: float, measure: str) -> Markup:
    middle = y + 26
    x = along(row.majority)
    spread = row.spread or 0.0
    words = (
        f"{row.name}, {measure}: synthetic {row.synthetic:.3f}{f' ± {spread:.3f}' if spread else ''}, "
        f"real {row.real:.3f}, always the same answer {row.majority:.3f}"
    )
    return tag(
        "g",
        text(along.start, y + 12, row.name, "name"),
        line(along.start, middle, along.end, middle),
        line(along(row.synthetic - spread), middle, along(row.synthetic + spread), middle, "whisker"),
        tag("path", d=f"M{x - 5:.1f},{middle - 5}l10,10m0,-10l-10,10", class_="cross"),
        line(along(row.real), middle - 9, along(row.real), middle + 9, "real-line"),
        tag("circle", cx=along(row.synthetic), cy=middle, r=6, class_="synthetic-dot"),
        tag("rect", x=0, y=y, width=WIDTH, height=40, class_="hit"),
        data_tip=words,
    )


def intervals(rows: Sequence[tuple[str, float, float, float]]) -> Markup:
    """Shares between 0 and 1 as discs, each with its interval as a line: name, value, lower and upper end."""
    top, bottom = 6.0, 6.0 + 40 * len(rows)
    highest = min(1.0, max([high for *_, high in rows] + [0.1]) * 1.15)
    along = Scale(0, highest, 10, WIDTH - 16)
    feet = ticks(0, highest, 5)
    marks = []
    for place, (name, value, low, high) in enumerate(rows):
        y = top + 40 * place
        marks.append(
            tag(
                "g",
                text(along.start, y + 12, f"{name}: {value:.3f}", "name"),
                line(along.start, y + 26, along.end, y + 26),
                line(along(low), y + 26, along(high), y + 26, "whisker"),
                tag("circle", cx=along(value), cy=y + 26, r=6, class_="synthetic-dot"),
                tag("rect", x=0, y=y, width=WIDTH, height=40, class_="hit"),
                data_tip=f"{name}: {value:.3f}, between {low:.3f} and {high:.3f}",
            )
        )
    written = [short(foot) for foot in feet]
    label = "Risks: " + "; ".join(f"{name} {value:.3f}" for name, value, *_ in rows)
    return drawing(WIDTH, bottom + 22, label, level(along, top, bottom, feet, written), marks)
