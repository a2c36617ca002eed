"""Rows of paid-for columns made to fit: bounds and categories learned under noise need not cover every row."""

from __future__ import annotations

import pandas as pd

from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.data.values import as_text

OTHER = "other"  # the category for whatever was too rare to be shown


def conform(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The table with numbers of `paid` columns moved to the nearest bound and unknown values named "other".

    Columns that are public or inferred are left alone: there a value outside is a mistake to report.
    """
    paid = [c for c in schema.columns if schema.provenance.get(c.name) == "paid" and c.name in frame.columns]
    if not paid:
        return frame
    changed = {column.name: _conformed(column, frame[column.name]) for column in paid}
    return frame.assign(**changed)


def _conformed(column: Column, values: pd.Series) -> pd.Series:
    if column.numeric:
        return pd.to_numeric(values, errors="coerce").clip(*column.bounds)
    known = set(column.labels)
    texts = values.map(lambda value: as_text(value, column.labels), na_action="ignore")
    return texts.where(texts.isna() | texts.isin(known), OTHER)
