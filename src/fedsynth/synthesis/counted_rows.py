"""Rows of a run of counts without torch, whose import takes longer than drawing a hundred thousand rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedsynth.data.conditions import Condition
from fedsynth.data.encode import anchors_of
from fedsynth.data.modality import Data, modality_of
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.models.distribution import Distribution, drawn_codes
from fedsynth.models.table_domain import TableDomain
from fedsynth.rng import Rng
from fedsynth.synthesis.released_files import CheckedRun

PIECE = 20_000  # rows that are drawn together
PART = 10 * PIECE  # rows that are in memory together where they are written part by part


def stream_counts(run: CheckedRun, rows: int, seed: int | None) -> Iterator[Data] | None:
    """The rows that the run's generator draws, in parts; None where it takes more than counts of free rows."""
    schema, path = run.schema, run.folder.generator
    plain = run.request.recipe == "marginals" and schema.kind == "table"
    if not plain or schema.rules or anchors_of(schema) or rows < 2 or not path.exists():
        return None
    try:
        arrays = load_file(path)
    except SafetensorError:
        return None
    if "fitted.values" not in arrays:
        return None
    fitted = Distribution.read(arrays["fitted.values"].reshape(-1))
    chances = label_chances(schema, arrays.get("balance"))
    return _parts(TableDomain(schema), fitted, chances, rows, Rng(seed))


def _parts(
    domain: TableDomain, fitted: Distribution, chances: np.ndarray, rows: int, rng: Rng
) -> Iterator[Data]:
    if np.count_nonzero(chances) == 1:
        labels = np.full(rows, chances.argmax(), dtype=np.min_scalar_type(len(chances)))
    else:
        labels = rng.at("labels").places(chances, rows)
    modality = modality_of(domain.schema)
    for first in range(0, rows, PART):
        part = labels[first : first + PART].astype(np.int64)
        drawn = counted_rows(domain, fitted, part, rng, first // PIECE)
        yield modality.numbered(drawn, first)


def counted_rows(domain: TableDomain, fitted: Distribution, labels: np.ndarray, rng: Rng, first: int) -> Data:
    """A row for each label, column by column; `first` is the number of their first piece."""
    pieces, domain = [], fitted.numbered(domain)
    for number, start in enumerate(range(0, len(labels), PIECE), first):
        stream = rng.at("piece", number)
        codes = drawn_codes(domain, fitted, labels[start : start + PIECE], stream)
        pieces.append(domain.numbers(codes, stream))
    numbers = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    return domain.encoding.frame(numbers, len(labels))


def label_chances(
    schema: Schema, balance: np.ndarray | None, conditions: Sequence[Condition] = ()
) -> np.ndarray:
    """How likely each class is, float32: the public or paid-for balance of those that conditions allow.

    Without a label there is one class.
    """
    label = schema.label_column
    if label is None:
        return np.ones(1, dtype=np.float32)
    places = np.arange(len(label.labels)) + label.lowest
    allowed = np.logical_and.reduce(
        [np.ones(len(places), bool), *(each.holds(places) for each in conditions)]
    )
    if allowed.sum() == 1:
        return allowed.astype(np.float32)
    declared = schema.label_probabilities
    usual = declared if declared is not None else balance
    chances = np.ones(len(places)) if usual is None else np.asarray(usual)
    chances = chances.astype(np.float32) * allowed
    if not chances.sum() > 0:
        wanted = ", ".join(each.text for each in conditions)
        raise BadInput(f"condition {wanted}: no class meets it; drop a condition")
    return chances
