import numpy as np
import pandas as pd
import pytest

from fedsynth.data.column import Column
from fedsynth.data.values import places, read_values

AGE = Column("age", "integer", min=0, max=99)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1, 120], "1 of 2 rows lie outside 0 to 99, for example 120"),
        ([1.5, 2.0], "hold a fraction"),
        (["1", "old"], "are no numbers, but the schema says integer, for example 'old'"),
        ([1.0, np.nan], "1 of 2 rows are missing"),
        ([1.0, np.inf], "lie outside 0 to 99, for example inf"),
        (pd.to_datetime(["2020-01-01"]), "use type 'date'"),
    ],
)
def test_numbers_that_do_not_fit_are_told_with_an_example(values, told):
    problems = read_values(AGE, pd.Series(values)).problems
    assert len(problems) == 1
    assert problems[0].startswith("column 'age': ")
    assert told in problems[0]


def test_numbers_written_as_text_are_read():
    read = read_values(AGE, pd.Series(["7", "8.0"]))
    assert (read.numbers.tolist(), read.problems) == ([7.0, 8.0], ())


def test_missing_is_kept_where_it_is_allowed():
    read = read_values(Column("a", "categorical", categories=("x",), missing=True), pd.Series(["x", None]))
    assert read.problems == ()
    assert np.isnan(read.numbers).tolist() == [False, True]


def test_a_value_outside_the_categories_is_told_with_the_ones_expected():
    problems = read_values(
        Column("sex", "categorical", categories=("F", "M")), pd.Series(["F", "f"])
    ).problems
    assert "1 of 2 rows hold a value outside its categories, for example 'f'; expected F, M" in problems[0]


@pytest.mark.parametrize(
    ("values", "categories", "expected"),
    [
        ([0.0, 1.0], ("0", "1"), [0, 1]),
        (["1.0", "0.0"], ("0", "1"), [1, 0]),
        ([True, False], ("0", "1"), [1, 0]),
        (["TRUE", "false"], ("0", "1"), [1, 0]),
        ([True, False], ("False", "True"), [1, 0]),
        (["TRUE", "FALSE"], ("false", "true"), [1, 0]),
        (["007", "7"], ("007", "7"), [0, 1]),
        (["007"], ("7",), [-2]),
        (["0.50"], ("0.5",), [0]),
        (["None", "nan"], ("None", "nan"), [0, 1]),
    ],
)
def test_a_category_is_found_however_its_value_is_spelled(values, categories, expected):
    assert places(pd.Series(values), categories).tolist() == expected


def test_a_pandas_category_is_read_as_its_values():
    numbers = read_values(AGE, pd.Series([3, 5], dtype="category")).numbers
    assert numbers.tolist() == [3.0, 5.0]
