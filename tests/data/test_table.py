import gzip

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.schema import Column, Schema
from fedsynth.data.table import Table, check
from fedsynth.data.table_files import read_table, write_table
from fedsynth.errors import BadInput

FRAME = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
SCHEMA = Schema(
    columns=(
        Column("a", "integer", min=0, max=9),
        Column("b", "categorical", categories=("x", "None", "NA"), missing=True),
    )
)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_a_written_table_is_read_as_it_was(tmp_path, name):
    write_table(FRAME, tmp_path / name)
    back = read_table(tmp_path / name)
    assert back["a"].tolist() == [1, 2]
    assert back["b"].isna().tolist() == [False, True]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"a,b\n", "has no rows"),
        ("t.csv", b"a,a\n1,2\n", "column 'a' is there twice"),
        ("t.csv", b"a;b\n1;2,5\n", "has ';' between the names; save it with commas"),
        ("t.csv", b"a\tb\n1\t2\n", "between the names; save it with commas"),
        ("t.csv", b"a\n\xff\xfe\n", "line 2 is not UTF-8"),
        ("t.csv", b"a,b\n" + b"1,x\n" * 9 + b"1,\xe9\n", "line 11 is not UTF-8"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,x\n1,\xe9\n", mtime=0), "line 3 is not UTF-8"),
        ("t.csv", b"a,b\n1,2\n1,2,3,4\n", "cannot be read as .csv"),
        (
            "t.csv",
            b"a,b\n1,2,3\n4,5,6\n",
            "cannot be read as .csv, because rows have more cells than the first line",
        ),
        ("t.csv.gz", b"a,b\n1,2\n", "cannot be read as .csv.gz"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n" * 100, mtime=0)[:30], "cannot be read as .csv.gz"),
        ("t.parquet", b"no parquet", "cannot be read as .parquet"),
        ("t.xlsx", b"", "unknown kind of table '.xlsx'"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_sentence(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput) as refused:
        read_table(tmp_path / name)
    assert told in str(refused.value) and name in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_name_there_twice_is_told_and_nothing_else(tmp_path):
    (tmp_path / "t.csv").write_text("a,a\n1,2\n")
    with pytest.raises(BadInput, match=r"^\S+t\.csv: column 'a' is there twice; rename one$"):
        read_table(tmp_path / "t.csv")


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,NA\n")
    frame = read_table(tmp_path / "t.csv", SCHEMA)
    assert list(frame.columns) == ["a", "b"] and check(frame, SCHEMA) == []


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadInput, match="there is no such file"):
        read_table(tmp_path / "t.csv")


def test_a_category_that_looks_like_missing_or_like_a_number_is_kept_under_a_schema(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,code,b\n1,007,NA\n2,7,\n")
    code = Column("code", "categorical", categories=("007", "7"))
    schema = Schema(columns=(*SCHEMA.columns, code))
    frame = read_table(path, schema)
    assert frame["code"].tolist() == ["007", "7"]
    assert frame["b"].tolist()[0] == "NA" and frame["b"].isna().tolist() == [False, True]
    assert check(frame, schema) == []


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    class Broken(pd.DataFrame):
        def to_csv(self, path, **_):
            path.write_text("half")
            raise OSError(28, "No space left on device")

    (tmp_path / "t.csv").write_text("old")
    with pytest.raises(BadInput, match="No space left"):
        write_table(Broken(FRAME), tmp_path / "t.csv")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("t.csv", "old")]


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (FRAME.drop(columns="a"), "column 'a' is missing; add it"),
        (FRAME.rename(columns={"a": "aa"}), "column 'a' is missing; rename 'aa'?"),
        (FRAME.assign(a=[1, 30]), "column 'a': 1 of 2 rows lie outside 0 to 9"),
        (FRAME.assign(a=[1, None]), "column 'a': 1 of 2 rows are missing"),
        (FRAME.assign(a=["one", "two"]), "column 'a': 2 of 2 rows are no numbers"),
        (FRAME.assign(b=["y", "x"]), "for example 'y'"),
        (FRAME.iloc[:0], "has no rows"),
        (pd.concat([FRAME, FRAME[["a"]]], axis=1), "column 'a' is there twice"),
        (FRAME.rename(columns={"a": 0}), "column name 0 is no text"),
    ],
)
def test_what_does_not_fit_the_schema_is_told(frame, told):
    assert check(FRAME, SCHEMA) == []
    assert any(told in problem for problem in check(frame, SCHEMA))


def test_the_client_column_may_be_there_or_not():
    schema = SCHEMA.with_client("person")
    assert check(FRAME, schema) == check(FRAME.assign(person="p"), schema) == []


def test_columns_that_the_schema_leaves_out_may_stay_in_the_table():
    assert check(FRAME.assign(c=1), SCHEMA) == []


def test_identifiers_count_through_all_parts_of_a_sample():
    table = Table(Schema(columns=(Column("key", "id"), Column("a", "integer", min=0, max=9))))
    part = table.frame({"a": np.array([3.0, 4.0])}, 2)
    joined = table.numbered(table.join([part, part]))
    assert joined["key"].astype(str).tolist() == ["1", "2", "3", "4"] and joined["a"].tolist() == [3, 4, 3, 4]
