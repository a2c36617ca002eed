"""The chapter on privacy: the statement, who is protected from whom, what was released, and what attacks reach."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.assess.report.axis import short
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import facts, figure, paragraphs, table
from fedsynth.assess.report.scale_chart import Mark, TimelineRow, epsilon_ruler, timeline
from fedsynth.privacy.ledger import LedgerLine
from fedsynth.privacy.statement import Statement
from fedsynth.privacy.wording import shown

_UNITS = {"client": "a client, with all its data", "record": "a single row"}
_TRUST = {
    "central": "the server",
    "distributed": "enough of the clients or sites",
    "local": "nobody",
    "none": "everybody",
}
FALSE_ALARMS = 0.01


def privacy_facts(statement: Statement) -> Markup:
    """The statement's numbers and words side by side."""
    epsilon = "none claimed" if statement.epsilon is None else shown(statement.epsilon)
    against = statement.against
    lower = (
        [] if against is None else [("epsilon against everyone but a participant", shown(against["public"]))]
    )
    delta = "none claimed" if statement.delta is None else f"{statement.delta:g}"
    return facts(
        [
            ("epsilon (smaller is better)", epsilon),
            *lower,
            ("delta (probability mass that epsilon does not bound)", delta),
            ("protected", _UNITS[statement.unit]),
            ("has to be trusted", _TRUST[statement.trust]),
            ("neighbors", statement.adjacency),
            ("sampling", statement.sampling),
            ("accountant", statement.accountant),
        ]
    )


def statement_text(statement: Statement) -> list[Markup]:
    """The statement in words, with a warning before it where nothing is promised."""
    warning = None if statement.private else tag("p", _no_promise(statement), class_="warning")
    projected = None
    if statement.projection is not None:
        words = f"A projection to {statement.projection:,} clients: not a promise to those who took part."
        projected = tag("p", words, class_="warning")
    return [part for part in (warning, projected, paragraphs(statement.text)) if part is not None]


def _no_promise(statement: Statement) -> str:
    if statement.simulation:
        return "Simulation: no privacy. The noise can be repeated by anybody who knows the seed."
    if statement.epsilon is None:
        return "No privacy is promised to anybody."
    return "The promise is incomplete: read what it does not cover."


def releases_table(statement: Statement) -> Markup | None:
    """Every kind of release that the statement adds up, with what it would cost alone."""
    if not statement.releases:
        return None
    rows = [
        [
            item["what"],
            f"{item['count']:,}",
            "–" if item["epsilon_alone"] is None else shown(item["epsilon_alone"]),
        ]
        for item in statement.releases
    ]
    return table(["what was released", "times", "epsilon alone"], rows, "Releases that were added up", (1, 2))


def ledger_timeline(lines: Sequence[LedgerLine]) -> Markup | None:
    """Lines of the ledger in their order, a row for each kind of release."""
    paid = [line for line in lines if line.count]
    if not paid:
        return None
    groups: dict[str, list[tuple[int, str]]] = {}
    for place, line in enumerate(paid):
        words = f"line {line.index}: {line.what}, {line.time[:19].replace('T', ' ')}"
        groups.setdefault(line.release, []).append((place, words))
    releases = [
        TimelineRow(kind, [place for place, _ in entries], [words for _, words in entries])
        for kind, entries in groups.items()
    ]
    note = f"{len(paid)} lines, chained by hash; the last one is {paid[-1].hash[:12]}…"
    return figure("What was released, in the order of the ledger", timeline(releases, len(paid)), note)


def epsilon_scale(statement: Statement, attacks: Sequence[Mapping[str, Any]]) -> Markup | None:
    """The claim as a bar, the audited bounds and what each attack reached as marks on the same scale."""
    marks = [] if statement.epsilon is None else [_claim(statement.epsilon)]
    audited = statement.audited
    marks += _audits(audited or {})
    marks += [mark for attack in attacks if (mark := _attack(attack, statement.delta or 0.0))]
    if not marks:
        return None
    missing = [] if audited else ["no audit was made (fedsynth audit)"]
    missing += [] if attacks else ["no attack was tried"]
    note = f"Not on the scale: {'; '.join(missing)}." if missing else ""
    return figure("Claimed, audited, attacked: epsilon on one scale", epsilon_ruler(marks), note)


def _claim(epsilon: float) -> Mark:
    return Mark(
        "Claimed: at most",
        epsilon,
        "claim",
        f"The ledger adds up to epsilon {shown(epsilon)}",
    )


def _audits(audited: Mapping[str, Any]) -> list[Mark]:
    """A mark for each reading of the canaries; audits of before have one."""
    kinds = {
        "white_box": ("Audited, white-box: at least", "audit"),
        "one_run": ("Audited, one run: at least", "one-run"),
    }
    marks = [_bound(audited[kind], *kinds[kind]) for kind in kinds if audited.get(kind)]
    if not marks and audited.get("epsilon_lower") is not None:
        marks = [_bound(audited, "Audited: at least", "audit")]
    return marks


def _bound(bound: Mapping[str, Any], name: str, form: str) -> Mark:
    lower = float(bound["epsilon_lower"])
    sure = f" with {100 * float(bound['confidence']):g}% confidence" if bound.get("confidence") else ""
    return Mark(name, lower, form, f"{bound.get('method', 'audit')}: at least {short(lower)}{sure}")


def _attack(attack: Mapping[str, Any], delta: float) -> Mark | None:
    rate = caught(attack)
    if rate is None:
        return None
    reached = max(0.0, math.log(max(rate - delta, 1e-12) / FALSE_ALARMS))
    words = f"{attack['name']}: finds {100 * rate:.1f}% of members at 1% false alarms (one measurement)"
    return Mark(f"Attack, {attack['name']}:", reached, "attack", words)


def caught(attack: Mapping[str, Any], false_alarms: float = FALSE_ALARMS) -> float | None:
    """The share of members that an attack finds at so many false alarms, between the points of its curve.

    >>> caught({"false_positive_rate": [0, 0.02, 1], "true_positive_rate": [0, 0.4, 1]})
    0.2
    """
    xs, ys = attack.get("false_positive_rate") or [], attack.get("true_positive_rate") or []
    best = None
    for (x0, y0), (x1, y1) in zip(zip(xs, ys, strict=True), list(zip(xs, ys, strict=True))[1:], strict=False):
        if x0 <= false_alarms <= x1:
            best = y1 if x1 == x0 else y0 + (y1 - y0) * (false_alarms - x0) / (x1 - x0)
    return best
