import numpy as np
import pandas as pd
import pytest

from fedsynth.data.draft import draft_image_schema, draft_schema
from fedsynth.data.table import check
from fedsynth.errors import BadInput

ROWS = 60
FRAME = pd.DataFrame(
    {
        "age": np.arange(ROWS),
        "weight": np.arange(ROWS) / 10 + 50,
        "children": [np.nan, *range(3)] * 15,
        "gain": [0] * 50 + list(range(1000, 51_000, 5000)),
        "site": ["north", "south", "west"] * 20,
        "smoker": [0, 1] * 30,
        "alive": [True, False] * 30,
        "stage": [1, 2, 3] * 20,
        "patient": [f"p{row}" for row in range(ROWS)],
    }
)


def drafted():
    schema = draft_schema(FRAME, label="stage", client_column="patient")
    return schema, {column.name: column for column in schema.columns}


def test_drafted_types_fit_the_rows():
    schema, columns = drafted()
    assert {name: column.type for name, column in columns.items()} == {
        "age": "integer",
        "weight": "continuous",
        "children": "integer",
        "gain": "integer",
        "site": "categorical",
        "smoker": "binary",
        "alive": "binary",
        "stage": "categorical",
    }
    assert check(FRAME, schema) == []


def test_a_draft_reads_bounds_decimals_skew_and_missing():
    _, columns = drafted()
    assert (columns["age"].min, columns["age"].max) == (0, 59)
    assert columns["weight"].decimals == 1
    assert columns["children"].missing and not columns["age"].missing
    assert columns["gain"].scale == "log" and columns["age"].scale == "linear"


def test_everything_in_a_draft_is_marked_as_inferred():
    schema, columns = drafted()
    assert schema.inferred() == tuple(columns)


def test_label_and_client_are_noted_and_the_client_is_no_column():
    schema, columns = drafted()
    assert (schema.label, schema.client, schema.classes) == ("stage", "patient", ("1", "2", "3"))
    assert "patient" not in columns


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"patient": FRAME["patient"]}, "column 'patient' holds 60 different texts"),
        ({"empty": None}, "column 'empty' has no values"),
        ({"day": pd.Timestamp("2020-01-01")}, "column 'day' holds dates"),
        ({"day": [f"1950-{number % 12 + 1}-{number % 28 + 1}" for number in range(60)]}, "'day' holds dates"),
        ({"day": [f"{number % 28 + 1:02}.03.1950 08:30" for number in range(60)]}, "'day' holds dates"),
        ({"ratio": [np.inf, *range(59)]}, "column 'ratio' holds infinite numbers"),
    ],
)
def test_a_column_that_cannot_be_synthesised_is_told(change, told):
    with pytest.raises(BadInput, match=told):
        draft_schema(FRAME.drop(columns="patient").assign(**change))


def test_a_label_that_is_not_there_is_told_with_the_nearest():
    with pytest.raises(BadInput, match="did you mean 'stage'"):
        draft_schema(FRAME, label="stages")


def test_a_whole_number_range_too_long_for_an_integer_is_continuous_without_decimals():
    schema = draft_schema(pd.DataFrame({"a": [0, 1, 10**9, 10**9 - 1]}))
    assert (schema.columns[0].type, schema.columns[0].decimals) == ("continuous", 0)


def test_images_are_drafted_with_public_size_and_inferred_classes():
    schema = draft_image_schema(np.zeros((2, 4, 5, 3), np.uint8), np.array([1, 0]))
    assert (schema.height, schema.width, schema.channels) == (4, 5, 3)
    assert (schema.classes, schema.inferred()) == (("0", "1"), ("label",))
