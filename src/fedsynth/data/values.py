"""Read a table's column against its schema: its numbers or places of categories, and what does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.data.column import Column

_SHOWN = 8  # categories listed in a message


@dataclass(frozen=True)
class Values:
    """A column as numbers: values between bounds, or places in the list of categories; NaN where missing."""

    numbers: np.ndarray  # [rows] float64
    problems: tuple[str, ...]


def read_values(column: Column, series: pd.Series) -> Values:
    """Numbers of the column's rows; a row that does not fit the schema is NaN and reported as a problem.

    >>> read_values(Column("sex", "categorical", categories=("F", "M")), pd.Series(["M", "F"])).numbers
    array([1., 0.])
    >>> read_values(Column("age", "integer", min=0, max=99), pd.Series([7, 120])).problems[0]
    "column 'age': 1 of 2 rows lie outside 0 to 99, for example 120; correct the rows or widen the ... bounds"
    """
    absent = series.isna().to_numpy(dtype=bool)
    read = _numbers if column.numeric else _places
    numbers, problems = read(column, series, absent)
    if absent.any() and not column.missing:
        advice = "fill or drop them, or write 'missing': true in the schema"
        problems = [*problems, f"{_share(absent)} are missing, which the schema does not allow; {advice}"]
    return Values(numbers, tuple(f"column {column.name!r}: {problem}" for problem in problems))


def as_text(value: Any, categories: tuple[str, ...] = ()) -> str:
    """A value as its category is written: 1.0 as '1' (a missing value turns whole numbers into floats).

    >>> as_text(1.0), as_text("a"), as_text(True), as_text(True, ("0", "1")), as_text(True, ("False", "True"))
    ('1', 'a', 'true', '1', 'True')
    """
    if isinstance(value, bool | np.bool_):
        spellings = ("true", "True", "TRUE", "1") if value else ("false", "False", "FALSE", "0")
        return next((text for text in spellings if text in categories), spellings[0])
    if isinstance(value, float | np.floating) and float(value).is_integer():
        whole = str(int(value))
        return str(value) if str(value) in categories else whole
    return str(value)


def places(texts: np.ndarray | pd.Series, categories: tuple[str, ...]) -> np.ndarray:
    """Where each value stands in the list of categories, int64; -1 if missing, -2 if not in the list.

    >>> places(np.array(["b", "a", None, "c"], dtype=object), ("a", "b")).tolist()
    [1, 0, -1, -2]
    """
    codes, distinct = pd.factorize(np.asarray(texts, dtype=object))
    known = {category: place for place, category in enumerate(categories)}
    # "1.0" and "TRUE" in a file mean "1" and "true", unless these spellings are categories themselves.
    loose = {_spelling(category, categories): place for place, category in enumerate(categories)}
    found = []
    for value in distinct:
        text = as_text(value, categories)
        found.append(known[text] if text in known else loose.get(_spelling(text, categories), -2))
    return np.array([*found, -1], dtype=np.int64)[codes]


def _spelling(text: str, categories: tuple[str, ...]) -> str:
    """One spelling for all ways to write a number or a truth value; codes such as '007' stay as they are."""
    if text.lower() in ("true", "false"):
        return as_text(text.lower() == "true", categories).lower()
    plain = text.lstrip("+-")
    if not plain[:1].isdigit() or (plain[:1] == "0" and plain[1:2].isdigit()):
        return text
    try:
        return as_text(float(text))
    except ValueError:
        return text


def _places(column: Column, series: pd.Series, absent: np.ndarray) -> tuple[np.ndarray, list[str]]:
    found = places(series, column.labels)
    numbers = np.where(found < 0, np.nan, found.astype(np.float64))
    unknown = found == -2
    if not unknown.any():
        return numbers, []
    listed = ", ".join(column.labels[:_SHOWN]) + (", ..." if len(column.labels) > _SHOWN else "")
    example = str(series.to_numpy(dtype=object)[unknown][0])
    advice = f"expected {listed}; correct the rows or add the value to the schema"
    return numbers, [
        f"{_share(unknown)} hold a value outside its categories, for example {example!r}; {advice}"
    ]


def _numbers(column: Column, series: pd.Series, absent: np.ndarray) -> tuple[np.ndarray, list[str]]:
    if pd.api.types.is_datetime64_any_dtype(series) or pd.api.types.is_timedelta64_dtype(series):
        advice = "convert it to a number such as days since a public date"
        return np.full(len(series), np.nan), [
            f"holds {series.dtype} where {column.type} numbers are expected; {advice}"
        ]
    plain = series.astype(object) if isinstance(series.dtype, pd.CategoricalDtype) else series
    numbers = pd.to_numeric(plain, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    tests = {
        f"are no numbers, but the schema says {column.type}": (
            np.isnan(numbers) & ~absent,
            "correct the rows or the type",
        ),
        "hold a fraction in an integer column": (
            (column.type == "integer") & np.isfinite(numbers) & (numbers != np.floor(numbers)),
            "use type 'continuous'",
        ),
        f"lie outside {_short(column.bounds[0])} to {_short(column.bounds[1])}": (
            (numbers < column.bounds[0]) | (numbers > column.bounds[1]),
            "correct the rows or widen the public bounds",
        ),
    }
    problems = []
    for told, (wrong, advice) in tests.items():
        if wrong.any():
            example = series.to_numpy(dtype=object)[wrong][0]
            problems.append(f"{_share(wrong)} {told}, for example {_short(example)}; {advice}")
            numbers[wrong] = np.nan
    return numbers, problems


def _short(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    return f"{value:.10g}" if isinstance(value, int | float | np.number) else repr(value)


def _share(wrong: np.ndarray) -> str:
    return f"{int(wrong.sum())} of {len(wrong)} rows"
