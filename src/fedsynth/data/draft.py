"""Guess a schema from rows, for a person to review: everything in it is marked as inferred."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pandas as pd

from fedsynth.data.column import LARGEST_CLASS_RANGE, LARGEST_RANGE, Column
from fedsynth.data.schema import Schema
from fedsynth.data.text import words_of
from fedsynth.data.values import as_text
from fedsynth.errors import BadInput, nearest

LARGEST_CATEGORIES = 256
_LARGEST_DECIMALS = 6
_FEW = 20  # categories, whatever the number of rows
_DATE = re.compile(r"\s*(\d{4}-\d\d?-\d\d?|\d\d?[./-]\d\d?[./-](\d{4}|\d\d))(\s*$|[T ])")


def draft_schema(
    frame: pd.DataFrame, *, label: str | None = None, client_column: str | None = None
) -> Schema:
    """A schema that these rows fit. It was read from private rows, so every column is `inferred`.

    >>> schema = draft_schema(pd.DataFrame({"age": [20, 31, 64], "sex": ["F", "M", "F"]}), label="sex")
    >>> [(column.name, column.type) for column in schema.columns], schema.inferred()
    ([('age', 'integer'), ('sex', 'binary')], ('age', 'sex'))
    """
    require_columns(frame, label=label, client_column=client_column)
    columns, problems = [], []
    for name in map(str, frame.columns):
        if name == client_column:
            continue
        try:
            columns.append(_draft_column(name, frame[name], name == label))
        except BadInput as error:
            problems.append(str(error))
    if problems:
        raise BadInput("; ".join(problems))
    inferred = {column.name: "inferred" for column in columns}
    return Schema(columns=tuple(columns), label=label, client=client_column, provenance=inferred)


def require_columns(frame: pd.DataFrame, *, label: str | None, client_column: str | None) -> None:
    """Refuse a label or client column that is not in the table."""
    for name, role in ((label, "label"), (client_column, "client column")):
        if name is not None and name not in frame.columns:
            raise BadInput(f"{role} {name!r} is not in the table; {nearest(name, map(str, frame.columns))}")


def draft_image_schema(images: np.ndarray, labels: np.ndarray | None = None) -> Schema:
    """A schema that these images fit; their size is public, their classes are inferred."""
    height, width = images.shape[1:3]
    channels = images.shape[3] if images.ndim == 4 else 1
    if labels is None:
        return Schema(kind="image", height=height, width=width, channels=channels)
    classes = tuple(as_text(value) for value in np.unique(labels))
    column = Column("label", "categorical", categories=classes)
    return Schema(
        kind="image",
        height=height,
        width=width,
        channels=channels,
        columns=(column,),
        label="label",
        provenance={"label": "inferred"},
    )


def draft_text_schema(texts: Iterable[str], words: int, length: int | None = None) -> Schema:
    """A schema with the most frequent words of these texts: read from private texts, so they are `inferred`.

    >>> draft_text_schema(["a b a", "c a b"], 2).vocabulary
    ('a', 'b')
    """
    counts = Counter(word for text in texts for word in words_of(text))
    if not counts:
        raise BadInput("the texts hold no words; expected at least one text with words")
    chosen = tuple(word for word, _ in counts.most_common(words))
    return Schema(kind="text", vocabulary=chosen, length=length, provenance={"vocabulary": "inferred"})


def _draft_column(name: str, series: pd.Series, is_label: bool) -> Column:
    present = series.dropna()
    missing = len(present) < len(series)
    if present.empty:
        raise BadInput(f"column {name!r} has no values; drop it")
    distinct = pd.unique(present.to_numpy(dtype=object))
    if pd.api.types.is_datetime64_any_dtype(series) or _are_dates(distinct):
        raise BadInput(
            f"column {name!r} holds dates; convert it to a number such as days since a public date"
        )
    number = pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series)
    classes = is_label and len(distinct) <= LARGEST_CLASS_RANGE
    if len(distinct) == 2 or classes or not number:
        return _draft_categories(name, distinct, len(present), missing)
    return _draft_number(name, present.to_numpy(dtype=np.float64), missing)


def _are_dates(distinct: np.ndarray) -> bool:
    """Many texts that all read as a day; a few of them may be categories."""
    return len(distinct) > _FEW and all(isinstance(text, str) and _DATE.match(text) for text in distinct)


def _draft_categories(name: str, distinct: np.ndarray, rows: int, missing: bool) -> Column:
    count = len(distinct)
    if count > LARGEST_CATEGORIES or (count > _FEW and count > rows / 2):
        advice = "names and free text cannot be synthesised: drop it, group it, or make it the client column"
        raise BadInput(f"column {name!r} holds {count} different texts in {rows} rows; {advice}")
    categories = tuple(dict.fromkeys(as_text(value) for value in sorted(distinct, key=_sorting)))
    kind = "binary" if len(categories) == 2 else "categorical"
    return Column(name, kind, categories=categories, missing=missing)


def _sorting(value: object) -> tuple[int, float, str]:
    """Numbers by size before texts by alphabet."""
    if isinstance(value, int | float | np.number | np.bool_):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def _draft_number(name: str, numbers: np.ndarray, missing: bool) -> Column:
    if not np.isfinite(numbers).all():
        raise BadInput(f"column {name!r} holds infinite numbers; replace or drop them")
    low, high = float(numbers.min()), float(numbers.max())
    scale = "log" if _is_skewed(numbers, low, high) else "linear"
    if (numbers == np.floor(numbers)).all():
        if high - low < LARGEST_RANGE[scale]:
            return Column(name, "integer", min=int(low), max=int(high), missing=missing, scale=scale)
        return Column(name, "continuous", min=low, max=high, missing=missing, scale=scale, decimals=0)
    if low == high:
        return Column(name, "categorical", categories=(as_text(low),), missing=missing)
    decimals = _decimals(numbers)
    return Column(name, "continuous", min=low, max=high, decimals=decimals, missing=missing, scale=scale)


def _is_skewed(numbers: np.ndarray, low: float, high: float) -> bool:
    """Amounts such as capital gain: three quarters of the rows lie in the lowest 5% of a wide range."""
    return high - low > 100 and bool(np.quantile(numbers, 0.75) <= low + (high - low) / 20)


def _decimals(numbers: np.ndarray) -> int | None:
    for decimals in range(1, _LARGEST_DECIMALS + 1):
        if np.array_equal(numbers, np.round(numbers, decimals)):
            return decimals
    return None
