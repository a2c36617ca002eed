import datetime

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.draft import Wishes, draft_image_schema, draft_schema
from fedsynth.data.table import Table, check
from fedsynth.data.table_files import read_table, write_table
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
    schema = draft_schema(FRAME, Wishes(label="stage", client="patient")).schema
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


def columns_of(frame, **wishes):
    schema = draft_schema(pd.DataFrame(frame), Wishes(**wishes)).schema
    assert check(pd.DataFrame(frame), schema) == []
    return {column.name: column for column in schema.columns}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([f"Name {row} of many" for row in range(60)], "nearly as many different texts as rows"),
        (None, "has no values"),
        ([np.inf, *range(59)], "infinite numbers"),
    ],
)
def test_a_column_without_a_type_is_left_out_with_its_reason(values, reason):
    frame = FRAME.drop(columns="patient").assign(odd=values)
    draft = draft_schema(frame)
    assert list(draft.left_out) == ["odd"] and reason in draft.left_out["odd"]
    assert "odd" not in draft.schema.names and check(frame, draft.schema) == []


@pytest.mark.parametrize(
    ("label", "told"),
    [("stages", "did you mean 'stage'"), ("children", "missing values"), ("weight", "drafted as continuous")],
)
def test_a_label_that_cannot_be_one_is_told_and_the_schema_has_none(label, told):
    draft = draft_schema(FRAME, Wishes(label=label))
    schema, notes = draft.schema, draft.notes
    assert schema.label is None and len(schema.columns) == len(FRAME.columns)
    assert len(notes) == 1 and told in notes[0] and "the draft has no label" in notes[0]


def test_a_client_column_that_is_not_there_is_refused():
    with pytest.raises(BadInput, match="did you mean 'patient'"):
        draft_schema(FRAME, Wishes(client="patients"))


@pytest.mark.parametrize(
    ("values", "kind", "style"),
    [
        ([f"1950-{number % 12 + 1:02}-{number % 28 + 1:02}" for number in range(60)], "date", None),
        ([f"{number % 28 + 1:02}.03.1950" for number in range(60)], "date", "%d.%m.%Y"),
        ([f"{number % 28 + 1:02}.03.1950 08:30" for number in range(60)], "timestamp", "%d.%m.%Y %H:%M"),
        (["1950-01-01 08:30:01"] * 60, "timestamp", None),
        ([f"{number % 28 + 1:02}-Mar-1950" for number in range(60)], "date", "%d-%b-%Y"),
        ([f"195003{number % 28 + 1:02}" for number in range(60)], "date", "%Y%m%d"),
        ([f"{number % 12 + 1:02}:30 PM" for number in range(60)], "time", "%I:%M %p"),
        (
            [f"03/{number % 28 + 1:02}/1950 08:30 AM" for number in range(60)],
            "timestamp",
            "%m/%d/%Y %I:%M %p",
        ),
        ([f"{number % 24:02}:30" for number in range(60)], "time", "%H:%M"),
        (pd.date_range("2020-01-01", periods=60), "date", None),
        (pd.date_range("2020-01-01", periods=60, freq="h", tz="Europe/Zurich"), "timestamp", None),
        ([datetime.date(2020, 1, 1 + number % 28) for number in range(60)], "date", None),
        ([datetime.time(number % 24, 5) for number in range(60)], "time", None),
    ],
)
def test_moments_are_drafted_and_come_back_as_they_were(values, kind, style):
    frame = pd.DataFrame({"moment": values})
    column = columns_of(frame)["moment"]
    assert (column.type, column.format) == (kind, style)
    encoding = Table(draft_schema(frame).schema)
    back = encoding.decode(*encoding.encode(frame))["moment"]
    if not (style is None and isinstance(values, list) and isinstance(values[0], str)):
        assert back.dtype == frame["moment"].dtype
    assert back.astype(str).tolist() == frame["moment"].astype(str).tolist()


def test_codes_keep_their_zeros():
    columns = columns_of(
        {"zip": ["01234", "90210", "10115"], "code": ["002", "2", "7"], "plain": ["1", "20", "3"]}
    )
    assert {name: column.type for name, column in columns.items()} == {
        "zip": "text-code",
        "code": "text-code",
        "plain": "integer",
    }
    assert columns["code"].categories == ("002", "2", "7")


def test_hundreds_of_codes_are_kept_and_unique_ones_are_identifiers():
    codes = [f"{number % 717:03}" for number in range(3000)]
    columns = columns_of(
        {"code": codes, "patient": [f"P{row}" for row in range(3000)], "a": [1, 2, 3] * 1000}
    )
    assert len(columns["code"].labels) == 717
    assert columns["patient"].type == "id"


def test_wishes_drop_columns_name_missing_values_texts_and_prefixes():
    frame = pd.DataFrame(
        {
            "zip": ["12345", "90210", "10115", "10115"],
            "dose": [3, -999, 5, 9],
            "race": ["a", "?", "b", "a"],
            "icd": ["E11.9", "E12.1", "I10", "I10.2"],
            "note": ["x", "y", "z", "x"],
        }
    )
    columns = columns_of(frame, drop=("note",), missing=("?", "-999"), texts=("zip",), prefixes={"icd": 3})
    assert list(columns) == ["zip", "dose", "race", "icd"]
    assert columns["zip"].type == "text-code" and columns["icd"].categories == ("E11", "E12", "I10")
    assert (columns["dose"].min, columns["dose"].missing, columns["dose"].missing_values) == (
        3,
        True,
        ("?", "-999"),
    )
    assert columns["race"].categories == ("a", "b") and columns["race"].missing


TYPED = pd.DataFrame(
    {
        "bool": [True, False, True],
        "nullable": pd.array([True, None, False], dtype="boolean"),
        "int8": pd.array([3, 5, 9], dtype="int8"),
        "Int32": pd.array([3, None, 9], dtype="Int32"),
        "zero_one": [0, 1, 0],
        "float32": pd.array([0.5, 1.25, 2.5], dtype="float32"),
        "category": pd.Categorical(["b", "a", "b"]),
        "numbers": pd.Categorical([10, 20, 10]),
        "grade": pd.Categorical(["low", "high", "low"], categories=["low", "high"], ordered=True),
        "wide": [1, 2**40, 5],
        "day": pd.to_datetime(["2020-01-01", "2020-02-01", "2020-01-01"]),
        "date": [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)],
        "text": ["x", "y", "x"],
    }
)


@pytest.mark.parametrize("extension", ["parquet", "memory"])
def test_original_dtypes_come_back(extension, tmp_path):
    frame = TYPED
    if extension == "parquet":
        write_table(TYPED, tmp_path / "a.parquet")
        frame = read_table(tmp_path / "a.parquet")
    encoding = Table(draft_schema(frame).schema)
    back = encoding.decode(*encoding.encode(frame))
    assert back.dtypes.astype(str).to_dict() == frame.dtypes.astype(str).to_dict()
    same = [name for name in frame if name != "wide"]  # a range of 2^40 is drawn, not listed
    assert back[same].astype(object).fillna("-").equals(frame[same].astype(object).fillna("-"))


def test_csv_text_in_is_csv_text_out(tmp_path):
    text = "zip,code,alive,ill,day,at,when\n"
    rows = [
        "01234,002,True,0,2020-01-31,08:30,31.01.2020 08:30",
        "90210,7,False,1,2020-02-01,09:45,01.02.2020 23:59",
    ]
    (tmp_path / "a.csv").write_text(text + "\n".join([*rows, ""]))
    schema = draft_schema(read_table(tmp_path / "a.csv", as_written=True)).schema
    schema.save(tmp_path / "schema.json")
    encoding = Table(schema.load(tmp_path / "schema.json"))
    write_table(encoding.decode(*encoding.encode(read_table(tmp_path / "a.csv", schema))), tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == (tmp_path / "a.csv").read_text()


def test_a_whole_number_range_too_long_for_an_integer_is_continuous_and_comes_back_whole():
    frame = pd.DataFrame({"a": [0, 1, 10**9, 10**9 - 1]})
    schema = draft_schema(frame).schema
    assert (schema.columns[0].type, schema.columns[0].decimals) == ("continuous", 0)
    encoding = Table(schema)
    assert encoding.decode(*encoding.encode(frame))["a"].dtype == "int64"


def test_images_are_drafted_with_public_size_and_inferred_classes():
    schema = draft_image_schema(np.zeros((2, 4, 5, 3), np.uint8), np.array([1, 0]))
    assert (schema.height, schema.width, schema.channels) == (4, 5, 3)
    assert (schema.classes, schema.inferred()) == (("0", "1"), ("label",))


def test_a_moment_with_parts_of_a_second_is_a_timestamp():
    frame = pd.DataFrame({"moment": [f"2020-01-{day:02} 08:30:01.120" for day in range(1, 29)]})
    schema = draft_schema(frame).schema
    assert (schema.columns[0].type, schema.columns[0].format) == ("timestamp", None) and not check(
        frame, schema
    )


@pytest.mark.parametrize("form", ["1,{:03}.50", "${}.50", "{}%", "{},5", "<{}", "€ {}"])
def test_numbers_with_signs_are_left_out_and_not_taken_for_identifiers(form):
    frame = pd.DataFrame({"age": range(60), "cost": [form.format(number + 100) for number in range(60)]})
    assert "plain numbers" in draft_schema(frame).left_out["cost"]


def test_whole_numbers_that_floats_cannot_tell_apart_are_identifiers_if_unique():
    frame = pd.DataFrame({"age": range(60), "record": [str(10**17 + row) for row in range(60)]})
    assert columns_of(frame)["record"].type == "id"


def test_an_empty_text_is_a_missing_value_in_any_file(tmp_path):
    frame = pd.DataFrame({"smokes": ["yes", "no", ""] * 20, "age": range(60)})
    frame.to_parquet(tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    schema = draft_schema(read).schema
    assert schema.column("smokes").missing and schema.column("smokes").categories == ("no", "yes")
    assert check(read, schema) == []


def test_columns_without_a_name_are_left_out_and_may_stay_in_the_file(tmp_path):
    (tmp_path / "t.csv").write_text(",age,\n" + "".join(f"{row},{row % 7},\n" for row in range(60)))
    read = read_table(tmp_path / "t.csv", as_written=True)
    drafted = draft_schema(read)
    assert list(drafted.left_out) == ["Unnamed: 0", "Unnamed: 2"] and drafted.schema.names == ("age",)
    assert "no name" in drafted.left_out["Unnamed: 0"] and check(read, drafted.schema) == []


def test_a_table_of_identifiers_alone_is_refused_with_the_reason():
    with pytest.raises(BadInput, match="'id' is an identifier, which is never learned"):
        draft_schema(pd.DataFrame({"id": range(60)}))


def test_a_long_text_is_shown_on_one_short_line():
    words = columns_of(pd.DataFrame({"note": ["x" * 3000, "a\nb"] * 30}))["note"].allowed()
    assert len(words) < 60 and "\n" not in words


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_durations_are_left_out_with_the_reason(tmp_path, unit):
    stays = pd.Series(pd.to_timedelta(np.arange(60), unit="h")).astype(f"timedelta64[{unit}]")
    pd.DataFrame({"stay": stays, "age": range(60)}).to_parquet(tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    drafted = draft_schema(read)
    assert "durations" in drafted.left_out["stay"] and drafted.schema.names == ("age",)
    assert check(read, drafted.schema) == []


def test_values_that_may_mean_a_missing_one_are_pointed_out_until_they_are_named():
    frame = pd.DataFrame(
        {
            "work": ["farm", "office", "?"] * 20,
            "age": [*range(20, 70), *[-999] * 10],
            "weight": [*map(str, range(50, 109)), "999"],
            "balance": range(-999, -939),  # one of many negative numbers
        }
    )
    assert [note.split(";")[0] for note in draft_schema(frame).notes] == [
        "'work' has the value ?",
        "'age' has the value -999",
        "'weight' has the value 999",
    ]
    assert "--missing '?'" in draft_schema(frame).notes[0]
    assert draft_schema(frame, Wishes(missing=("?", "-999", "999"))).notes == ()
