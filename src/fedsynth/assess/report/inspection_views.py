"""Two selections side by side, by the kind of data: images, rows of a table, or texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsynth.assess.report.axis import percent, short
from fedsynth.assess.report.markup import Markup, tag
from fedsynth.assess.report.page import facts, figure, table
from fedsynth.assess.report.picture import image_grid, quotations
from fedsynth.assess.report.run_chapters import sample as first_rows
from fedsynth.assess.scores.tables import Tables, cells, coarse
from fedsynth.data.column import Column
from fedsynth.inspection.contrast import column_distances, intensity, mean_image, pair_distances
from fedsynth.inspection.findings import Model
from fedsynth.inspection.sample import Sample
from fedsynth.inspection.text import Speaker, unknown_by_position, words_by_ratio
from fedsynth.rng import Rng

Named = tuple[str, Model]
_TEXTS = 12
_COLUMNS = 6
_PAIRS = 8
_VALUES = 6
_STEADY = Rng(0)  # numbers on a page do not change when it is made again


def single_view(name: str, model: Model) -> list[Any]:
    """One selection by itself."""
    sample = model.sample
    if sample.images is None:
        unknown = _unknown((name, model)) if sample.schema.kind == "text" else []
        return [_caption(name, model), first_rows(sample.frame, sample.schema), *unknown, *_checks(sample)]
    picture = figure(
        name, image_grid(sample.images, sample.labels, name), f"mean intensity {intensity(sample):.3f}"
    )
    return [_caption(name, model), tag("div", picture, class_="single"), *_checks(sample)]


def contrast_view(one: Named, other: Named) -> list[Any]:
    """Two selections beside each other, and where they differ most."""
    kind = one[1].sample.schema.kind
    if kind == "image":
        return _images(one, other)
    return _tables(one, other) if kind == "table" else _texts(one, other)


def _caption(name: str, model: Model) -> Markup:
    return tag("p", f"{name}: {model.words}.", class_="soft")


def _checks(sample: Sample) -> list[Any]:
    """Sanity checks of random examples (T1): whether size, range and shares are what they should be."""
    if sample.images is not None:
        pixels = sample.images.reshape(len(sample), -1)
        height, width = sample.images.shape[1:3]
        pairs = [
            ("size", f"{height} × {width}"),
            ("darkest and brightest", f"{pixels.min()} to {pixels.max()}"),
            ("mean intensity", f"{intensity(sample):.3f}"),
            ("black or white pixels", percent(float(((pixels < 13) | (pixels > 242)).mean()))),
        ]
        return [tag("h3", "Sanity checks"), facts(pairs)]
    if sample.schema.kind == "text":
        lengths = [len(text.split()) for text in sample.texts]
        empty = float(np.mean([not text.strip() for text in sample.texts]))
        pairs = [("words a text", f"{np.mean(lengths):.1f}"), ("empty texts", percent(empty))]
        return [tag("h3", "Sanity checks"), facts(pairs)]
    tables = Tables.of(sample.frame, sample.frame, sample.schema)  # type: ignore[arg-type]
    rows = [_ranges(column, tables.real[column.name]) for column in tables.columns]
    heads = ["column", "type", "smallest", "middle", "largest", "missing"]
    return [tag("h3", "Sanity checks"), table(heads, rows, "Ranges of the synthetic columns", (2, 3, 4, 5))]


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
        assert sample.images is not None
        value = intensity(sample)
        grids.append(
            figure(name, image_grid(sample.images, sample.labels, name), f"mean intensity {value:.3f}")
        )
        means.append(figure(f"Mean of {name}", _picture(mean_image(sample) * 255, f"mean {name}")))
        intensities.append((f"mean intensity, {name}", f"{value:.3f}"))
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
        tag("h3", "How the most different columns are spread"),
        *(_shares(name, one, other) for name in worst[:_COLUMNS]),
    ]
    if listed:
        words = "Beyond what each of the two columns shows alone."
        body += [tag("h3", "Pairs of columns"), tag("p", words, class_="soft")]
        body += [table(["pair", "distance"], listed, "Pairs by difference", (1,))]
    return body


def _cell_names(column: Column) -> list[str]:
    count = cells(column) - 1
    if not column.numeric:
        return [*column.labels, "missing"]
    if column.values is not None and column.values <= count:
        return [*column.labels, "missing"]
    low, high = column.bounds
    edges = [low + (high - low) * step / count for step in range(count + 1)]
    if column.scale == "log":
        return [*(f"part {step + 1} of {count}" for step in range(count)), "missing"]
    spelled = [column.text(edge) if column.moment else short(edge) for edge in edges]
    return [*(f"{a} to {b}" for a, b in zip(spelled, spelled[1:], strict=False)), "missing"]


def _both_shares(name: str, one: Sample, other: Sample) -> tuple[list[str], np.ndarray]:
    """The names of a column's values, and their shares on both sides [2, values]."""
    tables = Tables.of(one.frame, other.frame, one.schema)  # type: ignore[arg-type]
    column = one.schema.column(name)
    size = cells(column)
    sides = [
        np.bincount(coarse(column, side[name]), minlength=size) for side in (tables.real, tables.synthetic)
    ]
    return _cell_names(column), np.stack([counts / counts.sum() for counts in sides])


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
