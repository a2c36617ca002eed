"""Columns one by one: how their values are spread, and a line of numbers and alerts for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.assess.report.axis import percent, short
from fedsynth.assess.report.histogram import spread
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import figure, folded, table
from fedsynth.assess.scores.overlay import overlap

_MOST_COLUMNS = 120  # keeps the page below 5 MB
_MANY_COLUMNS = 12  # from which on a search helps


def legend(real: str = "real") -> Markup:
    """The key to bars and lines; without `real` to bars alone."""
    bar = sign(tag("rect", x=2, y=2, width=22, height=10, class_="synthetic"))
    stroke = sign(tag("path", d="M2,12V5H24V12", class_="real-line"))
    entries = [tag("li", bar, "filled bars: synthetic")]
    return tag("ul", entries + ([tag("li", stroke, f"line: {real}")] if real else []), class_="legend")


def sign(mark: Markup) -> Markup:
    """A small picture of a mark for a legend."""
    return tag("svg", mark, viewBox="0 0 26 14", width=26, height=14, aria_hidden="true")


def column_search(columns: Sequence[Mapping[str, Any]]) -> Markup | None:
    """A box that leaves only the columns whose name has the letters typed; few columns need none."""
    if len(columns) < _MANY_COLUMNS:
        return None
    box = tag("input", type="search", placeholder="part of a name")
    return tag(
        "div", tag("label", "Find a column ", box), tag("span", role="status"), class_="search", hidden=True
    )


def overlays(columns: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """A picture for each column, those that match worst first; of very many columns only these."""
    matches = [overlap(column) for column in columns]
    keys = [2.0 if match is None else match for match in matches]
    order = sorted(range(len(columns)), key=lambda i: keys[i])
    shown, rest = order[:_MOST_COLUMNS], order[_MOST_COLUMNS:]
    drawn = tag("div", [_column(columns[i], matches[i], i) for i in shown], class_="charts")
    words = f"{len(rest)} more columns are left out: {', '.join(columns[i]['name'] for i in rest)}."
    return [drawn, tag("p", words, class_="soft")] if rest else [drawn]


def _column(column: Mapping[str, Any], match: float | None, place: int) -> Markup:
    name = column["name"]
    attributes = {"id": f"column-{place}", "data_column": name}
    note = column["type"] if match is None else f"{column['type']}, match {percent(match)}"
    if column.get("failed"):
        reason = tag("p", f"Not compared: {column['failed']}", class_="bad-text")
        return figure(name, reason, note, **attributes)
    real = column.get("real")
    missing = [column.get("missing_real", 0.0)] if real else []
    missing.append(column["missing_synthetic"])
    sides = ["real", "synthetic"] if real else ["synthetic"]
    words = ", ".join(f"{side} {percent(share)}" for side, share in zip(sides, missing, strict=True))
    below = [tag("p", f"missing: {words}", class_="soft small") if any(missing) else None]
    below += [tag("p", f"⚠ {alert}", class_="small") for alert in column.get("alerts") or []]
    return figure(name, spread(column), note, [*below, _numbers(column)], **attributes)


def _numbers(column: Mapping[str, Any]) -> Markup:
    real, name = column.get("real"), column["name"]
    heads = ["value", "real", "synthetic"] if real else ["value", "synthetic"]
    values = [real, column["synthetic"]] if real else [column["synthetic"]]
    rows = [[words, *map(percent, shares)] for words, *shares in zip(column["bins"], *values, strict=True)]
    return folded(f"{name} in numbers", table(heads, rows, f"Shares of the values of {name}", (1, 2)))


def column_table(columns: Sequence[Mapping[str, Any]]) -> Markup | None:
    """A line for each column: match, different values, middle and range, real beside synthetic, and alerts."""
    described = [(place, column) for place, column in enumerate(columns) if column.get("summary")]
    if not described:
        return None
    compared = any(column.get("real") for _, column in described)
    rows = []
    for place, column in described:
        summary, match = column["summary"], overlap(column)
        sides = [summary["real"], summary["synthetic"]] if compared else [summary["synthetic"]]
        link = tag("a", column["name"], href=f"#column-{place}") if place < _MOST_COLUMNS else column["name"]
        alerts = "; ".join(column.get("alerts") or []) or "–"
        beside = [_beside([_first_values(side, keys) for side in sides]) for keys in _KEYS]
        first = ["–" if match is None else percent(match)] if compared else []
        rows.append([link, *first, *beside, alerts])
    both = " (real / synthetic)" if compared else ""
    heads = ["column", *(["match"] if compared else []), "different values" + both, "middle or most frequent"]
    heads += ["mean", "lowest to highest", "alerts"]
    names = [column["name"] for _, column in described]
    numbers = (1,) if compared else ()
    listed = table(heads, rows, "Columns in numbers", numbers, "stack", names)
    return folded("All columns in numbers", listed) if len(rows) > _MANY_COLUMNS else listed


def column_alerts(columns: Sequence[Mapping[str, Any]]) -> Markup:
    """The alerts of all columns as a list, or that there are none."""
    alerts = [(column["name"], "; ".join(column["alerts"])) for column in columns if column.get("alerts")]
    if not alerts:
        return tag("p", "No column is constant, mostly missing, or has lost or gained values.", class_="soft")
    return tag(
        "ul", [tag("li", tag("strong", name), f": {words}", data_column=name) for name, words in alerts]
    )


def _beside(values: Sequence[str]) -> str:
    return " / ".join(values) if any(words != "–" for words in values) else "–"


_KEYS = (("distinct",), ("middle", "frequent"), ("mean",), ("lowest", "highest"))


def _first_values(summary: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The first values that a summary has of these keys; both ends where they are ends."""
    values = [summary[key] for key in keys if key in summary]
    spelled = [value if isinstance(value, str) else short(value) for value in values]
    if "frequent" in keys and "share" in summary:
        return f"{spelled[0]} ({percent(summary['share'])})"
    return " to ".join(spelled) or "–"
