"""Lines over rounds, and the curves of attacks. Each line has its own dashes and its name at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedsynth.assess.report.axis import WIDTH, Scale, drawing, level, line, short, text, ticks, upright
from fedsynth.assess.report.markup import Markup, tag

_HEIGHT = 200.0
_MOST_POINTS = 240
_FEWEST_ALARMS = 0.001  # of the view of few false alarms
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
    title: str,
    points: Sequence[Point],
    *,
    limit: float | None = None,
    across: str = "round",
    logarithmic: bool = False,
) -> Markup:
    """One number over rounds, or over something else that grows (`logarithmic`); `limit` must not be crossed."""
    shown = thin([point for point in points if math.isfinite(point[1])])
    left, top, right, bottom = 48.0, 12.0, WIDTH - 10, _HEIGHT - 34
    values = [value for _, value in shown] + ([] if limit is None else [limit])
    low, high = min(values), max(values)
    low = 0.0 if low > 0 and low < 0.4 * high else low
    ends = (shown[0][0], shown[-1][0])

    def place(x: float) -> float:
        return math.log10(x) if logarithmic else x

    up, along = Scale(low, high, bottom, top), Scale(place(ends[0]), place(ends[1]), left, right)
    marks, feet = ticks(low, high), _powers(*ends) if logarithmic else ticks(*ends, 5)
    path = "M" + "L".join(f"{along(place(x)):.1f},{up(y):.1f}" for x, y in shown)
    bound = [] if limit is None else [line(left, up(limit), right, up(limit), "limit")]
    dots = [
        _point(along(place(x)), up(y), f"{across} {short(x)}: {title} {short(y)}", bottom, top)
        for x, y in shown
    ]
    return drawing(
        WIDTH,
        _HEIGHT,
        f"{title} by {across}",
        upright(up, left, right, marks, [short(mark) for mark in marks]),
        level(along, bottom, bottom, [place(foot) for foot in feet], [short(foot) for foot in feet]),
        bound,
        tag("path", d=path, class_="curve"),
        tag("g", dots),
        text(right, _HEIGHT - 4, across, "tick", "end"),
    )


def _powers(low: float, high: float) -> list[float]:
    """The ends, and the powers of ten between them.

    >>> _powers(6000, 1_000_000)
    [6000, 10000.0, 100000.0, 1000000]
    """
    between = range(math.floor(math.log10(low)) + 1, math.ceil(math.log10(high)))
    return [low, *(10.0**power for power in between), high]


def _point(x: float, y: float, words: str, bottom: float, top: float) -> Markup:
    """A dot that shows when somebody points anywhere above or below it."""
    return tag(
        "g",
        tag("rect", x=x - 4, y=top, width=8, height=bottom - top, class_="hit"),
        tag("circle", cx=x, cy=y, r=3.5, class_="dot"),
        class_="point",
        data_tip=words,
    )


def roc(attacks: Sequence[Series], ceiling: Series | None, *, low: bool = False) -> Markup:
    """Who is caught at how many false alarms; the diagonal is guessing, `ceiling` what the claim allows.

    `low` shows few false alarms in full: both scales are logarithmic, from one in a thousand on.
    """
    size, left, top = WIDTH - 60, 46.0, 10.0
    right, bottom = left + size, top + size

    def place(rate: float) -> float:
        return math.log10(max(rate, _FEWEST_ALARMS)) if low else rate

    ends = (math.log10(_FEWEST_ALARMS), 0.0) if low else (0.0, 1.0)
    up, along = Scale(*ends, bottom, top), Scale(*ends, left, right)
    marks = [0.001, 0.01, 0.1, 1] if low else [0, 0.25, 0.5, 0.75, 1]
    places, written = [place(mark) for mark in marks], [f"{100 * mark:g}%" for mark in marks]

    def path(series: Series) -> str:
        points = thin(series.points, 120)
        return "M" + "L".join(f"{along(place(x)):.1f},{up(place(y)):.1f}" for x, y in points)

    lines = [
        tag("path", d=path(series), class_=f"curve dash-{number % 4}")
        for number, series in enumerate(attacks)
    ]
    hits = [
        tag("circle", cx=along(place(x)), cy=up(place(y)), r=5, class_="hit", data_tip=_caught(series, x, y))
        for series in attacks
        for x, y in thin(series.points, 120)
    ]
    allowed = [] if ceiling is None else [tag("path", d=path(ceiling), class_="limit", data_tip=ceiling.name)]
    caption = "few false alarms, logarithmic" if low else "one curve for each attack"
    return drawing(
        WIDTH,
        bottom + 36,
        f"Share of members found against share of false alarms, {caption}",
        upright(up, left, right, places, written),
        level(along, top, bottom, places, written),
        line(left, bottom, right, top, "guess"),
        allowed,
        lines,
        hits,
        text(right, bottom + 32, "false alarms", "tick", "end"),
    )


def _caught(series: Series, x: float, y: float) -> str:
    return f"{series.name}: finds {100 * y:.1f}% at {100 * x:.1f}% false alarms"
