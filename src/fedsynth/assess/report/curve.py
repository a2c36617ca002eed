"""Lines over rounds, and the curves of attacks. Each line has its own dashes and its name at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedsynth.assess.report.axis import Scale, drawing, level, line, short, text, ticks, upright
from fedsynth.assess.report.markup import Markup, tag

_WIDTH, _HEIGHT = 420.0, 220.0
_MOST_POINTS = 240
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A named line."""

    name: str
    points: Sequence[Point]


def thin(points: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """At most so many points, spread evenly, the first and the last among them.

    >>> thin([(i, i) for i in range(10)], 4)
    [(0, 0), (3, 3), (6, 6), (9, 9)]
    """
    if len(points) <= most:
        return list(points)
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]


def curve(
    title: str, points: Sequence[Point], *, limit: float | None = None, across: str = "round"
) -> Markup:
    """One number over rounds; `limit` is a line that must not be crossed."""
    shown = thin([point for point in points if math.isfinite(point[1])])
    left, top, right, bottom = 48.0, 12.0, _WIDTH - 12, _HEIGHT - 34
    values = [value for _, value in shown] + ([] if limit is None else [limit])
    low, high = min(values), max(values)
    low = 0.0 if low > 0 and low < 0.4 * high else low
    up, along = Scale(low, high, bottom, top), Scale(shown[0][0], shown[-1][0], left, right)
    marks, feet = ticks(low, high), ticks(shown[0][0], shown[-1][0], 5)
    path = "M" + "L".join(f"{along(x):.1f},{up(y):.1f}" for x, y in shown)
    bound = [] if limit is None else [line(left, up(limit), right, up(limit), "limit")]
    dots = [
        _point(along(x), up(y), f"{across} {short(x)}: {title} {short(y)}", bottom, top) for x, y in shown
    ]
    return drawing(
        _WIDTH,
        _HEIGHT,
        f"{title} by {across}",
        upright(up, left, right, marks, [short(mark) for mark in marks]),
        level(along, bottom, bottom, feet, [short(mark) for mark in feet]),
        bound,
        tag("path", d=path, class_="curve"),
        tag("g", dots),
        text(right, _HEIGHT - 4, across, "tick", "end"),
    )


def _point(x: float, y: float, words: str, bottom: float, top: float) -> Markup:
    """A dot that shows when somebody points anywhere above or below it."""
    return tag(
        "g",
        tag("rect", x=x - 4, y=top, width=8, height=bottom - top, class_="hit"),
        tag("circle", cx=x, cy=y, r=3.5, class_="dot"),
        class_="point",
        data_tip=words,
    )


def roc(attacks: Sequence[Series], ceiling: Series | None) -> Markup:
    """Who is caught at how many false alarms; the diagonal is guessing, `ceiling` what the claim allows."""
    size, left, top = 300.0, 46.0, 10.0
    right, bottom = left + size, top + size
    up, along = Scale(0, 1, bottom, top), Scale(0, 1, left, right)
    marks = [0, 0.25, 0.5, 0.75, 1]
    written = ["0", "25%", "50%", "75%", "100%"]
    lines = [_attack(series, place, along, up) for place, series in enumerate(attacks)]
    allowed = [] if ceiling is None else [_allowed(ceiling, along, up)]
    return drawing(
        right + 14,
        bottom + 36,
        "Share of members found against share of false alarms, one curve for each attack",
        upright(up, left, right, marks, written),
        level(along, top, bottom, marks, written),
        line(left, bottom, right, top, "guess"),
        allowed,
        lines,
        text(right, bottom + 32, "false alarms", "tick", "end"),
    )


def _attack(series: Series, place: int, along: Scale, up: Scale) -> Markup:
    points = thin(series.points, 120)
    path = "M" + "L".join(f"{along(x):.1f},{up(y):.1f}" for x, y in points)
    hits = [
        tag(
            "circle",
            cx=along(x),
            cy=up(y),
            r=5,
            class_="hit",
            data_tip=f"{series.name}: finds {100 * y:.1f}% at {100 * x:.1f}% false alarms",
        )
        for x, y in points
    ]
    return tag("g", tag("path", d=path, class_=f"curve dash-{place % 4}"), hits)


def _allowed(ceiling: Series, along: Scale, up: Scale) -> Markup:
    path = "M" + "L".join(f"{along(x):.1f},{up(y):.1f}" for x, y in ceiling.points)
    return tag("path", d=path, class_="limit", data_tip=ceiling.name)
