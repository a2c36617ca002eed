"""The chapters that need no real rows: what the data look like, how they were made, and how training went."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from fedsynth.assess.report.axis import short
from fedsynth.assess.report.curve import curve, thin
from fedsynth.assess.report.history_views import histories
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import Section, across, figure, folded, table
from fedsynth.assess.report.picture import image_grid, quotations
from fedsynth.assess.report.record import Released
from fedsynth.data.image import Images
from fedsynth.data.modality import Data, kinds_of, modality_of
from fedsynth.data.schema import Schema

_SAMPLE_ROWS = 8
_MOST_ACROSS = 8  # columns of a sample that a page of paper is wide enough for
_SAMPLE_COLUMNS = 5  # rows that are shown of wider ones
_MOST_TEXTS = 8
_MOST_LABELS = 12
_MOST_LISTED = 20


def sample(synthetic: Data | None, schema: Schema) -> Markup | list[Markup]:
    """The first synthetic rows, images or texts."""
    if synthetic is None:
        return tag("p", "No synthetic data in the run's folder.")
    if schema.tables:
        return histories(synthetic, schema)
    shown = [_FIRST[kind](synthetic) for kind in kinds_of(schema) if kind in _FIRST]
    return shown[0] if shown else tag("p", f"There is no picture of {modality_of(schema).describe()}.")


def _first_rows(synthetic: pd.DataFrame) -> Markup:
    wide = synthetic.shape[1] > _MOST_ACROSS
    shown = synthetic.iloc[: _SAMPLE_COLUMNS if wide else _SAMPLE_ROWS]
    rows = [["–" if pd.isna(value) else str(value) for value in row] for row in shown.itertuples(index=False)]
    heads = list(map(str, shown.columns))
    if wide:
        return across(heads, rows, "The first synthetic rows")
    return table(heads, rows, "The first synthetic rows", class_="sample")


def _first_images(synthetic: Images) -> Markup:
    return tag("div", figure("Synthetic images", image_grid(*synthetic, "synthetic")), class_="single")


_FIRST: dict[str, Callable[[Any], Any]] = {
    "table": _first_rows,
    "image": _first_images,
    "text": lambda texts: quotations(list(texts[:_MOST_TEXTS])),
}


def schema_table(schema: Schema) -> Markup:
    """List what is public before any privacy is spent."""
    parts = {f"{table.name}.": table.schema for table in schema.tables} or {"": schema}
    rows = [
        [
            lead + column.name + (" (label)" if column.name == part.label else ""),
            column.type,
            column.allowed(_MOST_LABELS),
            part.provenance.get(column.name, "public"),
        ]
        for lead, part in parts.items()
        for column in part.columns
        if column.name != part.client
    ]
    return table(["column", "type", "allowed values", "known from"], rows, "Schema", class_="stack")


def method(released: Released) -> list[Any]:
    """The recipe and its settings."""
    settings = [[key, _plain(value)] for key, value in released.settings.items()]
    arguments = [[key, _plain(value)] for key, value in released.arguments.items()]
    return [
        table(["setting", "value"], settings, "What was asked for"),
        folded("all arguments of the recipe", table(["argument", "value"], arguments, "Arguments"))
        if arguments
        else None,
    ]


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def training_chapter(history: Sequence[Mapping[str, Any]], epsilon: float | None) -> Section | None:
    """Loss, epsilon spent and clients over rounds."""
    if len(history) < 2:
        return None
    pictures = []
    for key, title, note in (
        ("loss", "loss", "noisy by design" if epsilon is not None else ""),
        ("epsilon", "epsilon spent", "the dashed line is the claim"),
        ("clients", "clients", "exact numbers, so internal"),
    ):
        points = [(float(line["version"]), float(line[key])) for line in history if line.get(key) is not None]
        if len(points) > 1:
            limit = epsilon if key == "epsilon" else None
            name = title[:1].upper() + title[1:]
            rows = [[short(x), short(y)] for x, y in thin(points, _MOST_LISTED)]
            numbers = folded(f"{name} in numbers", table(["round", title], rows, f"{name} by round", (0, 1)))
            pictures.append(figure(name, curve(title, points, limit=limit), note, numbers))
    seconds = sum(float(line.get("seconds") or 0) for line in history)
    words = f"{len(history)} rounds in {short(seconds)} seconds"
    if "dropped" in history[-1]:
        words += f", {sum(int(line['dropped']) for line in history)} drop-outs"
    return Section(
        "training",
        "How did training go?",
        [tag("p", words + ".", class_="soft"), tag("div", pictures, class_="charts")],
    )
