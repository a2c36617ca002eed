import numpy as np
import pytest

from fedsynth.data.conditions import read_conditions
from fedsynth.data.schema import Column, Schema
from fedsynth.errors import BadInput

SCHEMA = Schema(
    columns=(
        Column("age", "integer", min=0, max=99),
        Column("a=b", "integer", min=0, max=9),
        Column("age group", "ordinal", categories=("young", "middle", "old")),
        Column("income", "categorical", categories=("<=50K", ">50K")),
        Column("day", "date", min="2020-01-01", max="2020-12-31"),
        Column("zip", "text-code", categories=("01234", "1234")),
        Column("key", "id"),
    )
)


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("age>30", [30, 31, np.nan], [False, True, False]),
        ("age >= 30", [29, 30, np.nan], [False, True, False]),
        ("age=30.0", [29, 30, 31], [False, True, False]),
        ("age!=30", [29, 30, np.nan], [True, False, False]),
        ("a=b=1", [0, 1, 2], [False, True, False]),
        ("a=b<1", [0, 1, 2], [True, False, False]),
        ("age group>young", [0, 1, 2], [False, True, True]),
        ("income=>50K", [0, 1, np.nan], [False, True, False]),
        ("income=<=50K", [0, 1, np.nan], [True, False, False]),
        ("day<=2020-01-02", [0, 1, 2], [True, True, False]),
        ("zip=1234", [0, 1, np.nan], [False, True, False]),
    ],
)
def test_a_condition_is_a_value_or_a_range(text, values, expected):
    (condition,) = read_conditions([text], SCHEMA)
    assert condition.holds(np.array(values)).tolist() == expected


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["agee>3"], "did you mean 'age'"),
        (["key=3"], "no such column"),
        (["income>50K"], "has no order"),
        (["income=60K"], "no such category"),
        (["age>99"], "between 0 and 99"),
        (["age>old"], "between 0 and 99"),
        (["day=2021-01-01"], "a date between 2020-01-01 and 2020-12-31"),
        (["age"], "COLUMN=VALUE"),
        (["age=1", "age=2"], "'age' has a condition already"),
    ],
)
def test_a_condition_that_cannot_be_met_is_one_sentence(texts, told):
    with pytest.raises(BadInput, match=told):
        read_conditions(texts, SCHEMA)
