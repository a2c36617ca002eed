"""Quality against epsilon: a numbered disc for each run, runs without a promise at the far right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsynth.assess.report.axis import WIDTH, Scale, drawing, level, line, short, text, ticks, upright
from fedsynth.assess.report.markup import Markup, tag

_HEIGHT = 250.0
_FEET = (0.01, 0.03, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Seat:
    """A run in the picture: its number in the table, its name, epsilon (None without a promise), and quality."""

    number: int
    name: str
    epsilon: float | None
    quality: float


def seats(runs: Sequence[Seat], quality: str, best: float | None = None) -> Markup:
    """The picture; epsilon is drawn on a logarithmic scale, `best` is what real rows reach."""
    left, top, right, bottom = 46.0, 12.0, WIDTH - 70, _HEIGHT - 38
    known = [run.epsilon for run in runs if run.epsilon is not None and run.epsilon > 0]
    low, high = (min(known) / 1.5, max(known) * 1.5) if known else (0.1, 10.0)
    along = Scale(math.log10(low), math.log10(high), left + 8, right)
    values = [run.quality for run in runs] + ([] if best is None else [best])
    room = max(0.1 * (max(values) - min(values)), 0.01)
    up = Scale(min(values) - room, max(values) + room, bottom, top)
    marks = ticks(up.low, up.high)
    feet = [step for step in _FEET if low <= step <= high]
    feet = feet[:: -(-len(feet) // 5) or 1]
    limit = [] if best is None else [line(left, up(best), WIDTH - 8, up(best), "limit")]
    drawn = [_seat(run, along, up, quality) for run in runs]
    return drawing(
        WIDTH,
        _HEIGHT,
        f"{quality} against epsilon",
        upright(up, left, WIDTH - 8, marks, [short(mark) for mark in marks]),
        level(along, bottom, bottom, [math.log10(foot) for foot in feet], [short(foot) for foot in feet]),
        text(WIDTH - 32, bottom + 15, "no promise", "tick", "middle"),
        text(left, _HEIGHT - 4, "epsilon: more privacy at the left", "tick"),
        limit,
        drawn,
    )


def _seat(run: Seat, along: Scale, up: Scale, quality: str) -> Markup:
    x = WIDTH - 32 if run.epsilon is None else along(math.log10(max(run.epsilon, 1e-6)))
    y = up(run.quality)
    promise = "no promise" if run.epsilon is None else f"epsilon {short(run.epsilon)}"
    return tag(
        "g",
        tag("circle", cx=x, cy=y, r=9, class_="seat"),
        tag("text", str(run.number), x=x, y=y + 4, text_anchor="middle", class_="seat-number"),
        data_tip=f"{run.name}: {promise}, {quality} {run.quality:.3f}",
    )


def cloud(found: Mapping[str, Any]) -> Markup:
    """Real rows as rings and synthetic rows as discs in a plane."""
    points = [*found["real"], *found["synthetic"]]
    ends = [(min(each), max(each)) for each in zip(*points, strict=True)]
    along, up = Scale(*ends[0], 8, WIDTH - 8), Scale(*ends[1], _HEIGHT - 8, 8)
    discs = [tag("circle", cx=along(x), cy=up(y), r=2.6) for x, y in found["synthetic"]]
    rings = [tag("circle", cx=along(x), cy=up(y), r=3) for x, y in found["real"]]
    return drawing(
        WIDTH,
        _HEIGHT,
        f"{len(rings)} real and {len(discs)} synthetic rows along their two main directions",
        tag("rect", x=1, y=1, width=WIDTH - 2, height=_HEIGHT - 2, class_="frame"),
        tag("g", discs, class_="synthetic-point"),
        tag("g", rings, class_="real-ring"),
    )
