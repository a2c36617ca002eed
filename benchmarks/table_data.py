"""The tables that tools are compared on, in the same public bins for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import pandas as pd
import torch

from fedsynth.data.rand_health import hold_out, rand_health, words
from fedsynth.data.schema import Column, Schema
from fedsynth.data.table import Table
from fedsynth.data.values import conform, read_values
from fedsynth.models.table_domain import TableDomain
from fedsynth.research.datasets import adult, epileptic_seizure, heart_disease
from fedsynth.rng import Rng

BINS = 32  # public bins of a number that other tools are given
SCORED_BINS = 16
PARITY_ROWS, COINS = 20_000, 10


@dataclass(frozen=True)
class Split:
    """Training and test rows, and how their values are coded for tools that take small whole numbers."""

    train: pd.DataFrame
    test: pd.DataFrame
    schema: Schema

    @cached_property
    def domain(self) -> TableDomain:
        return TableDomain(self.schema)

    @cached_property
    def maps(self) -> list[np.ndarray]:
        """The public bin of each of the finest values of a column; zero and missing have their own."""
        maps = []
        for size, ordered in zip(self.domain.sizes, self.domain.ordered, strict=True):
            kept = min(ordered, BINS)
            cells = np.arange(ordered) * kept // max(ordered, 1)
            maps.append(np.concatenate([cells, kept + np.arange(size - ordered)]))
        return maps

    @property
    def sizes(self) -> np.ndarray:
        return np.array([bins.max() + 1 for bins in self.maps])

    def coded(self) -> np.ndarray:
        """The training rows as bins [rows, columns]."""
        codes = self.domain.codes(*Table(self.schema).encode(conform(self.train, self.schema))).numpy()
        return np.stack([bins[codes[:, place]] for place, bins in enumerate(self.maps)], axis=1)

    def decoded(self, coded: np.ndarray, seed: int) -> pd.DataFrame:
        """Rows of the schema; a number lies anywhere in its bin."""
        rng, fine = np.random.default_rng(seed), np.empty(coded.shape, dtype=np.int64)
        for place, bins in enumerate(self.maps):
            starts = np.searchsorted(bins, np.arange(bins.max() + 1))
            widths = np.bincount(bins)
            fine[:, place] = starts[coded[:, place]] + (
                rng.random(len(coded)) * widths[coded[:, place]]
            ).astype(int)
        codes = torch.from_numpy(fine)
        y = codes[:, -1] if self.schema.label else None
        return Table(self.schema).decode(self.domain.rows(codes, Rng(seed)), y)


def pair_distance(one: pd.DataFrame, other: pd.DataFrame, schema: Schema) -> float:
    """The mean total variation of all pairs of columns, sixteen public bins a number."""
    codes, sizes = [], []
    one, other = conform(one, schema), conform(other, schema)
    for column in schema.columns:
        values = [_scored(frame[column.name], column) for frame in (one, other)]
        joined, _ = pd.factorize(np.concatenate(values))
        codes.append(np.split(joined, [len(one)]))
        sizes.append(int(joined.max()) + 1)
    distances = []
    for first, second in combinations(range(len(codes)), 2):
        shares = [
            np.bincount(left * sizes[second] + right, minlength=sizes[first] * sizes[second]) / len(left)
            for left, right in zip(codes[first], codes[second], strict=True)
        ]
        distances.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(distances))


def _scored(values: pd.Series, column: Column) -> np.ndarray:
    numbers = read_values(column, values).numbers
    if column.min is not None:
        span = column.max - column.min
        numbers = np.floor((numbers - column.min) / span * SCORED_BINS).clip(0, SCORED_BINS - 1)
    return np.where(np.isnan(numbers), -1, numbers)


def _adult(seed: int) -> Split:
    (train, schema), (test, _) = adult("train"), adult("test")
    return Split(train, test, schema)


def _rand(seed: int) -> Split:
    frame, schema = rand_health()
    train, test = (part.drop(columns="person") for part in hold_out(frame, "person"))
    return Split(train, test, schema.with_client(None))


def _heart(seed: int) -> Split:
    frame, schema = heart_disease()
    return _dealt(frame.drop(columns="site"), schema.with_client(None), seed)


def _fair(seed: int) -> Split:
    """Fair's survey of 6,366 married women (1978), which comes with statsmodels; the label: any affair."""
    from statsmodels.datasets import fair

    source = fair.load_pandas().data
    named = {
        "rate_marriage": "1 2 3 4 5",
        "religious": "1 2 3 4",
        "occupation": "1 2 3 4 5 6",
        "occupation_husb": "1 2 3 4 5 6",
    }
    frame = pd.DataFrame({name: source[name].astype(int).astype(str) for name in named})
    for name in ("age", "yrs_married", "children", "educ"):
        frame[name] = source[name]
    frame["affair"] = np.where(source["affairs"] > 0, "yes", "no")
    columns = (
        *(
            words(name, values, "ordinal" if name in ("rate_marriage", "religious") else "categorical")
            for name, values in named.items()
        ),
        Column("age", "continuous", min=17, max=50, decimals=1),
        Column("yrs_married", "continuous", min=0, max=30, decimals=1),
        Column("children", "continuous", min=0, max=8, decimals=1),
        Column("educ", "continuous", min=8, max=21, decimals=0),
        words("affair", "no yes", "binary"),
    )
    return _dealt(frame, Schema(columns=columns, label="affair"), seed)


def _eeg(seed: int) -> Split:
    """The Bonn EEG: the spread of the signal in eight parts of a second, and whether it is a seizure."""
    columns = tuple(
        Column(f"part {part}", "continuous", min=0, max=2048, scale="log", decimals=1) for part in range(8)
    )
    schema = Schema(columns=(*columns, words("seizure", "no yes", "binary")), label="seizure")
    frames = []
    for split in ("train", "test"):
        source, _ = epileptic_seizure(split)
        points = source[[name for name in source if name not in ("recording", "seizure")]].to_numpy(float)
        parts = np.array_split(points, 8, axis=1)
        frame = pd.DataFrame({f"part {place}": part.std(axis=1).round(1) for place, part in enumerate(parts)})
        frames.append(frame.assign(seizure=source["seizure"].to_numpy()))
    return Split(frames[0], frames[1], schema)


def parity(of: int) -> Callable[[int], Split]:
    """Coins, and a label that says whether an odd number of the first few show heads: no pair says anything."""

    def made(seed: int) -> Split:
        coins = np.random.default_rng(1000 + seed).integers(0, 2, (2 * PARITY_ROWS, COINS))
        frame = pd.DataFrame(np.array(["no", "yes"])[coins], columns=[f"coin {one}" for one in range(COINS)])
        frame["odd"] = np.array(["no", "yes"])[coins[:, :of].sum(axis=1) % 2]
        schema = Schema(columns=tuple(words(name, "no yes", "binary") for name in frame), label="odd")
        return Split(
            frame[:PARITY_ROWS].reset_index(drop=True), frame[PARITY_ROWS:].reset_index(drop=True), schema
        )

    return made


def _dealt(frame: pd.DataFrame, schema: Schema, seed: int) -> Split:
    """A fifth of the rows, others for each seed, is for the test."""
    order = np.random.default_rng(seed).permutation(len(frame))
    test, train = np.split(order, [len(frame) // 5])
    return Split(frame.iloc[train].reset_index(drop=True), frame.iloc[test].reset_index(drop=True), schema)


TABLES = {"heart": _heart, "fair": _fair, "EEG": _eeg, "RAND": _rand, "Adult": _adult}
PARITIES = {"parity of two": parity(2), "parity of three": parity(3)}
