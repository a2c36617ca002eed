"""How the values of one column are spread: synthetic as filled bars, real as a line. Form tells them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.assess.report.axis import Scale, cut, drawing, line, percent, short, text, ticks, upright
from fedsynth.assess.report.markup import Markup, tag

_WIDTH = 340.0
_ROW = 24.0  # height of a category
_MOST_ROWS = 10
_MOST_LETTERS = 14


def spread(column: Mapping[str, Any]) -> Markup:
    """The picture of a column as `evaluate` describes it; without `real` only the synthetic values are drawn."""
    real = column.get("real")
    label = f"Shares of the values of {column['name']}" + (", real and synthetic" if real else ", synthetic")
    if column["edges"] is None:
        return _categories(column["bins"], column["synthetic"], real, label)
    return _histogram(column, real, label)


def tip(words: str, synthetic: float, real: float | None) -> str:
    """The text that a mark shows when somebody points at it.

    >>> tip("F", 0.5, 0.25)
    'F: real 25%, synthetic 50%'
    """
    shown = "" if real is None else f"real {percent(real)}, "
    return f"{words}: {shown}synthetic {percent(synthetic)}"


def _histogram(column: Mapping[str, Any], real: Sequence[float] | None, label: str) -> Markup:
    synthetic, bins, edges = column["synthetic"], column["bins"], column["edges"]
    left, top, right, bottom = 38.0, 8.0, _WIDTH - 8, 142.0
    highest = max([*synthetic, *(real or []), 1e-9])
    up = Scale(0, highest, bottom, top)
    across = Scale(0, len(bins), left, right)
    marks = ticks(0, highest, 3)
    bars = [
        tag(
            "rect",
            x=across(i) + 0.5,
            y=up(share),
            width=max(across(1) - left - 1, 0.5),
            height=bottom - up(share),
        )
        for i, share in enumerate(synthetic)
        if share > 0
    ]
    outline = [] if real is None else [_steps(real, across, up)]
    reals: Sequence[float | None] = real or [None] * len(bins)
    hits = [
        tag(
            "rect", x=across(i), y=top, width=across(1) - left, height=bottom - top, data_tip=tip(words, s, r)
        )
        for i, (words, s, r) in enumerate(zip(bins, synthetic, reals, strict=True))
    ]
    return drawing(
        _WIDTH,
        164,
        label,
        upright(up, left, right, marks, [percent(mark) for mark in marks]),
        tag("g", bars, class_="synthetic"),
        outline,
        _edge_labels(bins, edges, across, bottom),
        tag("g", hits, class_="hits"),
    )


def _steps(shares: Sequence[float], across: Scale, up: Scale) -> Markup:
    """The outline of a histogram."""
    points = [f"M{across(0):.1f},{up(0):.1f}"]
    for i, share in enumerate(shares):
        points.append(f"V{up(share):.1f}H{across(i + 1):.1f}")
    return tag("path", d="".join(points) + f"V{up(0):.1f}", class_="real-line")


def _edge_labels(bins: Sequence[str], edges: Sequence[float], across: Scale, bottom: float) -> list[Markup]:
    """Numbers under a histogram: the values themselves if they are few, else some of the edges."""
    if not any(" to " in words for words in bins):
        every = -(-len(bins) // 10)
        return [
            text(across(i + 0.5), bottom + 15, bins[i], "tick", "middle") for i in range(0, len(bins), every)
        ]
    places = sorted({round(i * len(bins) / 4) for i in range(5)})
    anchors = {0: "start", len(bins): "end"}
    return [text(across(i), bottom + 15, short(edges[i]), "tick", anchors.get(i, "middle")) for i in places]


def _categories(
    bins: Sequence[str], synthetic: Sequence[float], real: Sequence[float] | None, label: str
) -> Markup:
    """A bar for each category, the real share as a stroke across it; the largest ones if there are many."""
    weight = [max(pair) for pair in zip(synthetic, real or synthetic, strict=True)]
    kept = sorted(range(len(bins)), key=lambda i: -weight[i])[:_MOST_ROWS]
    order = sorted(kept)
    longest = max(len(cut(bins[i], _MOST_LETTERS)) for i in order)
    left = 14 + 7.0 * longest
    across = Scale(0, max(max(weight), 1e-9), left, _WIDTH - 48)
    rows = [
        _category(bins[i], synthetic[i], None if real is None else real[i], place, across)
        for place, i in enumerate(order)
    ]
    height = _ROW * len(order) + 6
    more = len(bins) - len(order)
    note = (
        [text(_WIDTH - 8, height + 12, f"and {more} more, in the numbers below", "tick", "end")]
        if more
        else []
    )
    return drawing(_WIDTH, height + (18 if more else 0), label, rows, note)


def _category(words: str, synthetic: float, real: float | None, place: int, across: Scale) -> Markup:
    y = place * _ROW + 4
    end = across(synthetic)
    stroke = [] if real is None else [line(across(real), y - 2, across(real), y + 18, "real-line")]
    furthest = end if real is None else max(end, across(real))
    return tag(
        "g",
        text(across.start - 8, y + 12, cut(words, _MOST_LETTERS), "tick", "end"),
        tag("rect", x=across.start, y=y, width=end - across.start, height=16, class_="synthetic"),
        stroke,
        text(furthest + 6, y + 12, percent(synthetic), "tick"),
        tag(
            "rect",
            x=0,
            y=y - 4,
            width=_WIDTH,
            height=_ROW,
            class_="hit",
            data_tip=tip(words, synthetic, real),
        ),
    )
