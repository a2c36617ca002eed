"""Rows of paid columns are made to fit, each by itself; other columns are left alone."""

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.data.table import check
from fedsynth.data.values import conform


def conformed(column, values, source="paid"):
    schema = Schema(columns=(column,), provenance={column.name: source})
    frame = conform(pd.DataFrame({column.name: pd.Series(values, dtype=object)}), schema)
    if source == "paid":
        assert check(frame, schema) == []
    return frame[column.name].tolist()


WHOLE = Column("visits", "integer", min=0, max=10, missing=True)
SEX = Column("sex", "binary", categories=("F", "M"))


def test_numbers_are_moved_to_the_bound_and_rounded_to_whole_ones():
    assert conformed(WHOLE, ["3.6", -5, 99, 2]) == [4, 0, 10, 2]


def test_what_is_no_number_is_missing():
    assert np.isnan(conformed(WHOLE, ["unknown", None])).all()


def test_without_a_place_for_missing_values_a_number_is_the_middle():
    dose = Column("dose", "continuous", min=0.0, max=4.0, decimals=1)
    assert conformed(dose, ["unknown", None, 1.5]) == [2.0, 2.0, 1.5]


@pytest.mark.parametrize(
    ("categories", "missing", "expected"),
    [
        (("F", "M", "other"), True, ["M", "other", None]),
        (("F", "M", "other"), False, ["M", "other", "other"]),
        (("F", "M"), True, ["M", None, None]),
        (("F", "M"), False, ["M", "F", "F"]),
    ],
)
def test_a_category_that_is_not_listed_is_other_or_missing_or_the_first(categories, missing, expected):
    column = Column("sex", "categorical", categories=categories, missing=missing)
    assert conformed(column, ["M", "x", None]) == expected


def test_a_category_is_spelled_as_the_schema_lists_it():
    assert conformed(Column("ill", "binary", categories=("0", "1")), [1, "1.0", 0.0]) == ["1", "1", "0"]


def test_public_and_inferred_columns_are_left_alone():
    for source in ("public", "inferred"):
        assert conformed(SEX, ["x", None], source) == ["x", None]


def test_a_row_is_made_to_fit_without_a_look_at_the_others():
    rows = ["3", "4.5", "unknown", None, "007", "1e3"]
    together = conformed(WHOLE, rows)
    np.testing.assert_equal(together, [conformed(WHOLE, [row])[0] for row in rows])
