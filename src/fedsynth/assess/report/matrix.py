"""Relationships between columns: a square for each pair, large for a strong relation, hollow for a negative one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.assess.report.axis import LETTER, WIDTH, cut, distinct, drawing, percent, tag, text
from fedsynth.assess.report.markup import Markup

Matrix = Sequence[Sequence[float | None]]
MOST = 32  # columns that fit in a picture
_CELL = 16.0
_LETTERS = 12
_GAP = 14.0  # between the two halves of a pair


def worst_columns(real: Matrix, synthetic: Matrix, most: int = MOST) -> list[int]:
    """The columns whose relations differ most, in their old order: a picture holds only so many.

    >>> worst_columns([[1, 0, 0], [0, 1, 0.5], [0, 0.5, 1]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], most=2)
    [1, 2]
    """
    gaps = [
        sum(abs((r or 0) - (s or 0)) for r, s in zip(row, other, strict=True))
        for row, other in zip(real, synthetic, strict=True)
    ]
    return sorted(sorted(range(len(gaps)), key=lambda i: -gaps[i])[:most])


def matrix(names: Sequence[str], values: Matrix, what: str, beside: Matrix | None = None) -> Markup:
    """One map; `what` is real, synthetic or difference, `beside` the other table's, told when somebody points."""
    shown = distinct(names, _LETTERS)
    left = 12 + LETTER * max(map(len, shown))
    size = _CELL * len(names)
    cells = [
        _cell(left, i, j, names, values[i][j], None if beside is None else beside[i][j], what)
        for i in range(len(names))
        for j in range(len(names))
    ]
    rows = [text(left - 6, (i + 0.5) * _CELL + 8, name, "tick", "end") for i, name in enumerate(shown)]
    feet = [
        tag(
            "text",
            name,
            class_="tick",
            text_anchor="end",
            transform=f"translate({left + (i + 0.7) * _CELL:.1f} {size + 14:.1f}) rotate(-45)",
        )
        for i, name in enumerate(shown)
    ]
    frame = tag("rect", x=left, y=4, width=size, height=size, class_="frame")
    label = (
        "Change of relations between columns"
        if what == "change"
        else f"Relations between columns, {what} data"
    )
    return drawing(left + size + 6, size + 0.75 * left + 8, label, frame, rows, feet, cells)


def _cell(
    left: float, i: int, j: int, names: Sequence[str], value: float | None, other: float | None, what: str
) -> Markup:
    x, y = left + j * _CELL, 4 + i * _CELL
    strength = 0.0 if value is None else math.sqrt(min(abs(value), 1.0))
    side = max(strength * (_CELL - 3), 1.5)
    offset = (_CELL - side) / 2
    kind = "undefined" if value is None else "against" if value < 0 else "with"
    if i == j:
        kind = "same"
    words = f"{names[i]} and {names[j]}: {what} {_number(value)}"
    if other is not None:
        words += f", {'real' if what == 'synthetic' else 'synthetic'} {_number(other)}"
    return tag(
        "g",
        tag("rect", x=x + offset, y=y + offset, width=side, height=side, class_=kind),
        tag("rect", x=x, y=y, width=_CELL, height=_CELL, class_="hit"),
        data_tip=words,
    )


def _number(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.2f}"


def joint(pair: Mapping[str, Any]) -> Markup:
    """Which values two columns have together, real left and synthetic right; the area is the share of rows."""
    ones, others = pair["bins"]
    side = (WIDTH - _GAP) / 2 - 2
    cell = min(side / max(len(ones), 1), side / max(len(others), 1))
    highest = max(
        [share for table in (pair["real"], pair["synthetic"]) for row in table for share in row] + [1e-9]
    )
    marks = []
    for place, what in enumerate(("real", "synthetic")):
        left = place * (side + _GAP) + 1
        frame = {"width": cell * len(ones), "height": cell * len(others)}
        marks.append(text(left, 11, what, "tick"))
        marks.append(tag("rect", x=left, y=18, **frame, class_="frame"))
        marks += [
            _share(
                left + i * cell,
                18 + (len(others) - 1 - j) * cell,
                cell,
                share,
                highest,
                what,
                f"{one}, {other}",
            )
            for i, one in enumerate(ones)
            for j, other in enumerate(others)
            if (share := pair[what][i][j]) or pair["real"][i][j]
        ]
    names = [cut(name, 40) for name in pair["columns"]]
    height = 18 + cell * len(others)
    feet = [
        text(1, height + 15, f"across: {names[0]}", "tick"),
        text(1, height + 31, f"up: {names[1]}", "tick"),
    ]
    label = f"Joint shares of {pair['columns'][0]} and {pair['columns'][1]}, real and synthetic"
    return drawing(WIDTH, height + 36, label, marks, feet)


def _share(x: float, y: float, cell: float, share: float, highest: float, what: str, words: str) -> Markup:
    side = max(math.sqrt(share / highest) * (cell - 1), 0.0)
    offset = (cell - side) / 2
    kind = "with" if what == "real" else "synthetic"
    return tag(
        "g",
        tag("rect", x=x + offset, y=y + offset, width=side, height=side, class_=kind),
        tag("rect", x=x, y=y, width=cell, height=cell, class_="hit"),
        data_tip=f"{words}: {what} {percent(share)}",
    )
