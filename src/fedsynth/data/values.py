"""A table's column as numbers or places of categories and back as values, with what does not fit its schema.

A value that does not fit is a problem to report; in a paid-for column, where types, bounds and categories learned under
noise need not cover every row, it is made to fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsynth.data.clock import read_seconds, write_seconds
from fedsynth.data.column import CATEGORIES, Column, category_value
from fedsynth.data.encode import numbers_at
from fedsynth.late import pd

if TYPE_CHECKING:
    from fedsynth.data.schema import Schema

TEXT_DTYPES = ("str", "string", "object")
_SHOWN = 8  # categories listed in a message
OTHER = "other"  # the category for whatever was too rare to be shown
FITS, ABSENT, UNFIT = 0, 1, 2


@dataclass(frozen=True)
class Values:
    """A column as numbers: between bounds, grains of moments, or places of categories; NaN where missing."""

    numbers: np.ndarray  # [rows] float64
    problems: tuple[str, ...]


def read_values(column: Column, series: pd.Series) -> Values:
    """Numbers of the column's rows; a row that does not fit the schema is NaN and reported as a problem.

    >>> read_values(Column("sex", "categorical", categories=("F", "M")), pd.Series(["M", "F"])).numbers
    array([1., 0.])
    >>> read_values(Column("age", "integer", min=0, max=99), pd.Series([7, 120])).problems[0]
    "column 'age': 1 of 2 rows lie outside 0 to 99, for example 120; correct the rows or widen the ... bounds"
    """
    absent = is_missing(column, series)
    read = _moments if column.moment else _numbers if column.numeric else _places
    numbers, problems = read(column, series, absent)
    if absent.any() and not column.missing:
        advice = "fill or drop them, or write 'missing': true in the schema"
        problems = [*problems, f"{_share(absent)} are missing, which the schema does not allow; {advice}"]
    return Values(numbers, tuple(f"column {column.name!r}: {problem}" for problem in problems))


def is_missing(column: Column, series: pd.Series) -> np.ndarray:
    """Which values are missing: empty, or one of the texts that the schema says to mean that.

    >>> is_missing(Column("age", "integer", min=0, max=99, missing_values=("-999",)), pd.Series([3.0, -999, np.nan]))
    array([False,  True,  True])
    """
    absent = series.isna().to_numpy(dtype=bool)
    texts = column.missing_values if pd.api.types.is_numeric_dtype(series) else ("", *column.missing_values)
    return absent | (places(series, texts) >= 0) if texts else absent


def write_values(column: Column, numbers: np.ndarray) -> pd.Series:
    """Values out of numbers as `read_values` gives them, in the schema's dtype; NaN is a missing value.

    By default whole numbers are Int64, others float64, moments datetimes (a time of day: a text), categories texts.

    >>> write_values(Column("a", "integer", min=0, max=9, dtype="int8"), np.array([3.0])).dtype
    dtype('int8')
    """
    missing = np.isnan(numbers)
    if column.moment:
        seconds = column.first_second + numbers * column.grain_seconds
        return write_seconds(seconds, column.dtype, column.style)
    if column.type in CATEGORIES:
        return _categories(column, np.where(missing, -1, numbers).astype(np.int64))
    dtype = column.dtype or ("float64" if column.type == "continuous" else "Int64")
    if dtype.startswith("float"):
        return pd.Series(numbers).astype(pd.api.types.pandas_dtype(dtype))
    if dtype in TEXT_DTYPES:
        return pd.Series(numbers).astype("Int64").astype("str").astype(pd.api.types.pandas_dtype(dtype))
    whole = pd.arrays.IntegerArray(np.where(missing, 0, numbers).astype(np.int64), missing)
    return pd.Series(whole).astype(pd.api.types.pandas_dtype(nullable(dtype) if column.missing else dtype))


def _categories(column: Column, codes: np.ndarray) -> pd.Series:
    """Texts, numbers or truth values of categories by their places, -1 where missing."""
    dtype = column.dtype or "str"
    inner = dtype.removeprefix("category").strip("[]") or "str"
    kinds = [category_value(text, inner) for text in column.labels]
    if dtype.startswith("category"):
        listed = pd.Index(kinds, dtype=inner)
        return pd.Series(pd.Categorical.from_codes(codes, listed, ordered=column.type == "ordinal"))
    if dtype in TEXT_DTYPES:
        return pd.Series(pd.array(kinds, dtype="str").take(codes, allow_fill=True)).astype(
            pd.api.types.pandas_dtype(dtype)
        )
    values = pd.Series(np.array([*kinds, None], dtype=object)[codes], dtype=object)
    if not column.missing:
        return values.astype(pd.api.types.pandas_dtype(dtype))
    return values.astype(pd.api.types.pandas_dtype(dtype if dtype.startswith("float") else nullable(dtype)))


def nullable(dtype: str) -> str:
    """Return the name of the dtype that can hold a missing value."""
    return "boolean" if dtype.startswith("bool") else dtype.replace("uint", "UInt").replace("int", "Int", 1)


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


def places(
    texts: np.ndarray | pd.Series,
    categories: tuple[str, ...],
    *,
    exact: bool = False,
    prefix: int | None = None,
) -> np.ndarray:
    """Where each value stands in the list of categories, int64; -1 if missing, -2 if not in the list.

    `exact` for codes, which have one spelling; of a value only the first `prefix` characters count.

    >>> places(np.array(["b", "a", None, "c"], dtype=object), ("a", "b")).tolist()
    [1, 0, -1, -2]
    """
    codes, distinct = pd.factorize(np.asarray(texts, dtype=object))
    known = {category: place for place, category in enumerate(categories)}
    # "1.0" and "TRUE" in a file mean "1" and "true", unless these spellings are categories themselves.
    loose = {_spelling(category, categories): place for place, category in enumerate(categories)}
    distinct_places = []
    for value in distinct:
        text = as_text(value, categories)
        text = text if text in known else text[:prefix]
        near = -2 if exact else loose.get(_spelling(text, categories), -2)
        distinct_places.append(known.get(text, near))
    return np.array([*distinct_places, -1], dtype=np.int64)[codes]


def category_places(column: Column, series: pd.Series) -> np.ndarray:
    """Where each value stands among the column's categories; -1 if missing, -2 if it is none of them."""
    codes = places(series, column.labels, exact=column.type == "text-code", prefix=column.prefix)
    return np.where(is_missing(column, series), -1, codes)


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
    codes = category_places(column, series)
    numbers = np.where(codes < 0, np.nan, codes.astype(np.float64))
    unknown = codes == -2
    if not unknown.any():
        return numbers, []
    listed = ", ".join(column.labels[:_SHOWN]) + (", ..." if len(column.labels) > _SHOWN else "")
    example = str(series.to_numpy(dtype=object)[unknown][0])
    advice = f"expected {listed}; correct the rows or add the value to the schema"
    return numbers, [
        f"{_share(unknown)} hold a value outside its categories, for example {example!r}; {advice}"
    ]


def plain_numbers(series: pd.Series) -> np.ndarray:
    """The numbers that values are or write, float64; NaN where there is none."""
    plain = series.astype(object) if isinstance(series.dtype, pd.CategoricalDtype) else series
    return pd.to_numeric(plain, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan, copy=True)


def grains(column: Column, series: pd.Series) -> np.ndarray:
    """Whole grains since the first moment of the column, float64; NaN where the value is no moment."""
    seconds = read_seconds(column.type, series, column.format)
    return np.floor((seconds - column.first_second) / column.grain_seconds)


def _moments(column: Column, series: pd.Series, absent: np.ndarray) -> tuple[np.ndarray, list[str]]:
    numbers = np.where(absent, np.nan, grains(column, series))
    written = f"written as {column.style}" if column.format else "in ISO 8601"
    tests = {
        f"are no {column.type} {written}": (np.isnan(numbers) & ~absent, "correct the rows or the 'format'"),
        f"lie outside {column.text(column.bounds[0])} to {column.text(column.bounds[1])}": (
            (numbers < column.bounds[0]) | (numbers > column.bounds[1]),
            "correct the rows or widen the public bounds",
        ),
    }
    return _tested(numbers, series, tests)


def _numbers(column: Column, series: pd.Series, absent: np.ndarray) -> tuple[np.ndarray, list[str]]:
    if pd.api.types.is_datetime64_any_dtype(series) or pd.api.types.is_timedelta64_dtype(series):
        advice = "use type 'date' or 'timestamp'"
        return np.full(len(series), np.nan), [
            f"holds {series.dtype} where {column.type} numbers are expected; {advice}"
        ]
    numbers = np.where(absent, np.nan, plain_numbers(series))
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
    return _tested(numbers, series, tests)


def _tested(
    numbers: np.ndarray, series: pd.Series, tests: dict[str, tuple[np.ndarray, str]]
) -> tuple[np.ndarray, list[str]]:
    """The numbers without those that fail a test, and a sentence for each test that fails."""
    problems = []
    for complaint, (wrong, advice) in tests.items():
        if wrong.any():
            example = series.to_numpy(dtype=object)[wrong][0]
            problems.append(f"{_share(wrong)} {complaint}, for example {_short(example)}; {advice}")
            numbers[wrong] = np.nan
    return numbers, problems


def _short(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    return f"{value:.10g}" if isinstance(value, int | float | np.number) else repr(value)


def _share(wrong: np.ndarray) -> str:
    return f"{int(wrong.sum())} of {len(wrong)} rows"


def conform(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The table with every value of a `paid` column made to fit it, row by row.

    Numbers are moved to the nearest bound, and rounded in an integer column. What is no number counts as missing; a
    category that the schema does not list is named "other". Where the schema has no such place for it, a value becomes
    the middle of the bounds, or the first category: a schema that leaves a place out has learned that hardly any row
    needs it. A row that then breaks a constraint has the values concerned missing, where they may be; a derived column
    is left out, because it is computed. Columns that are public or inferred are left alone: there a value outside is a
    mistake to report.
    """
    paid = [c for c in schema.columns if schema.provenance.get(c.name) == "paid" and c.name in frame.columns]
    if not paid:
        return frame
    changed = {column.name: _conformed(column, frame[column.name]) for column in paid}
    fitting = frame.assign(**changed).drop(columns=[name for name in schema.derived if name in changed])
    return _ruled(fitting, schema, [column for column in paid if column.missing]) if schema.rules else fitting


def _ruled(frame: pd.DataFrame, schema: Schema, paid: list[Column]) -> pd.DataFrame:
    """The table with values missing where what was moved to a bound breaks a constraint."""
    for rule in schema.rules:
        if all(name in frame.columns for name in rule.columns):
            columns = [schema.column(name) for name in rule.columns]
            broken = ~rule.holds({c.name: read_values(c, frame[c.name]).numbers for c in columns})
            tied = [column.name for column in paid if column in columns]
            frame = frame.assign(**{name: frame[name].mask(broken) for name in tied})
    return frame


def fit_of(column: Column, values: pd.Series) -> np.ndarray:
    """Whether each value has a place in the column (FITS), is missing (ABSENT), or has none (UNFIT), as int64.

    A number beyond the bounds has its place, at the bound.

    >>> fit_of(Column("sex", "binary", categories=("F", "M")), pd.Series(["M", None, "x"])).tolist()
    [0, 1, 2]
    """
    unfit = np.isnan(_paid_numbers(column, values)) if column.numeric else category_places(column, values) < 0
    return np.where(is_missing(column, values), ABSENT, np.where(unfit, UNFIT, FITS)).astype(np.int64)


def _conformed(column: Column, values: pd.Series) -> pd.Series:
    fit = fit_of(column, values)
    if column.numeric:
        numbers = np.where(fit == FITS, np.clip(_paid_numbers(column, values), *column.bounds), np.nan)
        if column.whole:
            numbers = np.round(numbers)
        if not column.missing:
            numbers = np.where(fit == FITS, numbers, numbers_at(column, np.array([0.5])))
        if not column.moment:
            return pd.Series(numbers, values.index)
        return write_values(column, numbers).set_axis(values.index)
    rest = OTHER if OTHER in column.labels else None if column.missing else column.labels[0]
    absent = None if column.missing else rest
    spelled = np.array([*column.labels, absent, rest], dtype=object)  # as listed, ABSENT, UNFIT
    count = len(column.labels)
    at = np.where(fit == FITS, category_places(column, values), count + (fit == UNFIT))
    return pd.Series(spelled[at], values.index, dtype=object)


def _paid_numbers(column: Column, values: pd.Series) -> np.ndarray:
    return grains(column, values) if column.moment else plain_numbers(values)
