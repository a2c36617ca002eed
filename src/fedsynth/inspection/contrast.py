"""How two sets of examples differ, in numbers: by the kind of data, larger is more different, 0 is no difference."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from fedsynth.assess.scores.marginals import variation_distance
from fedsynth.assess.scores.tables import Tables, cells, coarse
from fedsynth.data.modality import for_kind
from fedsynth.inspection.sample import Sample

INTENSITY = "mean intensity"
PICTURE = "mean image"


def differences(one: Sample, other: Sample) -> dict[str, float]:
    """The statistics of a contrast, each between 0 and 1.

    Images: how far the mean intensities lie apart, and the root mean square of the per-pixel difference of the mean
    images (not the classes: those that a model gets wrong are not evenly mixed, bug or no bug). Tables: for each
    column the total variation distance, with numbers in ten parts of their public range. Texts: unknown words, length
    and the shares of words.
    """
    return for_kind(_DIFFERENCES, one.schema, "differences")(one, other)


def mean_image(sample: Sample) -> np.ndarray:
    """The mean of all images, as numbers in [0, 1]."""
    return sample.data[0].mean(0, dtype=np.float64) / 255


def intensity(sample: Sample) -> float:
    """The mean of all pixels, between 0 (black) and 1 (white)."""
    return float(mean_image(sample).mean())


def _images(one: Sample, other: Sample) -> dict[str, float]:
    apart = mean_image(one) - mean_image(other)
    return {INTENSITY: float(abs(apart.mean())), PICTURE: float(np.sqrt(np.square(apart).mean()))}


def column_distances(one: Sample, other: Sample) -> dict[str, float]:
    """For each column, how far the shares of its values lie apart."""
    tables = _tables(one, other)
    return {
        c.name: variation_distance(coarse(c, tables.real[c.name]), coarse(c, tables.synthetic[c.name]))
        for c in tables.columns
    }


def pair_distances(one: Sample, other: Sample) -> dict[tuple[str, str], float]:
    """For each two columns, how far their joint shares lie apart beyond the farther of the two columns alone."""
    tables = _tables(one, other)
    alone = column_distances(one, other)
    codes = {
        c.name: (coarse(c, tables.real[c.name]), coarse(c, tables.synthetic[c.name])) for c in tables.columns
    }
    distances = {}
    for first, second in combinations(tables.columns, 2):
        width = cells(second)
        joint = [a * width + b for a, b in zip(codes[first.name], codes[second.name], strict=True)]
        beyond = variation_distance(*joint) - max(alone[first.name], alone[second.name])
        distances[first.name, second.name] = float(max(0.0, beyond))
    return distances


def _tables(one: Sample, other: Sample) -> Tables:
    return Tables.of(one.data, other.data, one.schema)


def _texts(one: Sample, other: Sample) -> dict[str, float]:
    from fedsynth.inspection.words import text_differences

    return text_differences(one.texts, other.texts)


_DIFFERENCES = {"table": column_distances, "image": _images, "text": _texts}
