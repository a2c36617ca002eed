"""Two selections side by side, by the kind of data: images, rows of a table, or texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsynth.assess.report.axis import percent, short
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import facts, figure, table
from fedsynth.assess.report.picture import image_grid, quotations
from fedsynth.assess.report.run_chapters import sample as first_rows
from fedsynth.assess.scores.overlay import cell_names
from fedsynth.assess.scores.tables import Tables, cells, coarse
from fedsynth.data.column import Column
from fedsynth.data.modality import for_kind
from fedsynth.inspection.contrast import column_distances, intensity, mean_image, pair_distances
from fedsynth.inspection.findings import SelectionModel
from fedsynth.inspection.sample import Sample
from fedsynth.inspection.text import Speaker, unknown_by_position, words_by_ratio
from fedsynth.rng import Rng

Named = tuple[str, SelectionModel]
_TEXTS = 12
_COLUMNS = 6
_PAIRS = 8
_VALUES = 6
_STEADY = Rng(0)  # numbers on a page do not change when it is made again


def single_view(name: str, model: SelectionModel) -> list[Any]:
    """One selection by itself, with sanity checks of random examples (T1): size, range and shares."""
    return [_caption(name, model), *for_kind(_SINGLE, model.sample.schema, "views")(name, model)]


def contrast_view(one: Named, other: Named) -> list[Any]:
    """Two selections beside each other, and where they differ most."""
    return for_kind(_CONTRASTS, one[1].sample.schema, "views of two selections")(one, other)


def _caption(name: str, model: SelectionModel) -> Markup:
    return tag("p", f"{name}: {model.words}.", class_="soft")


def _grid(name: str, sample: Sample) -> Markup:
    images, labels = sample.data
    return figure(name, image_grid(images, labels, name), f"mean intensity {intensity(sample):.3f}")


def _single_images(name: str, model: SelectionModel) -> list[Any]:
    sample, pixels = model.sample, model.sample.data[0]
    height, width = pixels.shape[1:3]
    pairs = [
        ("size", f"{height} × {width}"),
        ("darkest and brightest", f"{pixels.min()} to {pixels.max()}"),
        ("mean intensity", f"{intensity(sample):.3f}"),
        ("black or white pixels", percent(float(((pixels < 13) | (pixels > 242)).mean()))),
    ]
    return [tag("div", _grid(name, sample), class_="single"), tag("h3", "Sanity checks"), facts(pairs)]


def _single_texts(name: str, model: SelectionModel) -> list[Any]:
    texts = model.sample.texts
    empty = float(np.mean([not text.strip() for text in texts]))
    words = f"{np.mean([len(text.split()) for text in texts]):.1f}"
    pairs = [("words a text", words), ("empty texts", percent(empty))]
    shown = first_rows(texts, model.sample.schema)
    return [shown, *_unknown((name, model)), tag("h3", "Sanity checks"), facts(pairs)]


def _single_table(name: str, model: SelectionModel) -> list[Any]:
    frame, schema = model.sample.data, model.sample.schema
    tables = Tables.of(frame, frame, schema)
    rows = [_ranges(column, tables.real[column.name]) for column in tables.columns]
    heads = ["column", "type", "smallest", "middle", "largest", "missing"]
    ranges = table(heads, rows, "Ranges of the synthetic columns", (2, 3, 4, 5))
    return [first_rows(frame, schema), tag("h3", "Sanity checks"), ranges]


def _ranges(column: Column, numbers: np.ndarray) -> list[str]:
    missing = percent(float(np.isnan(numbers).mean()))
    there = numbers[~np.isnan(numbers)]
    if not column.numeric or not len(there):
        common = column.labels[int(np.bincount(there.astype(int)).argmax())] if len(there) else "–"
        return [column.name, column.type, "–", f"mostly {common}", "–", missing]
    ends = [float(end) for end in np.quantile(there, [0, 0.5, 1])]
    spelled = [column.text(end) if column.moment else short(end) for end in ends]
    return [column.name, column.type, *spelled, missing]


def _images(one: Named, other: Named) -> list[Any]:
    grids, means, intensities = [], [], []
    for name, model in (one, other):
        sample = model.sample
        grids.append(_grid(name, sample))
        means.append(figure(f"Mean of {name}", _picture(mean_image(sample) * 255, f"mean {name}")))
        intensities.append((f"mean intensity, {name}", f"{intensity(sample):.3f}"))
    apart = mean_image(one[1].sample) - mean_image(other[1].sample)
    means.append(
        figure(
            "Difference of the means",
            _picture(128 + apart * 127, "difference"),
            f"white: brighter in {one[0]}, black: in {other[0]}",
        )
    )
    intensities.append(("difference", f"{apart.mean():+.3f}"))
    return [
        _caption(*one),
        _caption(*other),
        tag("div", grids, class_="charts wide"),
        facts(intensities),
        tag("div", means, class_="charts"),
    ]


def _picture(pixels: np.ndarray, what: str) -> Markup:
    return image_grid(np.clip(pixels, 0, 255).round().astype(np.uint8)[None], None, what)


def _tables(one: Named, other: Named) -> list[Any]:
    samples = one[1].sample, other[1].sample
    apart = column_distances(*samples)
    worst = sorted(apart, key=lambda name: apart[name], reverse=True)
    rows = [[name, short(apart[name]), *_most_changed(name, *samples)] for name in worst]
    pairs = sorted(pair_distances(*samples).items(), key=lambda item: item[1], reverse=True)[:_PAIRS]
    listed = [[f"{a} and {b}", short(distance)] for (a, b), distance in pairs if distance > 0]
    heads = ["column", "distance", "changed most", one[0], other[0]]
    body: list[Any] = [
        _caption(*one),
        _caption(*other),
        tag("h3", "Columns, most different first"),
        tag("p", "Total variation distance: 0 is the same, 1 has nothing in common.", class_="soft"),
        table(heads, rows, "Columns by difference", (1, 3, 4)),
        tag("h3", "The columns that differ most, value by value"),
        *(_shares(name, one, other) for name in worst[:_COLUMNS]),
    ]
    if listed:
        words = "Beyond what each of the two columns shows alone."
        body += [tag("h3", "Pairs of columns"), tag("p", words, class_="soft")]
        body += [table(["pair", "distance"], listed, "Pairs by difference", (1,))]
    return body


def _both_shares(name: str, one: Sample, other: Sample) -> tuple[list[str], np.ndarray]:
    """The names of a column's values, and their shares on both sides [2, values]."""
    tables = Tables.of(one.data, other.data, one.schema)
    column = one.schema.column(name)
    size = cells(column)
    sides = [
        np.bincount(coarse(column, side[name]), minlength=size) for side in (tables.real, tables.synthetic)
    ]
    return [*cell_names(column), "missing"], np.stack([counts / counts.sum() for counts in sides])


def _most_changed(name: str, one: Sample, other: Sample) -> list[str]:
    names, shares = _both_shares(name, one, other)
    place = int(np.abs(shares[0] - shares[1]).argmax())
    return [names[place], percent(float(shares[0, place])), percent(float(shares[1, place]))]


def _shares(name: str, one: Named, other: Named) -> Markup:
    names, shares = _both_shares(name, one[1].sample, other[1].sample)
    order = np.argsort(-np.abs(shares[0] - shares[1]), kind="stable")[:_VALUES]
    rows = [
        [names[place], percent(float(shares[0, place])), percent(float(shares[1, place]))] for place in order
    ]
    return tag(
        "div", tag("h3", name), table(["value", one[0], other[0]], rows, name, (1, 2)), class_="single"
    )


def _texts(one: Named, other: Named) -> list[Any]:
    columns = [
        tag("div", tag("h3", name), _caption(name, model), quotations(model.sample.texts[:_TEXTS]))
        for name, model in (one, other)
    ]
    models = one[1].generator, other[1].generator
    shifts = words_by_ratio(models[1], models[0], _STEADY.at("words"))
    rows = [[shift.word, f"{shift.other:.2e}", f"{shift.one:.2e}", short(shift.ratio)] for shift in shifts]
    heads = ["word", f"probability, {one[0]}", f"probability, {other[0]}", "ratio"]
    favored = [tag("h3", f"Words that {one[0]} favors"), table(heads, rows, "Words by ratio", (1, 2, 3))]
    return [tag("div", columns, class_="charts wide"), *_unknown(one, other), *favored]


def _unknown(*named: Named) -> list[Any]:
    """Where texts have words out of the vocabulary (T3); a model of bytes has none."""
    models = [model.generator for _, model in named]
    if Speaker(models[0]).encoding.by_bytes:
        return []
    rates = [unknown_by_position(model, _STEADY.at("positions")) for model in models]
    places = [
        [str(place), *map(percent, shares)] for place, shares in enumerate(zip(*rates, strict=True), start=1)
    ]
    heads, title = ["position", *(name for name, _ in named)], "Unknown words by position"
    return [tag("h3", title), table(heads, places, title, tuple(range(1, len(heads))))]


_SINGLE = {"table": _single_table, "image": _single_images, "text": _single_texts}
_CONTRASTS = {"table": _tables, "image": _images, "text": _texts}
