"""How columns go together: a square for each pair, large for a strong relation, hollow for a negative one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedsynth.assess.report.axis import cut, drawing, tag, text
from fedsynth.assess.report.markup import Markup

Matrix = Sequence[Sequence[float | None]]
MOST = 32  # columns that fit in a picture
_CELL = 22.0
_LETTERS = 12


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
    """One heat map; `beside` is the other table's, told when somebody points at a square."""
    left = 12 + 6.6 * min(max(len(name) for name in names), _LETTERS)
    size = _CELL * len(names)
    cells = [
        _cell(left, i, j, names, values[i][j], None if beside is None else beside[i][j], what)
        for i in range(len(names))
        for j in range(len(names))
    ]
    rows = [
        text(left - 6, i * _CELL + 19, cut(name, _LETTERS), "tick", "end") for i, name in enumerate(names)
    ]
    feet = [
        tag(
            "text",
            cut(name, _LETTERS),
            class_="tick",
            text_anchor="end",
            transform=f"translate({left + (i + 0.7) * _CELL:.1f} {size + 14:.1f}) rotate(-45)",
        )
        for i, name in enumerate(names)
    ]
    frame = tag("rect", x=left, y=4, width=size, height=size, class_="frame")
    label = f"Relations between columns, {what} data"
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
