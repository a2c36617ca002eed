"""One column of a public schema: its type and its bounds or categories, checked all at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fedsynth.errors import BadInput, nearest

TYPES = ("categorical", "ordinal", "integer", "continuous", "binary")
SCALES = ("linear", "log")
DEFAULT_BINS = 32
LARGEST_CLASS_RANGE = 100  # an integer label with more values than this is a quantity, not a class
# A position is a float32 number in [0, 1]: with more values than this, neighbours would share one.
LARGEST_RANGE = {"linear": 2**23, "log": 2**20}


@dataclass(frozen=True)
class Column:
    """What the public may know of a column. Nothing here may be read from private rows for free.

    `scale="log"` spreads small values of a skewed amount (capital gain): positions are log1p of the distance
    from `min`. `bins` is the resolution of the model's head for an ordered column.

    >>> Column("age", "integer", min=17, max=90).values
    74
    >>> Column("sex", "categorical", categories=("F", "M")).labels
    ('F', 'M')
    """

    name: str
    type: str
    categories: tuple[str, ...] | None = None
    min: float | None = None
    max: float | None = None
    decimals: int | None = None
    missing: bool = False
    scale: str = "linear"
    bins: int | None = None

    def __post_init__(self) -> None:
        if self.type == "binary" and self.categories is None:
            object.__setattr__(self, "categories", ("0", "1"))
        problems = _problems(self)
        if problems:
            raise BadInput("; ".join(problems))

    @property
    def numeric(self) -> bool:
        """True if the values are numbers between bounds, False if they are one of the categories."""
        return self.type in ("integer", "continuous")

    @property
    def ordered(self) -> bool:
        """True if values have a position in [0, 1] besides their bin."""
        return self.type in ("ordinal", "integer", "continuous")

    @property
    def values(self) -> int | None:
        """How many values there can be; None for a continuous column."""
        if self.type == "continuous":
            return None
        if self.type == "integer":
            return int(self.bounds[1] - self.bounds[0]) + 1
        return len(self.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories, or the values of an integer column written out."""
        if self.categories is not None:
            return self.categories
        low, high = self.bounds
        return tuple(str(value) for value in range(int(low), int(high) + 1))

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and largest allowed number of a numeric column."""
        assert self.min is not None and self.max is not None
        return self.min, self.max

    def to_dict(self) -> dict[str, Any]:
        """The column as in schema.json: only what differs from the default."""
        written = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        if self.categories is not None:
            written["categories"] = list(self.categories)
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
        if isinstance(arguments.get("categories"), list | tuple):
            arguments["categories"] = tuple(_text(value) for value in arguments["categories"])
        try:
            column = Column(**{"name": "?", "type": "binary", **arguments})
        except BadInput as error:
            raise BadInput("; ".join([*problems, str(error)])) from None
        if problems:
            raise BadInput("; ".join(problems))
        return column


def _text(value: Any) -> Any:
    """Numbers and truth values in a list of categories are meant as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _problems(column: Column) -> list[str]:
    if not isinstance(column.name, str) or not column.name:
        return [f"column name {column.name!r}: expected a text that is not empty"]
    if column.type not in TYPES:
        return [f"column {column.name!r}: unknown type {column.type!r}, {nearest(str(column.type), TYPES)}"]
    found = _number_problems(column) if column.numeric else _category_problems(column)
    found += _option_problems(column)
    return [f"column {column.name!r}: {problem}" for problem in found]


def _category_problems(column: Column) -> list[str]:
    categories = column.categories
    found = [
        f"{key}={getattr(column, key)!r} is for integer and continuous columns; remove it"
        for key in ("min", "max", "decimals")
        if getattr(column, key) is not None
    ]
    if not isinstance(categories, tuple) or not categories:
        return [*found, f"a {column.type} column needs 'categories', a list of its values"]
    if any(not isinstance(category, str) or not category for category in categories):
        return [
            *found,
            "each category must be a text that is not empty (allow missing values with 'missing': true)",
        ]
    twice = sorted({category for category in categories if categories.count(category) > 1})
    if twice:
        found.append(f"category {twice[0]!r} is listed twice")
    if column.type == "binary" and len(categories) != 2:
        found.append(f"a binary column has two categories, not {len(categories)}; use type 'categorical'")
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number_problems(column: Column) -> list[str]:
    found = (
        ["categories are for categorical, ordinal and binary columns"]
        if column.categories is not None
        else []
    )
    for key in ("min", "max"):
        value = getattr(column, key)
        if not _is_number(value):
            told = "is missing" if value is None else f"is {value!r}"
            found.append(f"{key!r} {told}; expected a public number that no value can lie beyond")
    if found:
        return found
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


def _option_problems(column: Column) -> list[str]:
    found = []
    if not isinstance(column.missing, bool):
        found.append(f"missing={column.missing!r} must be true or false")
    if column.scale not in SCALES:
        found.append(f"unknown scale {column.scale!r}, {nearest(str(column.scale), SCALES)}")
    elif column.scale == "log" and not column.numeric:
        found.append(f"scale 'log' is for integer and continuous columns, not {column.type}")
    if column.decimals is not None and (type(column.decimals) is not int or not 0 <= column.decimals <= 15):
        found.append(f"decimals={column.decimals!r} must be a whole number from 0 to 15")
    if column.bins is not None and (type(column.bins) is not int or not 1 <= column.bins <= 4096):
        found.append(f"bins={column.bins!r} must be a whole number from 1 to 4096")
    return found
