"""How columns are related: maps of all pairs, what changed, the joint shares of some pairs, and all rows as a cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.assess.report.axis import percent
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.matrix import joint, matrix, worst_columns
from fedsynth.assess.report.page import figure, folded, table
from fedsynth.assess.report.scale_chart import meter
from fedsynth.assess.report.scatter import cloud
from fedsynth.assess.scores.overlay import changed_pairs

_MOST_MARGINALS = 12
_MOST_PAIRS = 10
_MOST_LISTED = 500  # pairs in the table that opens
SQUARES = "A large square is a strong relationship, a small one a weak one; hollow squares are negative."


def relations(found: Mapping[str, Any]) -> list[Markup | None]:
    """Maps of real and synthetic relations and of their difference, and every pair as numbers."""
    real, synthetic = found["real"], found["synthetic"]
    kept = worst_columns(real, synthetic)
    names = [found["names"][i] for i in kept]
    if len(names) < 2:
        return []
    both = [[[values[i][j] for j in kept] for i in kept] for values in (real, synthetic)]
    apart = [
        [None if r is None or s is None else s - r for r, s in zip(*rows, strict=True)]
        for rows in zip(*both, strict=True)
    ]
    pictures = [
        figure("Real", matrix(names, both[0], "real", both[1])),
        figure("Synthetic", matrix(names, both[1], "synthetic", both[0])),
        figure("Change: synthetic minus real", matrix(names, apart, "change"), "empty is best"),
    ]
    left_out = len(found["names"]) - len(names)
    words = (
        f"{SQUARES} The first two maps should look the same, and the third should be empty. Numbers with numbers: "
        "Pearson's correlation; otherwise Cramér's V, which has no sign."
    )
    more = (
        f" The {len(names)} columns that differ most are shown; {left_out} are left out." if left_out else ""
    )
    return [
        tag("p", words + more, class_="soft"),
        tag("div", pictures, class_="maps"),
        *_changed(found),
    ]


def map_numbers(names: Sequence[str], values: Sequence[Sequence[float | None]]) -> Markup:
    """The values of one map as a table that opens."""
    pairs = [
        (abs(value), f"{names[j]} and {names[i]}", value)
        for i in range(len(names))
        for j in range(i)
        if (value := values[i][j]) is not None
    ]
    rows = [[pair, f"{value:.2f}"] for _, pair, value in sorted(pairs, reverse=True)[:_MOST_LISTED]]
    return folded(
        "Relationships in numbers", table(["columns", "strength"], rows, "Relationships in numbers", (1,))
    )


def _changed(found: Mapping[str, Any]) -> list[Markup]:
    names, real, synthetic = found["names"], found["real"], found["synthetic"]
    rows = [
        [f"{names[i]} and {names[j]}", f"{real[i][j]:z.2f}", f"{synthetic[i][j]:z.2f}", f"{change:+z.2f}"]
        for change, i, j in changed_pairs(found)[:_MOST_LISTED]
    ]
    if not rows:
        return []
    heads = ["relationship", "real", "synthetic", "change"]
    first = table(heads, rows[:_MOST_PAIRS], "Relationships that changed most", (1, 2, 3))
    rest = table(heads, rows, "All relationships", (1, 2, 3)) if len(rows) > _MOST_PAIRS else None
    every = len(rows) == len(changed_pairs(found))
    said = (
        f"All {len(rows)} relationships in numbers"
        if every
        else f"The {len(rows)} that changed most, in numbers"
    )
    return [tag("div", first, folded(said, rest) if rest else None, class_="plain single")]


def pair_pictures(pairs: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """The joint shares of pairs of columns, real beside synthetic."""
    words = "The larger the square, the more rows have both values. Left: real; right: synthetic."
    pictures = [
        figure(
            " and ".join(pair["columns"]), joint(pair), f"change {pair['change']:+.2f}", _joint_numbers(pair)
        )
        for pair in pairs
    ]
    return [tag("p", words, class_="soft"), tag("div", pictures, class_="charts")]


def _joint_numbers(pair: Mapping[str, Any]) -> Markup:
    ones, others = pair["bins"]
    rows = [
        [f"{one}, {other}", percent(pair["real"][i][j]), percent(pair["synthetic"][i][j])]
        for i, one in enumerate(ones)
        for j, other in enumerate(others)
        if pair["real"][i][j] or pair["synthetic"][i][j]
    ]
    name = " and ".join(pair["columns"])
    return folded(
        f"{name} in numbers", table(["values", "real", "synthetic"], rows, f"Shares of {name}", (1, 2))
    )


def embedded(found: Mapping[str, Any]) -> list[Markup]:
    """Rows as points of a plane."""
    both = " and ".join(percent(share) for share in found["explained"])
    words = (
        f"Rings are real rows, discs synthetic ones, along the two directions in which real rows vary most (principal "
        f"components, which explain {both} of their variance). The two clouds should cover each other."
    )
    return [
        tag("p", words, class_="soft"),
        tag("div", figure("Real and synthetic rows in two dimensions", cloud(found)), class_="charts"),
    ]


def marginals(entries: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Combinations of columns whose shares differ most, beside what two halves of the real rows differ by."""
    if not entries:
        return None
    rows = []
    for entry in sorted(entries, key=lambda item: -item["distance"])[:_MOST_MARGINALS]:
        halves = entry.get("halves")
        rows.append(
            [
                ", ".join(entry["columns"]),
                f"{entry['distance']:.3f}",
                "–" if halves is None else f"{halves:.3f}",
                meter(entry["distance"], 0, 1, "max", f"distance {entry['distance']:.3f}"),
            ]
        )
    heads = ["columns together", "distance", "two halves of the real rows", "0 to 1, shorter is better"]
    listed = table(heads, rows, "Combinations of columns, worst first", (1, 2), "stack")
    return tag("div", listed, class_="plain single")
