"""A small card for notebooks: what an object is, in a line of facts and a text that opens. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

_BOX = "border:1px solid #8884;border-radius:8px;padding:10px 14px;max-width:760px;overflow-wrap:anywhere"


def card(title: str, facts: Mapping[str, str], text: str = "") -> str:
    """HTML with everything escaped; `text` is folded, its paragraphs told apart by blank lines.

    >>> "<b>a &lt; b</b>" in card("a < b", {"rows": "3"})
    True
    """
    cells = "".join(
        f'<td style="text-align:left;padding:2px 18px 2px 0"><small>{escape(name)}</small><br>{escape(value)}</td>'
        for name, value in facts.items()
    )
    parts = "".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n") if part.strip())
    more = f"<details><summary>in words</summary>{parts}</details>" if parts else ""
    return f'<div style="{_BOX}"><b>{escape(title)}</b><table><tr>{cells}</tr></table>{more}</div>'
