"""HTML and SVG out of nested calls: text is escaped, markup is not, so nothing in a column's name can run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any

_VOID = {"meta", "link", "img", "br", "wbr", "input", "hr"}


class Markup(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element. Attributes: None is left out, True has no value, `class_` is class, `data_tip` is data-tip.

    >>> tag("p", "a < b", tag("br"), 3, class_="note", hidden=True, id=None)
    '<p class="note" hidden>a &lt; b<br>3</p>'
    >>> tag("rect", x=1 / 3, data_tip='5" wide')
    '<rect x="0.33" data-tip="5&quot; wide"></rect>'
    """
    opened = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Markup(opened if name in _VOID else f"{opened}{join(children)}</{name}>")


def join(children: Any) -> Markup:
    """Children one after the other: markup as it is, lists flattened, None left out, anything else escaped.

    >>> join(["a & b", None, [tag("b", "c")]])
    'a &amp; b<b>c</b>'
    """
    if children is None:
        return Markup()
    if isinstance(children, Markup):
        return children
    if isinstance(children, str) or not isinstance(children, Iterable):
        return Markup(escape(_text(children), quote=False))
    return Markup("".join(join(child) for child in children))


def breakable(name: str) -> Markup:
    """A name that a narrow place breaks after an underscore or a dot, rather than anywhere.

    >>> breakable("blood_pressure")
    'blood_<wbr>pressure'
    """
    return Markup(re.sub(r"(?<=[_.])(?=\w)", tag("wbr"), join(name)))


def scrolled(content: Markup, label: str) -> Markup:
    """Content that can be scrolled sideways, by keys as well, where it is wider than its place."""
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(_text(value))}"'


def _text(value: Any) -> str:
    """Coordinates need no more than hundredths of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
