"""The chapters that need no real rows: what the data look like, how they were made, and how training went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedsynth.assess.report.axis import short
from fedsynth.assess.report.curve import curve
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import Section, figure, folded, table
from fedsynth.assess.report.picture import image_grid, quotations
from fedsynth.assess.report.record import Data, Released
from fedsynth.data.schema import Schema

_SAMPLE_ROWS = 8
_MOST_TEXTS = 8
_MOST_LABELS = 12


def sample(synthetic: Data | None, schema: Schema) -> Markup | list[Markup]:
    """The first synthetic rows, images or texts."""
    if synthetic is None:
        return tag("p", "No synthetic data lie in the run's folder.")
    if isinstance(synthetic, pd.DataFrame):
        if schema.kind == "text":
            return quotations([str(value) for value in synthetic.iloc[:_MOST_TEXTS, 0]])
        shown = synthetic.iloc[:_SAMPLE_ROWS]
        rows = [
            ["–" if pd.isna(value) else str(value) for value in row] for row in shown.itertuples(index=False)
        ]
        return table(list(map(str, shown.columns)), rows, "The first synthetic rows", class_="sample")
    images, labels = synthetic
    return tag("div", figure("Synthetic images", image_grid(images, labels, "synthetic")), class_="single")


def schema_table(schema: Schema) -> Markup:
    """List what is public before any privacy is spent."""
    rows = [
        [
            column.name + (" (label)" if column.name == schema.label else ""),
            column.type,
            column.allowed(_MOST_LABELS),
            schema.provenance.get(column.name, "public"),
        ]
        for column in schema.columns
        if column.name != schema.client
    ]
    return table(["column", "type", "allowed values", "known from"], rows, "Schema")


def schema_words(schema: Schema) -> str:
    """The kind of data in one phrase."""
    if schema.kind == "image":
        return f"images of {schema.height} × {schema.width} pixels, {'grey' if schema.channels == 1 else 'color'}"
    if schema.kind == "text":
        return "texts"
    return f"a table of {len(schema.names)} columns"


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
    """Loss, epsilon spent and participants over rounds."""
    if len(history) < 2:
        return None
    pictures = []
    for key, title, note in (
        ("loss", "loss", "noisy: it was paid for" if epsilon is not None else ""),
        ("epsilon", "epsilon spent", "the dashed line is the claim"),
        ("clients", "participants", "drawn by chance; exact, so internal"),
    ):
        points = [(float(line["version"]), float(line[key])) for line in history if line.get(key) is not None]
        if len(points) > 1:
            limit = epsilon if key == "epsilon" else None
            pictures.append(figure(title[:1].upper() + title[1:], curve(title, points, limit=limit), note))
    seconds = sum(float(line.get("seconds") or 0) for line in history)
    words = f"{len(history)} rounds in {short(seconds)} seconds"
    if "dropped" in history[-1]:
        words += f", {sum(int(line['dropped']) for line in history)} drop-outs"
    return Section(
        "training",
        "How did training go?",
        [tag("p", words + ".", class_="soft"), tag("div", pictures, class_="charts")],
    )
