"""Numbers to pixels, round ticks, and numbers as people write them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from fedsynth.assess.report.markup import Markup, scrolled, tag

WIDTH = 310.0  # of a picture: as much as a phone shows, so that nothing is scaled and letters keep their size
LETTER = 6.8  # pixels of an average letter in a picture


@dataclass(frozen=True)
class Scale:
    """A straight line from numbers to pixels; numbers beyond the ends stay at the ends.

    >>> across = Scale(0, 10, 100, 200)
    >>> across(5), across(12)
    (150.0, 200.0)
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a number."""
        width = self.high - self.low
        share = (value - self.low) / width if width else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers between two bounds, about `count` of them.

    >>> ticks(0, 8), ticks(0, 0.33)
    ([0.0, 2.0, 4.0, 6.0, 8.0], [0.0, 0.1, 0.2, 0.3])
    """
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * size for size in (1, 2, 5, 10) if power * size >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(step * place, 12) for place in range(first, last + 1)]


def short(value: float) -> str:
    """A number with as many digits as help.

    >>> short(30000.0), short(0.12345), short(8.0), short(2_500_000)
    ('30,000', '0.123', '8', '2.5M')
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g}M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.5), percent(0.0123), percent(0.00004)
    ('50%', '1.2%', '<0.1%')
    """
    if 0 < share < 0.001:
        return "<0.1%"
    text = f"{100 * share:.1f}"
    return f"{text.removesuffix('.0')}%"


def drawing(width: float, height: float, label: str, *marks: Markup | Sequence[Markup]) -> Markup:
    """A picture in its own size, scrolled where there is no room; `label` tells it to those who do not see it."""
    size = {"width": round(width), "height": round(height)}
    drawn = tag(
        "svg", *marks, viewBox=f"0 0 {size['width']} {size['height']}", role="img", aria_label=label, **size
    )
    return drawn if width <= WIDTH else scrolled(drawn, label)


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> Markup:
    """Words in a picture; `anchor` is start, middle or end."""
    return tag("text", words, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str = "grid") -> Markup:
    """A straight line in a picture."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def upright(
    scale: Scale, left: float, right: float, marks: Sequence[float], written: Sequence[str]
) -> Markup:
    """A vertical axis: a faint line across and a number at the left for each mark."""
    parts = []
    for value, words in zip(marks, written, strict=True):
        y = scale(value)
        parts += [line(left, y, right, y), text(left - 6, y + 4, words, "tick", "end")]
    return tag("g", parts)


def level(scale: Scale, top: float, bottom: float, marks: Sequence[float], written: Sequence[str]) -> Markup:
    """A horizontal axis: a faint line upwards and a number below for each mark that has room for it."""
    parts = []
    free = -math.inf  # where the last number ends
    for value, words in zip(marks, written, strict=True):
        x, half = scale(value), len(words) * LETTER / 2
        parts.append(line(x, top, x, bottom))
        if x - half >= free:
            parts.append(text(x, bottom + 15, words, "tick", "middle"))
            free = x + half + LETTER
    return tag("g", parts)


def distinct(names: Sequence[str], length: int) -> list[str]:
    """Names cut to `length` letters each that still differ: those that begin alike keep what tells them apart.

    >>> distinct(["age", "deductible_of_plan_a_year", "deductible_of_plan_b_year"], 12)
    ['age', 'deductibl…a…', 'deductibl…b…']
    >>> distinct(["laboratory_value_01", "laboratory_value_02", "diagnosis.code.01", "diagnosis.code.02"], 12)
    ['laborator…01', 'laborator…02', 'diagnosis…01', 'diagnosis…02']
    """
    cuts = [cut(name, length) for name in names]
    for short_name in {each for each in cuts if cuts.count(each) > 1}:
        places = [place for place, each in enumerate(cuts) if each == short_name]
        alike = [names[place] for place in places]
        start = len(os.path.commonprefix(alike))
        end = len(os.path.commonprefix([name[start:][::-1] for name in alike]))
        while start and alike[0][start - 1].isdigit():  # a number stays whole
            start -= 1
        for place, name in zip(places, alike, strict=True):
            core = name[start : len(name) - end] + ("…" if end else "")
            cuts[place] = cut(f"{name[: max(length - 1 - len(core), 0)]}…{core}", length)
    return [
        each if cuts.count(each) == 1 else cut(f"no. {place + 1}", length) for place, each in enumerate(cuts)
    ]


def cut(words: str, length: int) -> str:
    """A text of at most `length` letters.

    >>> cut("individual_deductible", 12)
    'individual_…'
    """
    return words if len(words) <= length else words[: length - 1] + "…"
