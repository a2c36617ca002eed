"""Tables in and out: CSV and Parquet, and whether a table fits its schema."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.data.atomic import replacing
from fedsynth.data.column import NUMBERS
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

    With a schema, all but its columns of numbers are kept as they are written in a CSV file ("007" stays "007");
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
    ["column 'age' is missing; rename 'agee'?"]
    """
    problems = check_columns(frame, schema)
    if not len(frame):
        problems.append("the table has no rows; expected at least one")
    numbers = {}
    for name in schema.sampled_names:
        column = schema.column(name)
        if column.type != "id" and list(frame.columns).count(name) == 1:
            values = read_values(column, frame[name])
            problems += values.problems
            numbers[name] = values.numbers
    return problems + broken_rules(schema, numbers)


def broken_rules(schema: Schema, numbers: Mapping[str, np.ndarray]) -> list[str]:
    """A sentence for each constraint that rows break, by the numbers of the columns that are there."""
    problems = []
    for rule in schema.rules:
        if all(name in numbers for name in rule.columns):
            broken = ~rule.holds(numbers)
            if broken.any():
                breach = f"constraint {rule.text!r}: {int(broken.sum())} of {len(broken)} rows break it"
                problems.append(f"{breach}; correct or drop them, or take the constraint out of the schema")
    return problems


def valid_rows(
    schema: Schema, numbers: Mapping[str, np.ndarray], columns: set[str] | None = None
) -> np.ndarray:
    """Which rows keep the constraints (on some columns), with what these compute within its bounds."""
    rules = [rule for rule in schema.rules if columns is None or columns & {*rule.columns}]
    kept = np.logical_and.reduce([rule.holds(numbers) for rule in rules])
    for name, rule in schema.derived.items():
        if rule in rules:
            column, values = schema.column(name), numbers[name]
            inside = (values >= column.bounds[0]) & (values <= column.bounds[1])
            kept &= inside | (np.isnan(values) & column.missing)
    return kept


def check_columns(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """Columns that are missing or there twice. Those that the schema leaves out may be there or not."""
    unnamed = [name for name in frame.columns if not isinstance(name, str)]
    if unnamed:
        return [f"column name {unnamed[0]!r} is no text; give each column a name"]
    present = list(frame.columns)
    twice = sorted({name for name in schema.sampled_names if present.count(name) > 1})
    problems = [f"column {name!r} is there twice; rename or drop one" for name in twice]
    extra = [name for name in present if name not in schema.sampled_names and name != schema.client]
    for name in schema.names:
        if name not in present:
            problems.append(f"column {name!r} is missing; {_rename(name, extra)}")
    return problems


def _rename(name: str, extra: list[str]) -> str:
    suggestion = nearest(name, extra)
    return (
        f"rename {suggestion.split(chr(39))[1]!r}?"
        if suggestion.startswith("did you mean")
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
        else {column.name: column.categories or () for column in schema.columns if column.type not in NUMBERS}
    )
    own = {} if schema is None else {column.name: column.missing_values for column in schema.columns}
    absent = {
        name: [text for text in (*MISSING_TEXTS, *own.get(name, ())) if text not in words.get(name, ())]
        for name in names
    }
    kept = {*words, *(() if schema is None else (schema.client,)), *(names if as_written else ())}
    types = {name: "str" for name in names if name in kept}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header: else cut off
        return pd.read_csv(path, dtype=types, na_values=absent, **_AS_WRITTEN)


def _header(path: Path) -> list[str]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        first = pd.read_csv(file, header=None, nrows=1, dtype="str", keep_default_na=False, encoding="utf-8")
    return [str(name) for name in first.iloc[0]]
