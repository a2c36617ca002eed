"""public.html: what may be published of a run, made from the released files alone.

No function here is given a history, scores or a real row, so the page cannot tell what is outside the privacy budget:
it comes out the same on a machine that never had the real data.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from fedsynth.assess.report import privacy_chapter as privacy
from fedsynth.assess.report.column_views import column_search, column_table, legend, overlays
from fedsynth.assess.report.internal import verdict_card
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.matrix import matrix, worst_columns
from fedsynth.assess.report.page import Section, figure, page, table
from fedsynth.assess.report.record import Released
from fedsynth.assess.report.relation_views import SQUARES, map_numbers
from fedsynth.assess.report.run_chapters import method, sample, schema_table
from fedsynth.assess.report.verdict import private
from fedsynth.assess.scores.column_summary import column_alerts
from fedsynth.assess.scores.overlay import associations, column_overlays
from fedsynth.assess.scores.tables import Tables
from fedsynth.data.atomic import write_file
from fedsynth.data.modality import modality_of
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.privacy.statement import Statement
from fedsynth.privacy.wording import shown
from fedsynth.recipes.registry import all_recipes

NAME = "public.html"
_MATRIX_ROWS = 50_000
_HOW_TO_CHECK = (
    "The files that you were given should have these hashes. An auditor who is shown the ledger can check that it ends "
    "in the line named here, and add up what it holds."
)
_NOT_SEALED = (
    "The files of this run are not sealed: it was made before ledgers named the hashes of released files. The "
    "statement was computed anew from the ledger; that the other files are those which the run released cannot be told."
)
_COMMANDS = """\
sha256sum generator.safetensors
fedsynth ledger verify RUN
fedsynth sample RUN --rows 1000 --out more{ending}"""


def write_public(folder: Path | str, released: Released | None = None) -> Path:
    """Write public.html into a finished run's folder, whose files may be read already; the place where it lies."""
    target = Path(folder) / NAME
    text = public_page(released or Released.read(folder))
    write_file(target, text)
    return target


def public_page(released: Released) -> str:
    """The page as text: the same bytes for the same released files, wherever and whenever it is made."""
    statement = released.statement
    title = f"Synthetic data: {modality_of(released.schema).describe()}"
    badge = (
        tag("span", "may be published: made from released files alone", class_="badge open")
        if statement.private
        else tag("span", "do not publish: no complete privacy promise", class_="badge")
    )
    head = [
        badge,
        tag("h1", title),
        tag(
            "p",
            f"Nobody's rows: every value here was made up by a generator.{_dated(released)}",
            class_="soft",
        ),
        tag("div", verdict_card(private(statement)), _size_card(released), class_="cards"),
    ]
    sections = [
        Section("promise", "What is promised", _promise(statement)),
        Section("data", "What it looks like", _data(released)),
        Section("schema", "What was public beforehand", _schema(released.schema)),
        Section("method", "How it was made", _method(released)),
        Section("verify", "How to cite and verify it", _verify(released)),
    ]
    return page(
        title, head, sections, [tag("p", "Made by fedsynth from released files alone; no real row was read.")]
    )


def _dated(released: Released) -> str:
    return f" The run was finished on {released.date}." if released.date else ""


def _size_card(released: Released) -> Markup:
    count = _count(released)
    return tag(
        "article",
        tag("h2", "How much is there?"),
        tag("span", f"{count:,}" if count else "As much as you like", class_="grade"),
        tag(
            "p",
            f"synthetic {modality_of(released.schema).units} in the file, and as many more as you like from the "
            "generator, at no further cost.",
        ),
        class_="card verdict",
    )


def _count(released: Released) -> int:
    rows = released.synthetic
    return 0 if rows is None else modality_of(released.schema).size(rows)


def _promise(statement: Statement) -> list[Any]:
    releases = privacy.releases_table(statement)
    return [
        privacy.privacy_facts(statement),
        privacy.statement_text(statement),
        tag("h3", "What was released") if releases else None,
        tag("div", releases, class_="plain single") if releases else None,
    ]


def _data(released: Released) -> list[Any]:
    body: list[Any] = [tag("h3", "The first rows"), sample(released.synthetic, released.schema)]
    synthetic = released.synthetic
    if not isinstance(synthetic, pd.DataFrame):
        return body
    try:
        tables = Tables.of(synthetic, synthetic, released.schema)
    except BadInput as error:
        return [*body, tag("p", f"No pictures: {error}", class_="warning")]
    columns = [
        {**column, "real": None, "alerts": _alerts(tables, column["name"])}
        for column in column_overlays(tables)
    ]
    relations = associations(tables.sampled(_MATRIX_ROWS, 0))
    return [
        *body,
        tag("h3", "Column by column"),
        column_search(columns),
        legend(""),
        overlays(columns),
        tag("h3", "Columns in numbers"),
        column_table(columns),
        *_relations(relations),
    ]


def _relations(relations: dict[str, Any]) -> list[Markup]:
    values, names = relations["synthetic"], relations["names"]
    kept = worst_columns(values, [[None] * len(names) for _ in names])
    if len(kept) < 2:
        return []
    shown_values = [[values[i][j] for j in kept] for i in kept]
    picture = figure(
        "Synthetic data",
        matrix([names[i] for i in kept], shown_values, "synthetic"),
        "",
        map_numbers(names, values),
    )
    return [
        tag("h3", "Relationships between columns"),
        tag("p", SQUARES, class_="soft"),
        tag("div", picture, class_="maps"),
    ]


def _alerts(tables: Tables, name: str) -> list[str]:
    column = next(column for column in tables.columns if column.name == name)
    return column_alerts(column, None, tables.synthetic[name])


def _schema(schema: Schema) -> list[Any]:
    inferred = schema.inferred()
    unpaid = f"Read from real rows outside the privacy budget, so not covered by the promise: {', '.join(inferred)}."
    warning = tag("p", unpaid, class_="warning") if inferred else None
    if not schema.feature_columns:
        listed = f"Labels: {', '.join(schema.classes)}." if schema.classes else "There are no labels."
        words = modality_of(schema).describe()
        return [warning, tag("p", f"{words[:1].upper()}{words[1:]}. {listed}")]
    return [warning, schema_table(schema)]


def _method(released: Released) -> list[Any]:
    recipe = all_recipes().get(str(released.settings.get("recipe")))
    summary = recipe.summary if recipe else ""
    uses = (
        "Meant for developing software, teaching and trying out a study design. Rare groups suffer first from "
        "noise: confirm with the holders of the real data before you act on what you find."
    )
    return [tag("p", summary) if summary else None, tag("p", uses), *method(released)]


def _verify(released: Released) -> list[Any]:
    rows = [[name, tag("span", digest, class_="hash")] for name, digest in released.hashes.items()]
    if released.ledger_head:
        rows.append(["ledger.jsonl, last line", tag("span", released.ledger_head, class_="hash")])
    return [
        tag("h3", "Cite as"),
        tag("blockquote", citation(released)),
        tag("h3", "Verify"),
        tag("p", _HOW_TO_CHECK),
        None if released.sealed else tag("p", _NOT_SEALED, class_="warning"),
        table(["file", "SHA-256"], rows, "Hashes"),
        tag("pre", _COMMANDS.format(ending=modality_of(released.schema).ending)),
    ]


def citation(released: Released) -> str:
    """One sentence that names the method, the promise and the generator."""
    statement = released.statement
    promise = "without a privacy promise"
    if statement.epsilon is not None:
        whom = statement.unit
        promise = f"({shown(statement.epsilon)}, {statement.delta:g})-differentially private for each {whom}"
    return (
        f"Synthetic data ({modality_of(released.schema).describe()}) made with fedsynth "
        f"{metadata.version('fedsynth')}, recipe {released.settings.get('recipe')}, {promise}. Generator SHA-256 "
        f"{released.hashes['generator.safetensors']}."
    )
