"""The pieces of a table's evaluation, in the order in which a reader wants them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import pandas as pd

from fedsynth.data.schema import Schema
from fedsynth.evaluation.fidelity import column_pairs, column_shapes, missing_values
from fedsynth.evaluation.overlay import associations, column_overlays
from fedsynth.evaluation.step import Found, Step
from fedsynth.evaluation.tables import Tables

PAIR_ROWS = 200_000  # of each table; more change the third digit at most


def table_steps(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    schema: Schema,
    *,
    test: pd.DataFrame | None = None,
    deep: bool = False,
    seed: int = 0,
) -> Sequence[Step]:
    """Every piece for a table; nothing is computed before a piece is run."""
    read = _Read(real, synthetic, schema, seed)
    return [
        Step("column shapes", ("column shapes", "missing values"), read.shapes),
        Step("column pairs", ("column pairs",), read.pairs),
    ]


class _Read:
    """Both tables, read when the first piece needs them."""

    def __init__(self, real: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema, seed: int) -> None:
        self._frames, self._schema, self._seed = (real, synthetic), schema, seed

    @cached_property
    def tables(self) -> Tables:
        return Tables.of(*self._frames, self._schema)

    @cached_property
    def sample(self) -> Tables:
        return self.tables.sampled(PAIR_ROWS, self._seed)

    def shapes(self) -> Found:
        scores = (column_shapes(self.tables), missing_values(self.tables))
        return Found(scores, {"columns": column_overlays(self.tables)})

    def pairs(self) -> Found:
        return Found((column_pairs(self.sample),), {"associations": associations(self.sample)})
