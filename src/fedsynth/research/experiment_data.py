"""The public tables that experiments measure on: training rows, test rows that nobody trained on, and a schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import torch

from fedsynth.data.column import Column
from fedsynth.data.rand_health import TEST_SHARE, hold_out, rand_health
from fedsynth.data.schema import Schema
from fedsynth.models.latent_classes import LatentClasses
from fedsynth.research.datasets import adult, adult_a9a, epileptic_seizure, heart_disease
from fedsynth.research.known_truth import fit_mixture
from fedsynth.rng import Rng

RESAMPLED = 100_000  # rows
LOUD = 60  # microvolt-like units: the typical amplitude of EEG, public knowledge
LEVELS = ("far below", "below", "above", "far above")
Tables = tuple[pd.DataFrame, pd.DataFrame, Schema]  # training rows, test rows, schema


def adult_tables() -> Tables:
    """The published training and test split."""
    train, schema = adult("train")
    return train, adult("test")[0], schema


def rand_tables() -> Tables:
    """A fifth of the people held out."""
    frame, schema = rand_health()
    return *hold_out(frame, "person"), schema


def seizure_tables() -> Tables:
    """A fifth of the recordings held out; each of the others is a client."""
    train, schema = epileptic_seizure("train")
    return train, epileptic_seizure("test")[0].drop(columns=schema.client or ""), schema


def a9a_tables() -> Tables:
    """The published training and test split of Adult's 124 binary attributes; each person once."""
    train, schema = adult_a9a("train")
    return train, adult_a9a("test")[0], schema


def resampled_tables() -> Tables:
    """The same with 10^5 training rows drawn with replacement, as in DP-Fed-WAE: each person about three times."""
    train, test, schema = a9a_tables()
    chosen = Rng(0).at("resampled").numpy().integers(0, len(train), RESAMPLED)
    return train.iloc[chosen].reset_index(drop=True), test, schema


def heart_tables() -> Tables:
    """The 920 patients of four hospitals, a fifth of them held out; who was where is left out."""
    frame, schema = heart_disease()
    order = Rng(0).at("held out", "heart disease").numpy().permutation(len(frame))
    shuffled = frame.drop(columns=schema.client or "").iloc[order].reset_index(drop=True)
    cut = round(len(frame) * TEST_SHARE)
    train, test = shuffled.iloc[cut:].reset_index(drop=True), shuffled.iloc[:cut].reset_index(drop=True)
    return train, test, replace(schema, client=None)


def seizure_levels() -> Tables:
    """The EEG as categories: each of the 178 points is far below, below, above or far above silence."""
    train, test, schema = seizure_tables()
    points = [name for name in schema.names if name != schema.label]
    columns = tuple(
        Column(column.name, "categorical", categories=LEVELS) if column.name in points else column
        for column in schema.columns
    )
    tables = []
    for frame in (train.drop(columns=schema.client or ""), test):
        level = np.digitize(frame[points].to_numpy(), (-LOUD, 0, LOUD))
        levels = pd.DataFrame(np.array(LEVELS)[level], columns=points)
        levels[schema.label] = frame[schema.label].to_numpy()
        tables.append(levels)
    return tables[0], tables[1], replace(schema, columns=columns, client=None)


def a9a_truth() -> LatentClasses:
    """A mixture of 40 classes fitted to the published training split of a9a, the label with the other columns."""
    train, _, schema = a9a_tables()
    bits = np.stack([train[name].to_numpy() == _yes(schema, name) for name in train.columns], 1)
    return fit_mixture(bits, classes=40, steps=60, rng=Rng(0).at("truth"))


def _yes(schema: Schema, name: str) -> str:
    """The second category of a column of two."""
    return next(column.labels[1] for column in schema.columns if column.name == name)


def truth_tables(rows: int) -> Tables:
    """So many rows drawn from `a9a_truth`, and 16,281 others to test on; nobody is in them twice."""
    schema, truth = a9a_tables()[2], a9a_truth()
    draw = torch.Generator().manual_seed(Rng(0).at("drawn", rows).integer())
    parts = [truth.sample(count, draw).numpy() for count in (rows, 16_281)]
    names = [column.name for column in schema.columns]
    tables = []
    for codes in parts:
        columns = {
            name: pd.Categorical.from_codes(codes[:, place], categories=pd.Index(column.labels))
            for place, (name, column) in enumerate(zip(names, schema.columns, strict=True))
        }
        tables.append(pd.DataFrame(columns))
    return tables[0], tables[1], schema


DATA: dict[str, Callable[[], Tables]] = {
    "adult": adult_tables,
    "adult_a9a": a9a_tables,
    "adult_a9a_resampled": resampled_tables,
    "rand_health": rand_tables,
    "epileptic_seizure": seizure_tables,
    "epileptic_seizure_levels": seizure_levels,
    "heart_disease": heart_tables,
    "a9a_truth_10000": partial(truth_tables, 10_000),
    "a9a_truth_100000": partial(truth_tables, 100_000),
    "a9a_truth_1000000": partial(truth_tables, 1_000_000),
}
