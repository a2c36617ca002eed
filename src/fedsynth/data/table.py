"""Tables in and out: CSV and Parquet, and whether a table fits its schema."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

from fedsynth.data.atomic import replacing
from fedsynth.data.schema import Schema
from fedsynth.data.values import read_values
from fedsynth.errors import BadInput, nearest

EXTENSIONS = (".csv", ".csv.gz", ".parquet")
# "None" and "?" are not here: they are often a category. A category of the schema is never missing.
MISSING_TEXTS = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "NULL", "null")
_OTHER_MARKS = (";", "\t", "|")
_AS_WRITTEN: dict[str, Any] = {
    "keep_default_na": False, "encoding": "utf-8", "low_memory": False, "index_col": False,
}  # fmt: skip


def read_table(path: Path | str, schema: Schema | None = None, *, as_written: bool = False) -> pd.DataFrame:
    """Read a CSV, CSV.gz or Parquet file.

    With a schema, the columns of categories are kept as they are written in a CSV file ("007" stays "007");
    `as_written` keeps all columns so, because a type that is guessed from a whole column lets one row change the rest.
    """
    source = Path(path)
    extension = _extension(source)
    if not source.is_file():
        raise BadInput(f"{source}: there is no such file; check the path")
    try:
        frame = _read_parquet(source) if extension == ".parquet" else _read_csv(source, schema, as_written)
    except UnicodeDecodeError as error:
        raise BadInput(f"{source}: is not UTF-8 (byte {error.start}); save it again as UTF-8") from None
    except BadInput:
        raise
    except pd.errors.EmptyDataError:
        raise BadInput(f"{source}: is empty; expected a first line with the names of the columns") from None
    except (OSError, EOFError, ValueError, pd.errors.ParserWarning) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadInput(f"{source}: cannot be read as {extension} ({reason}); check the file") from None
    if not len(frame):
        raise BadInput(f"{source}: has no rows; expected at least one")
    return frame


def write_table(frame: pd.DataFrame, path: Path | str) -> None:
    """Write a CSV, CSV.gz or Parquet file, whole or not at all."""
    target = Path(path)
    extension = _extension(target)
    with replacing(target) as temporary:
        if extension == ".parquet":
            frame.to_parquet(temporary, index=False)
        else:
            frame.to_csv(temporary, index=False, compression="gzip" if extension == ".csv.gz" else None)


def check(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """Everything in a table that does not fit its schema, a sentence each; empty if it fits.

    >>> from fedsynth.data.schema import Column
    >>> schema = Schema(columns=(Column("age", "integer", min=0, max=99),))
    >>> check(pd.DataFrame({"agee": [3]}), schema)
    ["column 'age' is missing; rename 'agee'?", "column 'agee' is not in the schema; drop it or add it there"]
    """
    problems = check_columns(frame, schema)
    if not len(frame):
        problems.append("the table has no rows; expected at least one")
    for column in schema.columns:
        if column.name in schema.names and list(frame.columns).count(column.name) == 1:
            problems += read_values(column, frame[column.name]).problems
    return problems


def check_columns(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """Columns that are missing, not in the schema, or there twice. The client column may be there or not."""
    unnamed = [name for name in frame.columns if not isinstance(name, str)]
    if unnamed:
        return [f"column name {unnamed[0]!r} is no text; give each column a name"]
    present = list(frame.columns)
    twice = sorted({name for name in present if present.count(name) > 1})
    problems = [f"column {name!r} is there twice; rename or drop one" for name in twice]
    extra = [name for name in present if name not in schema.names and name != schema.client]
    for name in schema.names:
        if name not in present:
            problems.append(f"column {name!r} is missing; {_rename(name, extra)}")
    return problems + [
        f"column {name!r} is not in the schema; drop it or add it there" for name in dict.fromkeys(extra)
    ]


def _rename(name: str, extra: list[str]) -> str:
    told = nearest(name, extra)
    return (
        f"rename {told.split(chr(39))[1]!r}?"
        if told.startswith("did you mean")
        else "add it or take it out of the schema"
    )


def _extension(path: Path) -> str:
    for extension in EXTENSIONS:
        if path.name.lower().endswith(extension):
            return extension
    raise BadInput(
        f"{path}: unknown kind of table {path.suffix!r}; expected a name ending in {', '.join(EXTENSIONS)}"
    )


def _read_parquet(path: Path) -> pd.DataFrame:
    frame = pd.read_parquet(path)
    if isinstance(frame.index, pd.RangeIndex) and frame.index.name is None:
        return frame
    named = frame.index.name is not None or isinstance(frame.index, pd.MultiIndex)
    return frame.reset_index(drop=not named)


def _read_csv(path: Path, schema: Schema | None, as_written: bool) -> pd.DataFrame:
    names = _header(path)
    other = [mark for mark in _OTHER_MARKS if mark in names[0]] if len(names) == 1 else []
    if other:  # as spreadsheets write it where a comma is the decimal point
        raise BadInput(
            f"{path}: its first line has {other[0]!r} between the names; save it with commas between the columns and "
            "a point in numbers"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:  # pandas would rename the second one without a word
        raise BadInput(f"{path}: column {twice[0]!r} is there twice; rename one")
    words = (
        {}
        if schema is None
        else {column.name: column.labels for column in schema.columns if not column.numeric}
    )
    absent = {name: [text for text in MISSING_TEXTS if text not in words.get(name, ())] for name in names}
    kept = {*words, *(() if schema is None else (schema.client,)), *(names if as_written else ())}
    types = {name: "str" for name in names if name in kept}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header: else cut off
        return pd.read_csv(path, dtype=types, na_values=absent, **_AS_WRITTEN)


def _header(path: Path) -> list[str]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        first = pd.read_csv(file, header=None, nrows=1, dtype="str", keep_default_na=False, encoding="utf-8")
    return [str(name) for name in first.iloc[0]]
