"""One column of a public schema: its type and its bounds or categories, checked all at once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedsynth.data.clock import DEFAULT_GRAINS, UNITS, grain_seconds, seconds_of, write_seconds
from fedsynth.errors import BadInput, nearest

NUMBERS = ("integer", "continuous")
MOMENTS = ("date", "time", "timestamp")
CATEGORIES = ("categorical", "ordinal", "binary", "text-code")
TYPES = (*CATEGORIES, *NUMBERS, *MOMENTS, "id")
SCALES = ("linear", "log")
DEFAULT_BINS = 32
_LONGEST_SHOWN = 40  # characters of a category
LARGEST_CLASS_RANGE = 100  # an integer label with more values than this is a quantity, not a class
# A position is a float32 number in [0, 1]: with more values than this, neighbors would share one.
LARGEST_RANGE = {"linear": 2**23, "log": 2**20}
_NUMBER_DTYPES = r"(u?int|U?Int)(8|16|32|64)|[fF]loat(32|64)"
_TEXT_DTYPES = "str|string|object"
_DTYPES = {  # of the values that come back, by type of column
    **dict.fromkeys(NUMBERS, _NUMBER_DTYPES),
    **dict.fromkeys(CATEGORIES, rf"(category\[)?({_NUMBER_DTYPES}|bool(ean)?)\]?|category|{_TEXT_DTYPES}"),
    "text-code": f"category|{_TEXT_DTYPES}",
    "date": r"date|datetime64\[.+\]",
    "time": "time",
    "timestamp": r"datetime64\[.+\]",
    "id": rf"{_NUMBER_DTYPES}|{_TEXT_DTYPES}",
}
_ONLY_FOR = {  # keys that some types have a use for
    "min": (*NUMBERS, *MOMENTS),
    "max": (*NUMBERS, *MOMENTS),
    "decimals": NUMBERS,
    "categories": CATEGORIES,
    "grain": MOMENTS,
    "format": MOMENTS,
    "prefix": ("categorical", "ordinal", "text-code"),
}


@dataclass(frozen=True)
class Column:
    """The public description of a column. Nothing here may be read from private rows for free.

    `scale="log"` spreads small values of a skewed amount (capital gain): positions are log1p of the distance
    from `min`. `bins` is the resolution of the model's head for an ordered column. docs/schema.md has each key.

    >>> Column("age", "integer", min=17, max=90).values
    74
    >>> Column("sex", "categorical", categories=("F", "M")).labels
    ('F', 'M')
    """

    name: str
    type: str
    categories: tuple[str, ...] | None = None
    min: float | str | None = None
    max: float | str | None = None
    decimals: int | None = None
    missing: bool = False
    scale: str = "linear"
    bins: int | None = None
    grain: str | None = None  # the unit that moments are counted in, "15 minutes"
    format: str | None = None  # how moments are written as texts, "%d.%m.%Y"; ISO 8601 by default
    prefix: int | None = None  # of a code only so many characters count
    dtype: str | None = None  # pandas' type of the values that come back
    missing_values: tuple[str, ...] = ()  # texts and numbers that mean a missing value, "?" or "-999"

    def __post_init__(self) -> None:
        if self.type == "binary" and self.categories is None:
            object.__setattr__(self, "categories", ("0", "1"))
            object.__setattr__(self, "dtype", self.dtype or "int64")
        if self.type == "time":
            object.__setattr__(self, "min", "00:00" if self.min is None else self.min)
            object.__setattr__(self, "max", "23:59:59" if self.max is None else self.max)
        problems = _problems(self)
        if problems:
            raise BadInput("; ".join(problems))

    @property
    def numeric(self) -> bool:
        """True if the values are numbers or moments between bounds, False if they are one of the categories."""
        return self.type in (*NUMBERS, *MOMENTS)

    @property
    def moment(self) -> bool:
        """True if the values are dates or times, which are encoded as grains since `min`."""
        return self.type in MOMENTS

    @property
    def whole(self) -> bool:
        """True if the values are encoded as whole numbers between bounds."""
        return self.numeric and self.type != "continuous"

    @property
    def ordered(self) -> bool:
        """True if values have a position in [0, 1] besides their bin."""
        return self.numeric or self.type == "ordinal"

    @property
    def values(self) -> int | None:
        """How many values there can be; None for a continuous column."""
        if self.type == "continuous":
            return None
        return int(self.bounds[1] - self.bounds[0]) + 1 if self.numeric else len(self.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories, or the values of a column of whole numbers or moments written out."""
        if self.categories is not None:
            return self.categories
        low, high = self.bounds
        return tuple(self.text(value) for value in range(int(low), int(high) + 1))

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and largest number of a numeric column; of moments, in grains since the first."""
        if self.moment:
            return 0, (self._seconds(self.max) - self.first_second) // self.grain_seconds
        assert isinstance(self.min, int | float) and isinstance(self.max, int | float)
        return self.min, self.max

    @property
    def lowest(self) -> float:
        """The smallest number that values are encoded as."""
        return self.bounds[0] if self.numeric else 0

    @property
    def grain_seconds(self) -> int:
        """How long a grain of a column of moments is."""
        seconds = grain_seconds(self.grain or DEFAULT_GRAINS[self.type])
        assert seconds is not None
        return seconds

    @property
    def first_second(self) -> int:
        """The moment that grains are counted from."""
        return self._seconds(self.min)

    @property
    def style(self) -> str | None:
        """How moments are written as texts; None for ISO 8601."""
        if self.type != "time" or self.format is not None:
            return self.format
        return "%H:%M:%S" if self.grain_seconds % 60 else "%H:%M"

    def text(self, number: float) -> str:
        """A number of this column as a person reads it.

        >>> Column("day", "date", min="2020-01-01", max="2020-12-31").text(31)
        '2020-02-01'
        """
        if not self.moment:
            return f"{number:.10g}"
        seconds = np.array([self.first_second + number * self.grain_seconds])
        default = "%Y-%m-%d" if self.type == "date" else "%Y-%m-%d %H:%M:%S"
        return str(write_seconds(seconds, None, self.style or default)[0])

    def allowed(self, most: int = 6) -> str:
        """The values that the column may have, in words.

        >>> Column("age", "integer", min=0, max=99, missing=True).allowed()
        '0 to 99, or missing'
        >>> Column("dose", "continuous", min=0.0, max=5.0, decimals=2).allowed()
        '0 to 5 (2 decimals)'
        """
        if self.type == "id":
            return "made anew"
        if self.numeric:
            words = f"{self.text(self.bounds[0])} to {self.text(self.bounds[1])}"
            words += (
                f" ({self.decimals} decimal{'s' * (self.decimals != 1)})" if self.decimals is not None else ""
            )
        else:
            more = len(self.labels) - most
            words = ", ".join(map(_shown, self.labels[:most])) + (f" and {more} more" if more > 0 else "")
            words += f" (the first {self.prefix} characters)" if self.prefix else ""
        return words + (", or missing" if self.missing else "")

    def _seconds(self, bound: object) -> int:
        seconds = seconds_of(self.type, str(bound), None)
        assert seconds is not None
        return seconds

    def to_dict(self) -> dict[str, Any]:
        """The column as in schema.json: only what differs from the default."""
        written = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        if self.categories is not None:
            written["categories"] = list(self.categories)
        if self.missing_values:
            written["missing_values"] = list(self.missing_values)
        if self.type == "integer":
            written.update(min=int(self.bounds[0]), max=int(self.bounds[1]))
        return written

    @staticmethod
    def from_dict(written: Any) -> Column:
        """A column out of schema.json; all problems of the column are reported together."""
        if not isinstance(written, Mapping):
            raise BadInput(f"column {written!r}: expected an object such as {{'name': ..., 'type': ...}}")
        name = written.get("name", "?")
        known = [f.name for f in fields(Column)]
        problems = [
            f"column {name!r}: unknown key {k!r}, {nearest(str(k), known)}" for k in written if k not in known
        ]
        problems += [f"column {name!r}: {key!r} is missing" for key in ("name", "type") if key not in written]
        arguments = {key: value for key, value in written.items() if key in known}
        for key in ("categories", "missing_values"):
            if isinstance(arguments.get(key), list | tuple):
                arguments[key], dtype = _as_texts(arguments[key])
                if key == "categories" and dtype is not None:
                    arguments.setdefault("dtype", dtype)
        try:
            column = Column(**{"name": "?", "type": "binary", **arguments})
        except BadInput as error:
            raise BadInput("; ".join([*problems, str(error)])) from None
        if problems:
            raise BadInput("; ".join(problems))
        return column


def _shown(text: str) -> str:
    """A category on one line, cut where it is long."""
    plain = text if text.isprintable() else repr(text)[1:-1]
    return plain if len(plain) <= _LONGEST_SHOWN else f"{plain[: _LONGEST_SHOWN - 3]}..."


def _as_texts(values: Any) -> tuple[tuple[Any, ...], str | None]:
    """Numbers and truth values in a list as texts, and the dtype that they come back in, if all have one."""
    texts = tuple(_text(value) for value in values)
    kinds = {type(value) for value in values}
    names = {bool: "bool", int: "int64", float: "float64"}
    return texts, names.get(kinds.pop()) if len(kinds) == 1 else None


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _problems(column: Column) -> list[str]:
    if not isinstance(column.name, str) or not column.name:
        return [f"column name {column.name!r}: expected a text that is not empty"]
    if column.type not in TYPES:
        return [f"column {column.name!r}: unknown type {column.type!r}, {nearest(str(column.type), TYPES)}"]
    problems = [
        f"{key}={getattr(column, key)!r} is for {_listed(types)} columns; remove it"
        for key, types in _ONLY_FOR.items()
        if getattr(column, key) is not None and column.type not in types
    ]
    for types, check in _CHECKS.items():
        if column.type in types and not problems:
            problems += check(column)
    problems += _option_problems(column)
    return [f"column {column.name!r}: {problem}" for problem in problems]


def _listed(types: tuple[str, ...]) -> str:
    return f"{', '.join(types[:-1])} and {types[-1]}" if len(types) > 1 else types[0]


def _category_problems(column: Column) -> list[str]:
    categories = column.categories
    if not isinstance(categories, tuple) or not categories:
        return [f"a {column.type} column needs 'categories', a list of its values"]
    if any(not isinstance(category, str) or not category for category in categories):
        return ["each category must be a text that is not empty (allow missing values with 'missing': true)"]
    problems = []
    twice = sorted({category for category in categories if categories.count(category) > 1})
    if twice:
        problems.append(f"category {twice[0]!r} is listed twice")
    if column.type == "binary" and len(categories) != 2:
        problems.append(f"a binary column has two categories, not {len(categories)}; use type 'categorical'")
    if column.prefix is not None and (type(column.prefix) is not int or column.prefix < 1):
        problems.append(f"prefix={column.prefix!r} must be a whole number of at least 1")
    return problems


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number_problems(column: Column) -> list[str]:
    problems = []
    for key in ("min", "max"):
        value = getattr(column, key)
        if not _is_number(value):
            state = "is missing" if value is None else f"is {value!r}"
            problems.append(f"{key!r} {state}; expected a public number that no value can lie beyond")
    if problems:
        return problems
    low, high = column.bounds
    if low > high or (low == high and column.type == "continuous"):
        return [f"min={low} must be less than max={high}"]
    return _integer_problems(column) if column.type == "integer" else []


def _integer_problems(column: Column) -> list[str]:
    low, high = column.bounds
    if low != int(low) or high != int(high) or max(abs(low), abs(high)) > 2**53:
        return [f"the bounds {low} to {high} of an integer column must be whole numbers of at most 2^53"]
    largest = LARGEST_RANGE.get(column.scale, LARGEST_RANGE["log"])
    if high - low + 1 > largest:
        advice = "use type 'continuous' with 'decimals': 0"
        return [f"{low} to {high} are more than {largest} whole numbers, too many to tell apart; {advice}"]
    return []


def _moment_problems(column: Column) -> list[str]:
    problems = []
    example = {"date": "2020-01-31", "time": "08:30", "timestamp": "2020-01-31 08:30"}[column.type]
    for key in ("min", "max"):
        value = getattr(column, key)
        if not isinstance(value, str) or seconds_of(column.type, value) is None:
            state = "is missing" if value is None else f"is {value!r}"
            problems.append(f"{key!r} {state}; expected a public {column.type} such as {example!r}")
    if column.grain is not None and (
        not isinstance(column.grain, str) or grain_seconds(column.grain) is None
    ):
        problems.append(f"grain={column.grain!r}: expected {', '.join(UNITS)}, or so many, as '15 minutes'")
    elif column.type == "date" and column.grain_seconds % UNITS["day"]:
        problems.append(f"grain={column.grain!r}: a date has no part of a day; use type 'timestamp'")
    if column.format is not None and (not isinstance(column.format, str) or "%" not in column.format):
        problems.append(f"format={column.format!r}: expected a pattern such as '%d.%m.%Y'")
    if problems:
        return problems
    high = column.bounds[1]
    if high < 0:
        return [f"min={column.min!r} must not be after max={column.max!r}"]
    largest = LARGEST_RANGE["linear"]
    return [f"{high + 1} grains are more than {largest}; use a coarser 'grain'"] if high >= largest else []


_CHECKS = {CATEGORIES: _category_problems, NUMBERS: _number_problems, MOMENTS: _moment_problems}


def _option_problems(column: Column) -> list[str]:
    problems = []
    if not isinstance(column.missing, bool):
        problems.append(f"missing={column.missing!r} must be true or false")
    texts = column.missing_values
    if not isinstance(texts, tuple) or any(not isinstance(text, str) for text in texts):
        problems.append(f"missing_values={texts!r} must be a list of texts or numbers")
    if column.scale not in SCALES:
        problems.append(f"unknown scale {column.scale!r}, {nearest(str(column.scale), SCALES)}")
    elif column.scale == "log" and column.type not in NUMBERS:
        problems.append(f"scale 'log' is for integer and continuous columns, not {column.type}")
    if column.decimals is not None and (type(column.decimals) is not int or not 0 <= column.decimals <= 15):
        problems.append(f"decimals={column.decimals!r} must be a whole number from 0 to 15")
    if column.bins is not None and (type(column.bins) is not int or not 1 <= column.bins <= 4096):
        problems.append(f"bins={column.bins!r} must be a whole number from 1 to 4096")
    if column.dtype is not None and not _fits_dtype(column):
        problems.append(
            f"dtype={column.dtype!r} is none that a {column.type} column with these values can have"
        )
    return problems


def _fits_dtype(column: Column) -> bool:
    dtype = column.dtype
    if not isinstance(dtype, str) or re.fullmatch(_DTYPES[column.type], dtype) is None:
        return False
    inner = dtype.removeprefix("category[").removesuffix("]") if column.type in CATEGORIES else ""
    try:
        return all(category_value(text, inner) is not None for text in column.categories or ())
    except (ValueError, TypeError):
        return False


def category_value(text: str, dtype: str) -> Any:
    """A category as the value that it stands for.

    >>> category_value("2", "int64"), category_value("true", "bool"), category_value("2", "str")
    (2, True, '2')
    """
    if dtype.startswith("bool"):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    if "int" in dtype.lower():
        return int(text)
    return float(text) if dtype.lower().startswith("float") else text
