"""A real and a synthetic table read against their schema, once, for all scores that compare them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fedsynth.data.column import Column
from fedsynth.data.encode import positions
from fedsynth.data.schema import Schema
from fedsynth.data.table import check_columns
from fedsynth.data.values import read_values
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

COARSE_BINS = 10  # of a number in marginals and associations, over the public bounds


@dataclass(frozen=True)
class Tables:
    """Both tables as numbers or places of categories [rows] float64, NaN where missing or not fitting.

    `problems` are of columns with values that do not fit the schema, `outside` their share among the synthetic
    values that are there.
    """

    columns: tuple[Column, ...]
    real: Mapping[str, np.ndarray]
    synthetic: Mapping[str, np.ndarray]
    problems: Mapping[str, str]
    outside: Mapping[str, float]

    @classmethod
    def of(cls, real: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema) -> Tables:
        """Read both; refused if the columns are others than the schema's or there are no rows."""
        columns = tuple(column for column in schema.columns if column.name in schema.names)
        numbers: dict[str, dict[str, np.ndarray]] = {"real": {}, "synthetic": {}}
        problems: dict[str, str] = {}
        outside: dict[str, float] = {}
        for what, frame in (("real", real), ("synthetic", synthetic)):
            wrong = check_columns(frame, schema)
            if wrong or not len(frame):
                raise BadInput(f"the {what} table " + ("; ".join(wrong) if wrong else "has no rows"))
            for column in columns:
                values = read_values(column, frame[column.name])
                numbers[what][column.name] = values.numbers
                there = frame[column.name].notna().to_numpy(dtype=bool)
                outside[column.name] = float(np.isnan(values.numbers[there]).mean()) if there.any() else 0.0
                if values.problems:
                    problems.setdefault(column.name, f"{what} table: {values.problems[0]}")
        return cls(columns, numbers["real"], numbers["synthetic"], problems, outside)

    @property
    def rows(self) -> tuple[int, int]:
        """How many rows the real and the synthetic table have."""
        name = self.columns[0].name
        return len(self.real[name]), len(self.synthetic[name])

    @property
    def fitting(self) -> tuple[Column, ...]:
        """The columns whose values all fit the schema."""
        return tuple(column for column in self.columns if column.name not in self.problems)

    def both(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        """A column's real and synthetic numbers; refused with the reason if some do not fit the schema."""
        if column.name in self.problems:
            raise BadInput(self.problems[column.name])
        return self.real[column.name], self.synthetic[column.name]

    def sampled(self, rows: int, seed: int) -> Tables:
        """At most `rows` rows of each table, drawn without replacement."""
        parts = []
        for what, table in (("real", self.real), ("synthetic", self.synthetic)):
            count = len(next(iter(table.values())))
            if count <= rows:
                parts.append(table)
                continue
            kept = Rng(seed).at("rows", what).numpy().choice(count, rows, replace=False)
            parts.append({name: numbers[kept] for name, numbers in table.items()})
        return replace(self, real=parts[0], synthetic=parts[1])


def cells(column: Column, bins: int = COARSE_BINS) -> int:
    """How many cells `coarse` tells apart: those of the values, and a last one for missing."""
    size = column.values
    return (min(size, bins) if column.numeric and size is not None else size or bins) + 1


def coarse(column: Column, numbers: np.ndarray, bins: int = COARSE_BINS) -> np.ndarray:
    """The cell of each number, int64: a category, or one of `bins` equal parts of the public range; missing last.

    >>> coarse(Column("age", "integer", min=0, max=99), np.array([0.0, 55.0, np.nan])).tolist()
    [0, 5, 10]
    """
    missing = np.isnan(numbers)
    size = cells(column, bins) - 1
    known = np.where(missing, column.lowest, numbers)
    if column.numeric:
        known = np.clip(np.floor(positions(column, known) * size), 0, size - 1)
    return np.where(missing, size, known).astype(np.int64)
