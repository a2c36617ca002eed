import contextlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.data.rule_parser import parse_rule
from fedsynth.data.schema import Column, Schema
from fedsynth.data.table import Table, check
from fedsynth.data.values import read_values
from fedsynth.errors import BadInput

COLUMNS = [
    Column("admission", "date", min="2020-01-01", max="2021-12-31"),
    Column("discharge date", "date", min="2020-01-01", max="2022-12-31", missing=True, format="%d.%m.%Y"),
    Column("seen", "timestamp", min="2020-01-01", max="2021-12-31"),
    Column("opens", "time"),
    Column("sex", "categorical", categories=("F", "M")),
    Column("pregnant", "binary", categories=("no", "yes"), missing=True),
    Column("grade", "ordinal", categories=("low", "middle", "high")),
    Column("a", "integer", min=0, max=9),
    Column("b-c", "integer", min=0, max=9, missing=True),
    Column("total", "continuous", min=0, max=30, decimals=1),
    Column("flag", "binary", categories=("false", "true"), dtype="bool"),
]
ROW = {
    "admission": "2020-03-01", "discharge date": "05.03.2020", "seen": "2020-03-01 12:00", "opens": "08:30",
    "sex": "F", "pregnant": "yes", "grade": "middle", "a": 3, "b-c": 4, "total": 7.0, "flag": True,
}  # fmt: skip


def holds(text, **changed):
    rule = parse_rule(text, COLUMNS)
    frame = pd.DataFrame([{**ROW, **{name.replace("_", " "): value for name, value in changed.items()}}])
    by_name = {column.name: column for column in COLUMNS}
    numbers = {name: read_values(by_name[name], frame[name]).numbers for name in rule.columns}
    return bool(rule.holds(numbers)[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("discharge date >= admission", True),
        ("discharge date - admission == 4", True),
        ("discharge date < admission", False),
        ("seen > admission", True),
        ("seen >= '2020-03-02'", False),
        ("opens >= '08:30'", True),
        ("pregnant == 'yes' implies sex == 'F'", True),
        ("pregnant == 'yes' implies sex == 'M'", False),
        ("sex == 'M' implies a > 100", True),
        ("total == a + b-c", True),
        ("total == 2 * a + 1", True),
        ("total != a + b-c", False),
        ("a - b-c < 0", True),
        ("-a < 0", True),
        ("grade > 'low' and grade <= \"middle\"", True),
        ("grade == 'high'", False),
        ("not (a == 3 or a == 4)", False),
        ("flag == true", True),
        ("a == 1 or a == 2 or a == 3", True),
    ],
)
def test_a_rule_says_whether_a_row_keeps_it(text, expected):
    assert holds(text) == expected


def test_a_rule_holds_where_a_value_that_matters_is_missing():
    assert holds("discharge date < admission", discharge_date=None)
    assert holds("pregnant == 'yes' implies sex == 'M'", pregnant=None)
    assert not holds("pregnant == 'yes' or sex == 'M'", pregnant="no")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("discharg >= admission", "there is no column 'discharg'"),
        ("admision >= '2020-01-01'", "did you mean 'admission'"),
        ("sex == 'X'", "'X' is not a category of 'sex'"),
        ("sex > 'F'", "has no order"),
        ("sex == 3 + a", "compare it with one of its categories"),
        ("a == 'x'", "compare it with a number"),
        ("admission > 'soon'", "'soon' is none"),
        ("a >", "the end"),
        ("a 3", "expected one of =="),
        ("(a > 3", "bracket"),
        ("a > 3 b-c", "unexpected"),
        ("a > 3; import os", "not understood"),
        ("1 < 2", "at least one column"),
        (7, "expected a text"),
    ],
)
def test_a_rule_that_cannot_be_read_is_one_sentence(text, told):
    with pytest.raises(BadInput, match="constraint") as refused:
        parse_rule(text, COLUMNS)
    assert told in str(refused.value)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.text("ab >=<!'()+-*0.5andorntimples", max_size=30))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(BadInput):
        parse_rule(text, COLUMNS)


def schema(*constraints, columns=COLUMNS):
    return Schema.from_dict({"columns": [c.to_dict() for c in columns], "constraints": list(constraints)})


def test_a_schema_keeps_its_constraints_and_tells_all_that_are_wrong():
    kept = schema("total == a + b-c")
    assert Schema.from_dict(kept.to_dict()) == kept and kept.constraints == ("total == a + b-c",)
    with pytest.raises(BadInput) as refused:
        schema("tota > 1", "sex == 'X'")
    assert "'tota'" in str(refused.value) and "'X'" in str(refused.value)


def test_rows_that_break_a_constraint_are_refused_at_the_door():
    known = schema("discharge date >= admission")
    frame = pd.DataFrame([ROW, {**ROW, "discharge date": "01.02.2020"}])
    told = check(frame, known)
    assert len(told) == 1 and "1 of 2 rows break it" in told[0]
    with pytest.raises(BadInput, match="1 of 2 rows break it"):
        Table(known).encode(frame)


def test_a_derived_column_is_computed_and_not_learned():
    known = schema("total == a + b-c", "a >= 0")
    assert list(known.derived) == ["total"] and "total" not in known.names
    columns = [
        column if column.name != "total" else Column("total", "integer", min=0, max=18, missing=True)
        for column in COLUMNS
    ]
    encoding = Table(schema("total == a + b-c", columns=columns))
    frame = pd.DataFrame([ROW, {**ROW, "b-c": None, "total": None}])
    back = encoding.decode(*encoding.encode(frame.drop(columns="total")))
    assert list(back.columns) == list(frame.columns)
    assert back["total"].isna().tolist() == [False, True] and back["total"][0] == 7


def test_derived_columns_are_computed_in_order_and_a_circle_is_learned():
    columns = [Column(name, "integer", min=0, max=99) for name in "abcd"]
    assert list(schema("a == b + c", "b == c + d", columns=columns).derived) == ["b", "a"]
    circle = schema("a == b + c", "b == a - c", columns=columns)
    assert len(circle.derived) == 1


def test_identifiers_are_unique_and_need_not_be_in_the_file():
    known = Schema(columns=(Column("id", "id", dtype="str"), COLUMNS[7]))
    encoding = Table(known)
    back = encoding.decode(*encoding.encode(pd.DataFrame({"a": np.arange(9)})))
    assert back["id"].tolist() == [str(number) for number in range(1, 10)]
    assert known.names == ("a",)
