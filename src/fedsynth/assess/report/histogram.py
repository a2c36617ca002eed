"""How the values of one column are spread: synthetic as filled bars, real as a line. Form tells them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.assess.report.axis import (
    LETTER,
    WIDTH,
    Scale,
    distinct,
    drawing,
    line,
    percent,
    short,
    text,
    ticks,
    upright,
)
from fedsynth.assess.report.markup import Markup, tag

_ROW = 24.0  # height of a category
_MOST_ROWS = 10
_MOST_LETTERS = 13
_NUMBERS = (WIDTH - 48, WIDTH - 2)  # where the shares of synthetic and of real rows end


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
    left, top, right, bottom = 38.0, 8.0, WIDTH - 8, 142.0
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
        WIDTH,
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
        room = max(len(words) for words in bins) * LETTER + 8
        every = -(-len(bins) // max(1, int((across.end - across.start) // room)))
        return [
            text(across(i + 0.5), bottom + 15, bins[i], "tick", "middle") for i in range(0, len(bins), every)
        ]
    widest = max(len(short(edge)) for edge in edges) * LETTER + 8
    gaps = max(1, min(4, int((across.end - across.start) // widest) - 1))
    places = sorted({round(i * len(bins) / gaps) for i in range(gaps + 1)})
    anchors = {0: "start", len(bins): "end"}
    return [text(across(i), bottom + 15, short(edges[i]), "tick", anchors.get(i, "middle")) for i in places]


def _categories(
    bins: Sequence[str], synthetic: Sequence[float], real: Sequence[float] | None, label: str
) -> Markup:
    """A bar for each category, the real share as a stroke across it, and both in numbers; of many the largest."""
    weight = [max(pair) for pair in zip(synthetic, real or synthetic, strict=True)]
    kept = sorted(range(len(bins)), key=lambda i: -weight[i])[:_MOST_ROWS]
    order = sorted(kept)
    names = distinct([bins[i] for i in order], _MOST_LETTERS)
    left = 14 + LETTER * max(map(len, names))
    across = Scale(0, max(max(weight), 1e-9), left, _NUMBERS[0] - 44 if real else WIDTH - 52)
    heads = ["synthetic", "real"] if real else []
    top = [text(x, 11, words, "tick", "end") for x, words in zip(_NUMBERS, heads, strict=False)]
    first = 18.0 if real else 4.0
    rows = [
        _category(
            bins[i], names[place], synthetic[i], real[i] if real else None, first + place * _ROW, across
        )
        for place, i in enumerate(order)
    ]
    height = first + _ROW * len(order)
    more = len(bins) - len(order)
    words = f"and {more} more, in the numbers below"
    note = [text(WIDTH - 8, height + 12, words, "tick", "end")] if more else []
    return drawing(WIDTH, height + (18 if more else 2), label, top, rows, note)


def _category(words: str, name: str, synthetic: float, real: float | None, y: float, across: Scale) -> Markup:
    end = across(synthetic)
    numbers = [text(WIDTH - 2, y + 12, percent(synthetic), "tick", "end")]
    stroke = []
    if real is not None:
        stroke = [line(across(real), y - 2, across(real), y + 18, "real-line")]
        shares = zip(_NUMBERS, (synthetic, real), strict=True)
        numbers = [text(x, y + 12, percent(share), "tick", "end") for x, share in shares]
    return tag(
        "g",
        text(across.start - 8, y + 12, name, "tick", "end"),
        tag("rect", x=across.start, y=y, width=end - across.start, height=16, class_="synthetic"),
        stroke,
        numbers,
        tag(
            "rect",
            x=0,
            y=y - 4,
            width=WIDTH,
            height=_ROW,
            class_="hit",
            data_tip=tip(words, synthetic, real),
        ),
    )
