"""report.html: everything about a run for those who may see the real rows, in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedsynth.assess.report import privacy_chapter as privacy
from fedsynth.assess.report.attack_chapter import attack_chapter
from fedsynth.assess.report.comparison_chapters import failures, faithful_chapter, useful_chapter
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import Section, figure, page, table
from fedsynth.assess.report.picture import image_grid, image_pairs, quotations
from fedsynth.assess.report.record import RunRecord
from fedsynth.assess.report.run_chapters import method, sample, schema_table, training_chapter
from fedsynth.assess.report.verdict import Verdict, verdicts
from fedsynth.assess.suite import INTERNAL
from fedsynth.data.atomic import write_file
from fedsynth.data.image import Images
from fedsynth.data.modality import modality_of

NAME = "report.html"
_MOST_NEIGHBORS = 10
_FOOT = (
    "This page was made by fedsynth. It compares with real rows, and that comparison is outside the privacy budget: do "
    "not publish it. What may be published is in public.html."
)


def write_report(record: RunRecord, path: Path | str) -> None:
    """Write report.html, whole or not at all."""
    write_file(path, internal_page(record))


def internal_page(record: RunRecord) -> str:
    """The page as text."""
    statement = record.released.statement
    scores = record.evaluation.scores if record.evaluation else ()
    attacks = (record.evaluation.details.get("attacks") if record.evaluation else None) or []
    reached = max(
        (share for attack in attacks if (share := privacy.caught(attack)) is not None), default=None
    )
    head = [
        tag("span", INTERNAL if record.evaluation else "internal", class_="badge"),
        tag("h1", f"Report on {record.name}"),
        tag("p", _subtitle(record), class_="soft"),
        tag(
            "div", [verdict_card(verdict) for verdict in verdicts(statement, scores, reached)], class_="cards"
        ),
    ]
    written_at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    foot = [tag("p", _FOOT), tag("p", f"Page written {written_at}.")]
    return page(f"Report on {record.name}", head, _sections(record), foot)


def _subtitle(record: RunRecord) -> str:
    rows = (record.evaluation.details.get("rows") if record.evaluation else None) or {}
    units = modality_of(record.released.schema).units
    counted = [f"{count:,} {what} {units}" for what, count in rows.items() if count]
    dated = [f"run finished {record.released.date}"] if record.released.date else []
    return ", ".join(
        [
            modality_of(record.released.schema).describe(),
            f"recipe {record.released.settings.get('recipe')}",
            *counted,
            *dated,
        ]
    )


def verdict_card(verdict: Verdict) -> Markup:
    """An answer as a card: the word carries the grade, the color only underlines it."""
    return tag(
        "article",
        tag("h2", verdict.question),
        tag("span", verdict.grade, class_="grade"),
        tag("p", verdict.sentence),
        class_=f"card verdict {verdict.level}",
    )


def _sections(record: RunRecord) -> list[Section]:
    evaluation, statement = record.evaluation, record.released.statement
    attacks = (evaluation.details.get("attacks") if evaluation else None) or []
    sections: list[Section | None] = [_privacy(record, attacks)]
    if evaluation:
        sections.append(_with_media(faithful_chapter(evaluation), record))
        sections.append(useful_chapter(evaluation.scores))
        sections.append(attack_chapter(evaluation.details, statement))
    sections += [training_chapter(record.history, statement.epsilon), _data(record), _method(record)]
    return [section for section in sections if section is not None]


def _privacy(record: RunRecord, attacks: Sequence[Any]) -> Section:
    statement = record.released.statement
    scale = privacy.epsilon_scale(statement, attacks)
    timeline = privacy.ledger_timeline(record.lines)
    releases = privacy.releases_table(statement)
    body = [
        privacy.privacy_facts(statement),
        tag("div", scale, timeline, class_="charts") if scale or timeline else None,
        tag("h3", "The statement"),
        privacy.statement_text(statement),
        tag("div", releases, class_="plain single") if releases else None,
    ]
    return Section("private", "Is it private?", body)


def _with_media(section: Section, record: RunRecord) -> Section:
    """Add images and texts side by side, and say what could not be measured."""
    evaluation, extra = record.evaluation, []
    assert evaluation is not None
    if isinstance(record.real, tuple) and isinstance(record.released.synthetic, tuple):
        shown: dict[str, Images] = {"Real": record.real, "Synthetic": record.released.synthetic}
        pictures = [figure(name, image_grid(*data, name.lower())) for name, data in shown.items()]
        extra += [tag("h3", "Images"), tag("div", pictures, class_="charts wide")]
        extra += _neighbors(evaluation.details, record.real[0], record.released.synthetic[0])
    texts = (evaluation.details.get("texts") or {}).get("synthetic") or []
    if texts:
        extra += [tag("h3", "Texts"), *quotations([str(text) for text in texts[:8]])]
    return Section(section.name, section.title, [*extra, *section.body, failures(evaluation.scores)])


def _neighbors(details: Mapping[str, Any], real: np.ndarray, synthetic: np.ndarray) -> list[Markup]:
    """The synthetic images that come closest to a real one: a copy would show here."""
    near = list((details.get("images") or {}).get("nearest") or [])[:_MOST_NEIGHBORS]
    fitting = all(each["real"] < len(real) and each["synthetic"] < len(synthetic) for each in near)
    if not near or not fitting or real.shape[1:] != synthetic.shape[1:]:
        return []
    pairs = image_pairs(
        synthetic[[each["synthetic"] for each in near]], real[[each["real"] for each in near]]
    )
    words = (
        "The synthetic images closest to a real one, and below each that real one: a copy would show here."
    )
    return [
        tag("h3", "Is anything memorized?"),
        tag("p", words, class_="soft"),
        tag("div", figure("Nearest", pairs), class_="single"),
    ]


def _data(record: RunRecord) -> Section:
    released = record.released
    rows = released.synthetic
    count = 0 if rows is None else modality_of(released.schema).size(rows)
    words = (
        f"The first of {count:,} synthetic {modality_of(released.schema).units}."
        if count
        else "The first ones, as they were made."
    )
    body = [tag("p", words, class_="soft"), sample(rows, released.schema)]
    return Section(
        "data", "What does it look like?", [*body, tag("h3", "Schema"), schema_table(released.schema)]
    )


def _method(record: RunRecord) -> Section:
    rows = [[name, tag("span", digest, class_="hash")] for name, digest in record.released.hashes.items()]
    files = table(["file", "SHA-256"], rows, "Files and their hashes")
    return Section("made", "How was it made?", [*method(record.released), tag("h3", "Files"), files])
