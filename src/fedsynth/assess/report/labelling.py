"""labels.html: synthetic examples to be labelled by hand in a browser, and taken away as CSV or JSON (task T5)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import Section, page
from fedsynth.assess.report.picture import image_grid
from fedsynth.data.atomic import write_file
from fedsynth.data.modality import for_kind
from fedsynth.inspection.findings import Findings
from fedsynth.inspection.sample import Sample

MOST = 200


def write_labelling(findings: Findings, path: Path | str, most: int = MOST) -> None:
    """Write the page for the examples of the first selection, whole or not at all."""
    write_file(path, labelling_page(findings, most))


def labelling_page(findings: Findings, most: int = MOST) -> str:
    """The page as text; row numbers are those of the file of synthetic examples."""
    name, model = next(iter(findings.models.items()))
    classes, label = findings.labelled.classes, findings.labelled.label
    count = min(most, len(model.sample))
    examples = [_example(model.sample, row, classes) for row in range(count)]
    head = [
        tag("h1", "Label these by hand"),
        tag(
            "p",
            f"{count} synthetic examples of {name}: what is their {label}? Skip unclear examples. Labels stay in this "
            "page until you save them.",
            class_="soft",
        ),
    ]
    bar = tag(
        "div",
        tag("span", f"0 of {count} labelled", id="labelled", role="status"),
        tag("button", "Next without a label", type="button", id="next"),
        tag("button", "Save as CSV", type="button", data_save="csv"),
        tag("button", "Save as JSON", type="button", data_save="json"),
        class_="bar",
    )
    kind = "examples images" if model.sample.schema.channels else "examples"
    body: list[Any] = [tag("div", examples, class_=kind, id="examples", data_source=name), bar]
    return page(
        "Label by hand",
        head,
        [Section("examples-to-label", "Examples", body)],
        [tag("p", "Nobody's rows: every example was made up by a generator.")],
        script="labelling.js",
    )


def _example(sample: Sample, row: int, classes: tuple[str, ...]) -> Markup:
    options = [tag("option", "–", value=""), *(tag("option", name, value=name) for name in classes)]
    chosen = tag("select", options, data_row=row, aria_label=f"Label of example {row}")
    return tag("figure", tag("figcaption", f"Example {row}", chosen), _shown(sample, row))


def _shown(sample: Sample, row: int) -> Markup:
    return for_kind(_SHOWN, sample.schema, "pictures of an example")(sample, row)


def _row(sample: Sample, row: int) -> Markup:
    values = sample.data.iloc[row].items()
    return tag("dl", [tag("div", tag("dt", str(n)), tag("dd", str(v))) for n, v in values], class_="facts")


_SHOWN: dict[str, Callable[[Sample, int], Markup]] = {
    "table": _row,
    "image": lambda sample, row: image_grid(sample.data[0][row][None], None, f"example {row}"),
    "text": lambda sample, row: tag("blockquote", sample.texts[row]),
}
