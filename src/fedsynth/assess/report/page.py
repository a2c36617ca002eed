"""A page in one file: style and script inside, nothing loaded from anywhere, and a policy that forbids it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from fedsynth.assess.report.markup import Markup, breakable, join, scrolled, tag


@dataclass(frozen=True)
class Section:
    """A chapter of a page: its place in the address, its heading, and what stands in it."""

    name: str
    title: str
    body: Sequence[Any]


@cache
def asset(name: str) -> str:
    """A file that lies beside this one."""
    return resources.files("fedsynth.assess.report").joinpath(name).read_text(encoding="utf-8")


def policy(scripts: Sequence[str], live: bool = False) -> str:
    """The content policy: only this style and these scripts, pictures inside the page, no connection at all.

    A live page may ask the server that it came from, and no other.
    """
    allowed = " ".join(_digest(script) for script in scripts) or "'none'"
    own = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; img-src data:; style-src {_digest(asset('page.css'))}; script-src {allowed}; "
        f"connect-src {own}; form-action {own}; base-uri 'none'"
    )


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def page(
    title: str,
    head: Sequence[Any],
    sections: Sequence[Section],
    foot: Sequence[Any],
    *,
    live: bool = False,
    script: str | None = None,
) -> str:
    """The whole file. `head` stands above the list of chapters; a `live` page asks its server for news.

    `script` names a file beside this one that the page needs besides.
    """
    scripts = [asset(name) for name in ("page.js", "live.js" if live else None, script) if name]
    links = [tag("a", section.title, href=f"#{section.name}") for section in sections]
    body = tag(
        "body",
        tag("a", "Skip to content", href="#main", class_="skip"),
        tag("header", head, class_="top"),
        tag("nav", links, class_="jump", aria_label="Chapters") if len(links) > 1 else None,
        tag("main", [_chapter(section) for section in sections], id="main", tabindex="-1"),
        tag("footer", foot),
        tag("div", id="tip", hidden=True, aria_hidden="true"),
        [tag("script", Markup(script)) for script in scripts],
    )
    top = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy(scripts, live)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(asset("page.css"))),
    )
    return "<!doctype html>\n" + tag("html", top, body, lang="en") + "\n"


def _chapter(section: Section) -> Markup:
    return tag(
        "section",
        tag("h2", section.title, id=f"{section.name}-title"),
        section.body,
        id=section.name,
        aria_labelledby=f"{section.name}-title",
    )


def figure(caption: str, drawn: Any, note: str = "", below: Any = None, **attributes: Any) -> Markup:
    """A picture in a frame, with its name and a remark."""
    words = tag(
        "figcaption", tag("span", breakable(caption)), tag("span", note, class_="soft") if note else None
    )
    return tag("figure", words, drawn, below, **attributes)


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Any]],
    label: str,
    numbers: Sequence[int] = (),
    class_: str = "",
    columns: Sequence[str] | None = None,
) -> Markup:
    """A table that can be scrolled where it is too wide; `numbers` are the columns set at the right.

    Of class `stack`, its cells stand below each other on a phone, each with its heading. `columns` are the names by
    which the search of a page finds the rows.
    """
    stacked = class_ == "stack"
    sides = ["number" if place in numbers else None for place in range(len(headings))]
    parts = ("table", "rowgroup", "row", "columnheader", "cell")
    roles = {part: {"role": part} if stacked else {} for part in parts}  # a phone lays them out as no table
    top = [
        tag("th", words, scope="col", class_=side, **roles["columnheader"])
        for words, side in zip(headings, sides, strict=True)
    ]
    lines = []
    for place, row in enumerate(rows):
        cells = [
            tag("td", cell, class_=side, data_label=words if stacked else None, **roles["cell"])
            for cell, side, words in zip(row, sides, headings, strict=True)
        ]
        column = columns[place] if columns else None
        lines.append(tag("tr", cells, data_column=column, **roles["row"]))
    head = tag("thead", tag("tr", top, **roles["row"]), **roles["rowgroup"])
    body = tag("tbody", lines, **roles["rowgroup"])
    return scrolled(tag("table", head, body, class_=class_ or None, **roles["table"]), label)


def across(heads: Sequence[str], rows: Sequence[Sequence[str]], label: str) -> Markup:
    """Rows of very many columns turned on their side: a line for each column, which fits a screen and a page."""
    lines = [
        tag("tr", tag("th", name, scope="row"), [tag("td", row[place]) for row in rows])
        for place, name in enumerate(heads)
    ]
    top = tag(
        "tr",
        tag("th", "column", scope="col"),
        [tag("th", f"row {i}", scope="col") for i in range(1, len(rows) + 1)],
    )
    return scrolled(tag("table", tag("thead", top), tag("tbody", lines), class_="sample"), label)


def facts(pairs: Sequence[tuple[str, Any]]) -> Markup:
    """Names with their values, side by side."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs], class_="facts")


def folded(summary: str, *content: Any) -> Markup:
    """Content that opens on demand."""
    return tag("details", tag("summary", breakable(summary)), content)


def paragraphs(text: str) -> Markup:
    """A text whose paragraphs are told apart by blank lines."""
    return join([tag("p", part) for part in text.split("\n\n") if part.strip()])
