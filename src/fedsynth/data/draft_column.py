"""Guess the type of one column from its values, or say why it has none."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedsynth.data.cells import number_in
from fedsynth.data.clock import UNITS, read_seconds, without_zone
from fedsynth.data.column import LARGEST_CLASS_RANGE, LARGEST_RANGE, Column
from fedsynth.data.values import TEXT_DTYPES, as_text

LARGEST_CATEGORIES = 256
LARGEST_CODES = 4096
_LARGEST_DECIMALS = 6
_FEW = 20  # categories, whatever the number of rows
_CODE = re.compile(r"0\d+")
_IDENTIFIER = re.compile(r"(^|[ _.-])(id|nr|no|number)$|[a-z](Id|ID|Nr|No)$", re.IGNORECASE)
_DAYS = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%d.%m.%y", "%m/%d/%y")
_NAMED_DAYS = ("%d-%b-%Y", "%d %b %Y", "%Y%m%d")
_CLOCKS = ("%H:%M", "%H:%M:%S", "%I:%M %p")
_FRACTIONS = ("%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%f")  # as databases export them; cut to seconds
# No style is written down for what pandas itself writes into a CSV file.
_STYLES = (
    *(("date", day) for day in (*_DAYS, *_NAMED_DAYS)),
    *(("time", clock) for clock in _CLOCKS),
    *(("timestamp", f"{day}{mark}{clock}") for day in _DAYS for mark in " T" for clock in _CLOCKS),
    *(("timestamp", style) for style in _FRACTIONS),
)
_USUAL = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", *_FRACTIONS)
_MOMENT = re.compile(
    r"\s*(\d{1,4}[-./:]\d{1,2}([-./:]\d{1,4})?([T ]\d\d?:\d\d(:\d\d(\.\d{1,9})?)?( [AaPp][Mm])?)?"
    r"|\d\d?[- ][A-Za-z]{3}[- ]\d{4}|(19|20)\d\d[01]\d[0-3]\d|\d\d?:\d\d [AaPp][Mm])\s*"
)
_MARKED = re.compile(r"[-+(]?[$€£<>≤≥]? ?[-+]?(\d{1,3}(,\d{3})+(\.\d+)?|\d+([.,]\d+)?) ?[%$€£]?\)?")
_EXACT = 2**53  # above it whole numbers are not told apart as floats


class Undraftable(Exception):
    """Why a column gets no type, as the end of a sentence about it."""


def draft_column(
    name: str, values: pd.Series, *, is_label: bool = False, is_text: bool = False, prefix: int | None = None
) -> Column:
    """The column's type, bounds and categories as its values show them; raises Undraftable where they show none."""
    present = values.dropna()
    missing = len(present) < len(values)
    if present.empty:
        raise Undraftable("has no values")
    if is_text:
        return _codes(name, present.map(as_text).str[:prefix], missing, prefix)
    moment = _moments(name, present, missing)
    if moment is not None:
        return moment
    distinct = pd.unique(present.to_numpy(dtype=object))
    numbers = _numbers(present)
    classes = is_label and len(distinct) <= min(LARGEST_CLASS_RANGE, max(_FEW, len(present) / 2))
    if numbers is None or len(distinct) == 2 or classes:
        return _categories(name, present, distinct, missing)
    named = _IDENTIFIER.search(name) or np.abs(numbers).min() > _EXACT
    if len(distinct) == len(values) > _FEW and named and _are_whole(numbers):
        return Column(name, "id", dtype=_dtype(present))
    return _number(name, numbers, missing, present)


def _numbers(present: pd.Series) -> np.ndarray | None:
    """The column's numbers; None if it holds anything else, such as the code 007."""
    if pd.api.types.is_bool_dtype(present):
        return None
    if pd.api.types.is_numeric_dtype(present):
        return present.to_numpy(dtype=np.float64)
    codes, distinct = pd.factorize(present.map(as_text))
    numbers = np.array([number_in(text) for text in distinct])
    return None if np.isnan(numbers).any() else numbers[codes]


def _are_whole(numbers: np.ndarray) -> bool:
    return bool((numbers == np.floor(numbers)).all())


def _dtype(present: pd.Series) -> str | None:
    """The values' own dtype, None where it is a text."""
    name = str(present.dtype)
    if isinstance(present.dtype, pd.CategoricalDtype):
        inner = str(present.dtype.categories.dtype)
        return "category" if inner in TEXT_DTYPES else f"category[{inner}]"
    return None if name in TEXT_DTYPES else name


def _moments(name: str, present: pd.Series, missing: bool) -> Column | None:
    kinds = {type(value) for value in present.to_numpy(dtype=object)}
    dtype, style = _dtype(present), None
    if pd.api.types.is_datetime64_any_dtype(present):
        kind = "date" if (read_seconds("timestamp", present) % UNITS["day"] == 0).all() else "timestamp"
        dtype = None if dtype == "datetime64[s]" else dtype
    elif kinds <= {datetime.date} or kinds <= {datetime.time}:
        kind = dtype = "date" if datetime.date in kinds else "time"
    elif kinds <= {str} and all(_MOMENT.fullmatch(without_zone(text)) for text in present.unique()):
        fitting = [
            (kind, style)
            for kind, style in _STYLES
            if not np.isnan(read_seconds(kind, pd.Series(present.unique()), style)).any()
        ]
        if not fitting:
            return None
        kind, style = fitting[0]
    else:
        return None
    seconds = read_seconds(kind, present, style)
    grain = _grain(kind, seconds)
    written = None if style in _USUAL else style
    if kind == "time":
        return Column(name, kind, missing=missing, grain=grain, format=written, dtype=dtype)
    whole = UNITS[grain or "day"]
    low, high = (_iso(kind, end) for end in (seconds.min() // whole * whole, seconds.max()))
    return Column(name, kind, min=low, max=high, missing=missing, grain=grain, format=written, dtype=dtype)


def _grain(kind: str, seconds: np.ndarray) -> str | None:
    """The finest unit that the values need and that the range has room for; None for a date's day."""
    if kind == "date":
        return None
    span = seconds.max() - seconds.min()
    for unit, length in UNITS.items():
        needed = unit == "hour" or (seconds % UNITS["minute" if unit == "second" else "hour"] != 0).any()
        if needed and span / length < LARGEST_RANGE["linear"]:
            return unit
    return "day"


def _iso(kind: str, seconds: float) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=float(seconds))
    return f"{moment:%Y-%m-%d}" if kind == "date" else f"{moment:%Y-%m-%d %H:%M:%S}"


def _categories(name: str, present: pd.Series, distinct: np.ndarray, missing: bool) -> Column:
    count, rows = len(distinct), len(present)
    texts = [as_text(value) for value in sorted(distinct, key=_sorting)]
    if count > _FEW and all(_MARKED.fullmatch(text.strip()) and not is_code(text) for text in texts):
        raise Undraftable(
            f"writes numbers with signs, for example {texts[-1]}; write them as plain numbers such as 1234.5, or keep "
            "them as categories with --text-columns"
        )
    if count > _FEW and (count > LARGEST_CODES or count > rows / 2):
        if count == rows and not any(" " in text for text in texts):
            return Column(name, "id", dtype="str")
        raise Undraftable(
            "holds nearly as many different texts as rows, such as names, numbers or free text; group them, keep them "
            "with --text-columns, or make it the client column"
        )
    if count > LARGEST_CATEGORIES or any(is_code(text) for text in texts):
        return _codes(name, pd.Series(texts), missing, None)
    dtype = _dtype(present) or written_dtype(texts)
    if dtype is not None and dtype.startswith("bool"):
        texts = ["False", "True"] if count == 2 else texts
    kind = "binary" if count == 2 else "categorical"
    if isinstance(present.dtype, pd.CategoricalDtype) and present.dtype.ordered:
        kind, texts = "ordinal", [as_text(value) for value in present.dtype.categories if value in distinct]
    return Column(name, kind, categories=tuple(dict.fromkeys(texts)), missing=missing, dtype=dtype)


def is_code(text: str) -> bool:
    """True for digits after a zero, which would be lost if the text were read as a number."""
    return _CODE.fullmatch(text) is not None


def written_dtype(texts: Sequence[str]) -> str | None:
    """The dtype that gives texts back as they are written in a file; None for text itself."""
    if set(texts) <= {"True", "False"}:
        return "bool"
    for dtype, spelled in (
        ("int64", lambda text: str(int(text))),
        ("float64", lambda text: str(float(text))),
    ):
        try:
            if all(spelled(text) == text for text in texts):
                return dtype
        except ValueError:
            continue
    return None


def _codes(name: str, texts: pd.Series, missing: bool, prefix: int | None) -> Column:
    codes = tuple(sorted(set(texts)))
    if len(codes) > LARGEST_CODES:
        raise Undraftable(f"holds more than {LARGEST_CODES} different codes; cut them with --prefix {name}=3")
    return Column(name, "text-code", categories=codes, missing=missing, prefix=prefix)


def _sorting(value: object) -> tuple[int, float, str]:
    """Numbers by size before texts by alphabet."""
    if isinstance(value, int | float | np.number | np.bool_):
        return 0, float(value), ""
    number = number_in(str(value))
    return (1, 0.0, str(value)) if np.isnan(number) else (0, number, str(value))


def _number(name: str, numbers: np.ndarray, missing: bool, present: pd.Series) -> Column:
    if not np.isfinite(numbers).all():
        raise Undraftable("holds infinite numbers; replace or drop them")
    low, high = float(numbers.min()), float(numbers.max())
    scale = "log" if _is_skewed(numbers, low, high) else "linear"
    dtype = _dtype(present)
    if isinstance(present.dtype, pd.CategoricalDtype):
        dtype = str(present.dtype.categories.dtype)
    if _are_whole(numbers):
        if high - low < LARGEST_RANGE[scale]:
            usual = None if dtype == "Int64" else dtype
            return Column(
                name, "integer", min=int(low), max=int(high), missing=missing, scale=scale, dtype=usual
            )
        whole = dtype or "Int64"
        return Column(
            name, "continuous", min=low, max=high, missing=missing, scale=scale, decimals=0, dtype=whole
        )
    usual = None if dtype == "float64" else dtype
    if low == high:
        return Column(name, "categorical", categories=(as_text(low),), missing=missing, dtype="float64")
    decimals = _decimals(numbers)
    return Column(
        name, "continuous", min=low, max=high, decimals=decimals, missing=missing, scale=scale, dtype=usual
    )


def _is_skewed(numbers: np.ndarray, low: float, high: float) -> bool:
    """Amounts such as capital gain: three quarters of the rows lie in the lowest 5% of a wide range."""
    return high - low > 100 and bool(np.quantile(numbers, 0.75) <= low + (high - low) / 20)


def _decimals(numbers: np.ndarray) -> int | None:
    for decimals in range(1, _LARGEST_DECIMALS + 1):
        if np.array_equal(numbers, np.round(numbers, decimals)):
            return decimals
    return None
