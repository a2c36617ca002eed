"""The chapter on attacks: who is found, the risks of Article 29, and how close rows come to real ones. Internal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.assess.report.axis import percent
from fedsynth.assess.report.column_views import legend, sign
from fedsynth.assess.report.curve import Series, roc
from fedsynth.assess.report.histogram import spread
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import Section, figure, folded, table
from fedsynth.assess.report.privacy_chapter import caught
from fedsynth.assess.report.scale_chart import intervals
from fedsynth.privacy.statement import Statement

_ALARMS = (0.001, 0.01, 0.1)
_QUESTIONS = {
    "singling out": "Can a description made from synthetic rows fit just one real person?",
    "linkability": "Can two halves of a person's columns be recognized as one person's?",
    "inference": "Can a value be guessed from a person's other values?",
}


def attack_chapter(details: Mapping[str, Any], statement: Statement) -> Section | None:
    """Show what attackers find out about who took part; None where nothing was tried."""
    attacks, risks = details.get("attacks") or [], details.get("risks") or []
    body = [
        *(_membership(attacks, statement) if attacks else []),
        *(_article29(risks) if risks else []),
        *(_closest(details["closest"]) if details.get("closest") else []),
    ]
    return Section("attacks", "Can it be attacked?", body) if body else None


def _membership(attacks: Sequence[Mapping[str, Any]], statement: Statement) -> list[Any]:
    curves = [
        Series(
            attack["name"],
            list(zip(attack["false_positive_rate"], attack["true_positive_rate"], strict=True)),
        )
        for attack in attacks
        if attack.get("false_positive_rate")
    ]
    words = (
        "Each attack guesses who was among the real rows. A curve on the dotted diagonal is no better than tossing a "
        "coin; none may rise above the dashed line, which is all that the claim allows. The second picture shows few "
        "false alarms: an attacker who is right about a few people does harm even if wrong about most."
    )
    ceiling = _ceiling(attacks, statement)
    signs = [(f"curve dash-{place % 4}", each.name) for place, each in enumerate(curves)]
    signs += [("limit", "the most that the claim allows")] if ceiling is not None else []
    names = [tag("li", sign(tag("path", d="M1,7H25", class_=kind)), name) for kind, name in signs]
    pictures = [
        figure("Members found against false alarms", roc(curves, ceiling)),
        figure("The same at few false alarms", roc(curves, ceiling, low=True), "logarithmic"),
    ]
    above = [attack["name"] for attack in attacks if attack.get("above_ceiling")]
    alarm = f"More than the claim allows: {', '.join(above)}. Do not publish before you know why."
    return [
        tag("p", alarm, class_="warning") if above else None,
        tag("p", words, class_="soft"),
        [tag("p", _shadows(attack), class_="soft") for attack in attacks if attack.get("runs")],
        tag("ul", names, class_="legend") if curves else None,
        tag("div", pictures, class_="charts") if curves else None,
        tag("div", _attack_table(attacks), class_="plain single"),
    ]


def _attack_table(attacks: Sequence[Mapping[str, Any]]) -> Markup:
    rows = [
        [
            attack["name"],
            f"{attack['auc']:.3f}",
            *("–" if (share := caught(attack, rate)) is None else percent(share) for rate in _ALARMS),
        ]
        for attack in attacks
    ]
    heads = [
        "attack",
        "AUC (0.5 is guessing)",
        *(f"found at {100 * rate:g}% false alarms" for rate in _ALARMS),
    ]
    return table(heads, rows, "Attacks", range(1, len(heads)), "stack")


def _ceiling(attacks: Sequence[Mapping[str, Any]], statement: Statement) -> Series | None:
    """The most that the claim allows: as the attacks tell it, otherwise by epsilon and delta alone."""
    ceilings = [ceiling for attack in attacks if (ceiling := attack.get("ceiling"))]
    if ceilings:
        curve = max(ceilings, key=lambda ceiling: ceiling["auc"])
    elif statement.epsilon is None or statement.delta is None:
        return None
    else:
        curve = Ceiling.of(statement.epsilon, statement.delta).to_dict()
    points = list(zip(curve["false_positive_rate"], curve["true_positive_rate"], strict=True))
    return Series("The most that the claim allows", points)


def _shadows(attack: Mapping[str, Any]) -> str:
    """Describe what an attack by shadow generators rests on."""
    words = f"{attack['name'].capitalize()}: {attack['runs']} shadow generators of {attack['size']:,} rows were trained"
    narrowed = attack.get("narrowed")
    if not narrowed:
        return f"{words}, with the run's own model."
    widths = [", ".join(map(str, narrowed[whose])) for whose in ("shadows", "run")]
    return f"{words}; to save time their layers have {widths[0]} neurons, those of the run {widths[1]}."


def _article29(risks: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Singling out, linkability and inference, each with its interval and what it rests on."""
    words = (
        "The three criteria of anonymity in the EU's Article 29 Opinion 05/2014, as risks: how much more often an "
        "attack succeeds on people who were trained on than on people who were not (0: no more often, 1: always). The "
        "line is the confidence interval; if it begins at 0, no risk was shown."
    )
    heads = ["criterion", "risk", "interval", "on training rows", "on unseen rows", "by guessing"]
    rows = [
        [
            _named(risk),
            f"{risk['risk']:.3f}",
            f"{risk['at_least']:.3f} to {risk['at_most']:.3f} ({100 * risk['confidence']:.4g}%)",
            *(percent(risk[who]) for who in ("members", "control", "guessed")),
        ]
        for risk in risks
    ]
    pictures = [figure("Risk with its confidence interval", intervals([_interval(risk) for risk in risks]))]
    secrets: Mapping[str, Any] = next((risk["secrets"] for risk in risks if risk.get("secrets")), {})
    ordered = sorted(secrets.items(), key=lambda item: -item[1]["risk"])
    lines = [
        [name, f"{each['risk']:.3f}", f"{each['at_least']:.3f} to {each['at_most']:.3f}"]
        for name, each in ordered
    ]
    by_column = folded(
        "Inference of every column", table(["column", "risk", "interval"], lines, "Inference", (1, 2))
    )
    questions = [tag("li", f"{name}: {words}") for name, words in _QUESTIONS.items()]
    return [
        tag("h3", "Singling out, linkability, inference"),
        tag("p", words, class_="soft"),
        tag("ul", questions, class_="soft"),
        tag("div", pictures, class_="charts"),
        tag(
            "div",
            table(heads, rows, "Risks", (), "stack"),
            by_column if lines else None,
            class_="plain single",
        ),
    ]


def _named(risk: Mapping[str, Any]) -> str:
    return f"{risk['name']} of {risk['secret']} (the highest)" if risk.get("secret") else str(risk["name"])


def _interval(risk: Mapping[str, Any]) -> tuple[str, float, float, float]:
    return str(risk["name"]), risk["risk"], risk["at_least"], risk["at_most"]


def _closest(near: Mapping[str, Any]) -> list[Any]:
    """Distances to the closest training row, of synthetic rows and of real rows that were not trained on."""
    edges = near["edges"]
    bins = [f"{a:.3g} to {b:.3g}" for a, b in zip(edges, edges[1:], strict=False)]
    column = {"name": "the distance", "edges": edges, "bins": bins, "synthetic": near["synthetic"]}
    words = (
        "How far each row is from the training row closest to it. Synthetic rows (bars) should be no closer than real "
        "people who were not trained on (line): bars far to the left of the line would mean copies."
    )
    facts = (
        f"Median distance: synthetic {near['synthetic_median']:.3g}, unseen real {near['holdout_median']:.3g}. Equal "
        f"to a training row: {percent(near['synthetic_copies'])} of the synthetic rows, "
        f"{percent(near['holdout_copies'])} of the unseen real ones."
    )
    rows = [
        [name, percent(s), percent(h)]
        for name, s, h in zip(bins, near["synthetic"], near["holdout"], strict=True)
    ]
    numbers = folded(
        "Distances in numbers", table(["distance", "synthetic", "unseen real"], rows, "Distances", (1, 2))
    )
    picture = figure(
        "Distance to the closest training row",
        spread({**column, "real": near["holdout"]}),
        "",
        [tag("p", facts), numbers],
    )
    return [
        tag("h3", "Distance to the closest record"),
        tag("p", words, class_="soft"),
        legend("unseen real rows"),
        tag("div", picture, class_="charts"),
    ]
