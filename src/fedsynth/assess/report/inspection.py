"""inspection.html: what two selections look like beside each other, and whether they differ by more than noise.

Everything on the page is made from released models and noisy answers, so it is as private as the statement says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from fedsynth.assess.report import privacy_chapter as privacy
from fedsynth.assess.report.axis import WIDTH, Scale, drawing, level, line, short, text, ticks
from fedsynth.assess.report.inspection_views import contrast_view, single_view
from fedsynth.assess.report.internal import verdict_card
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import Section, figure, page, table
from fedsynth.assess.report.verdict import Verdict, private
from fedsynth.data.atomic import write_file
from fedsynth.inspection.findings import Findings, SelectionModel
from fedsynth.inspection.step import BINS
from fedsynth.inspection.survey import Spread
from fedsynth.inspection.verdict import BLIND, Finding, Null

NAME = "inspection.html"
LABELS = "labels.html"
UNCLEAR = "Cannot be told"
_ANSWERS = {True: "yes", False: "no", None: "cannot be told"}
_FOOT = "from released models and noisy answers within the privacy budget: no real rows are here."


def write_inspection(findings: Findings, path: Path | str) -> None:
    """Write the page, whole or not at all."""
    write_file(path, inspection_page(findings))


def inspection_page(findings: Findings) -> str:
    """The page as text."""
    head = [
        tag("h1", "Inspection"),
        tag("p", _subtitle(findings), class_="soft"),
        tag("div", [verdict_card(card) for card in _cards(findings)], class_="cards"),
    ]
    sections = [
        _looks(findings),
        _numbers(findings),
        _change(findings),
        _survey(findings),
        _promise(findings),
    ]
    foot = f"Made by fedsynth on {date.today()} {_FOOT}"
    return page("Inspection", head, [section for section in sections if section], [tag("p", foot)])


def _subtitle(findings: Findings) -> str:
    listed = "; ".join(f"{name}: {model.words}" for name, model in findings.models.items())
    return f"Synthetic examples of what nobody may look at. {listed}."


def _cards(findings: Findings) -> list[Verdict]:
    cards = [_difference(findings)] if len(findings.models) == 2 else []
    if findings.changes:
        cards.append(_moved(findings))
    if findings.empty:
        cards.append(_nothing(findings.empty))
    return [*cards, private(findings.statement)]


def _moved(findings: Findings) -> Verdict:
    question = "Did anything change?"
    moved = [
        f"{name}: {finding.name}"
        for name, model in findings.models.items()
        for finding in model.change
        if finding.fires
    ]
    if findings.changed is None:
        return Verdict(question, "none", UNCLEAR, f"Too much noise for an answer. {findings.needed}")
    if findings.changed:
        return Verdict(question, "bad", "Yes", f"Since the earlier inspection: {', '.join(moved)}.")
    return Verdict(question, "good", "No", "Nothing changed by more than noise explains.")


def _nothing(names: Sequence[str]) -> Verdict:
    listed = " and ".join(names)
    sentence = (
        f"It seems that nobody met the selection {listed}: the noisy number of those who do is no more than noise, "
        "and so is its model."
    )
    return Verdict("Was anything learned?", "fair", "Noise only", sentence)


def _difference(findings: Findings) -> Verdict:
    one, other = findings.models
    question = f"Do {one} and {other} differ?"
    if findings.fires is None:
        return Verdict(question, "none", UNCLEAR, _why_unclear(findings))
    if not findings.fires:
        return Verdict(
            question, "good", "No", "No difference is larger than noise and the tolerance explain."
        )
    fired = sorted((f for f in findings.contrast if f.fires), key=lambda f: f.excess, reverse=True)
    listed = ", ".join(f"{f.name} ({short(f.value)}, threshold {_limit(f)})" for f in fired[:4])
    return Verdict(question, "bad", "Yes", f"More than noise explains: {listed}.")


def _why_unclear(findings: Findings) -> str:
    """Why there is no answer, and what would be needed for one."""
    if findings.empty:
        why = "One of the models shows noise only."
    elif not findings.null:
        why = "Nothing was simulated to compare the difference with."
    else:
        names = [finding.name for finding in findings.contrast if finding.answer is None]
        why = f"Even a difference of {BLIND:g} (of at most 1) could be noise: {', '.join(names[:4])}."
    return f"{why} {findings.needed}".strip()


def _looks(findings: Findings) -> Section:
    models = list(findings.models.items())
    body = contrast_view(*models) if len(models) == 2 else single_view(*models[0])
    if not findings.schema.classes and findings.labelled.classes:
        words = "These examples have no label. Give them one by hand: "
        body = [tag("p", words, tag("a", "the labelling page", href=LABELS), "."), *body]
    return Section("looks", "What does it look like?", body)


def _numbers(findings: Findings) -> Section | None:
    tests: list[Any] = []
    if findings.contrast:
        words = (
            "Each number is compared with what the same models show when there is no difference at all: they were "
            "trained again, with the same noise, on made-up clients. The threshold lies several standard "
            "deviations above that, plus a tolerance for differences that are natural between groups of people. Where "
            f"the threshold is above {BLIND:g}, even a large difference would go unnoticed, so there is no answer."
        )
        if not findings.null:
            words = "Nothing was simulated to compare these numbers with, so noise may explain all of them."
        tests += [tag("p", words, class_="soft"), _findings_table(findings.contrast)]
        tests += _strips(findings.contrast, findings.null) if findings.null else []
    return Section("numbers", "Is it more than noise?", tests) if tests else None


def _findings_table(findings: Sequence[Finding]) -> Markup:
    ordered = sorted(findings, key=lambda finding: finding.excess, reverse=True)
    rows = [
        [
            finding.name,
            short(finding.value),
            "–" if finding.threshold is None else f"{short(finding.expected)} ± {short(finding.deviation)}",
            _limit(finding),
            _ANSWERS[finding.answer],
        ]
        for finding in ordered
    ]
    heads = ["difference of", "found", "noise alone", "threshold", "more than noise"]
    return table(heads, rows, "Differences and their thresholds", (1, 2, 3))


def _limit(finding: Finding) -> str:
    return "–" if finding.threshold is None else short(finding.threshold)


def _strips(findings: Sequence[Finding], null: Null) -> list[Markup]:
    shown = sorted(findings, key=lambda finding: finding.excess, reverse=True)[:3]
    pictures = [
        figure(f"{finding.name[:1].upper()}{finding.name[1:]}", strip(finding, null), "dots: noise alone")
        for finding in shown
    ]
    return [tag("div", pictures, class_="charts")]


def strip(finding: Finding, null: Null) -> Markup:
    """The statistic, its threshold, and every simulated value without a difference, on one line."""
    assert finding.threshold is not None
    noise_values = [entry[finding.name] for entry in null if finding.name in entry]
    high = max([finding.value, finding.threshold, *noise_values]) * 1.08 or 1.0
    along = Scale(0, high, 10, WIDTH - 16)
    dots = [
        tag("circle", cx=along(value), cy=40, r=4, class_="attack", opacity=0.7) for value in noise_values
    ]
    limit = along(finding.threshold)
    value = along(finding.value)
    feet = ticks(0, high, 5)
    label = (
        f"{finding.name}: found {short(finding.value)}, threshold {short(finding.threshold)}, noise alone up to "
        f"{short(max(noise_values, default=0.0))}"
    )
    return drawing(
        WIDTH,
        84,
        label,
        level(along, 8, 62, feet, [short(foot) for foot in feet]),
        dots,
        line(limit, 10, limit, 62, "limit"),
        text(limit, 8, "threshold", "tick", "middle"),
        tag("path", d=f"M{value - 7:.1f},40l7,-8l7,8l-7,8z", class_="audit"),
        text(value, 26, "found", "name", "middle"),
    )


def _change(findings: Findings) -> Section | None:
    compared = {name: model for name, model in findings.models.items() if model.before is not None}
    if not compared:
        return None
    body: list[Any] = []
    for name, model in compared.items():
        assert model.before is not None
        before = SelectionModel(model.words, model.generator, model.before, model.share)
        body += [tag("h3", name), *contrast_view((f"{name} before", before), (f"{name} now", model))]
        body += [_findings_table(model.change)] if model.change else []
    return Section("change", "What changed since then?", body)


def _survey(findings: Findings) -> Section:
    rows = [
        [name, model.words, f"{max(0.0, model.share.told):.0%} ± {model.share.error:.0%}"]
        for name, model in findings.models.items()
    ]
    met = table(["selection", "asked for", "clients who meet it"], rows, "How many meet each selection", (2,))
    if not findings.spreads:
        return Section("survey", "What was asked first?", [met])
    pictures = [
        figure(spread.criterion, spread_picture(spread), _failed(spread)) for spread in findings.spreads
    ]
    words = (
        "How many clients have which share of such rows: noisy numbers, counted in the privacy budget. "
        "Thresholds given as percentiles were read from here."
    )
    return Section(
        "survey",
        "What was asked first?",
        [met, tag("p", words, class_="soft"), tag("div", pictures, class_="narrow")],
    )


def _failed(spread: Spread) -> str:
    """The noisy number of clients at which the model gave no answer, unless noise explains it."""
    if spread.failed <= 3 * spread.deviation:
        return "no failures of the model beyond noise"
    return f"the model failed at about {spread.failed:.0f} ± {spread.deviation:.0f} clients, who sat out"


def spread_picture(spread: Spread) -> Markup:
    """Noisy numbers of clients by bin."""
    high = max([*spread.counts, 1.0])
    up, along = Scale(0, high, 150, 10), Scale(0, 1, 40, WIDTH - 10)
    width = (along.end - along.start) / BINS - 1
    bars = [
        tag(
            "rect",
            x=along(place / BINS),
            y=up(max(count, 0.0)),
            width=width,
            height=up(0) - up(max(count, 0.0)),
            class_="fill",
            data_tip=f"{place / BINS:.0%} to {(place + 1) / BINS:.0%}: about {count:.0f} clients",
        )
        for place, count in enumerate(spread.counts)
    ]
    feet = [0, 0.25, 0.5, 0.75, 1]
    return drawing(
        WIDTH,
        172,
        f"Clients by their share of rows {spread.criterion}; the fullest bin has about {high:.0f}",
        level(along, 10, 150, feet, [f"{foot:.0%}" for foot in feet]),
        bars,
        text(36, 16, f"{high:.0f}", "tick", "end"),
    )


def _promise(findings: Findings) -> Section:
    statement = findings.statement
    kept = {
        name: value
        for name, value in findings.recipe.items()
        if name in ("recipe", "rounds", "noise_multiplier")
    }
    return Section("promise", "What was promised, and spent?", _promised(statement, kept))


def _promised(statement: Any, kept: Mapping[str, Any]) -> list[Any]:
    releases = privacy.releases_table(statement)
    settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in kept.items())
    return [
        privacy.privacy_facts(statement),
        privacy.statement_text(statement),
        tag("p", f"Models: {settings}.", class_="soft"),
        tag("div", releases, class_="plain single") if releases else None,
    ]
