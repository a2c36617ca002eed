"""Guess a schema from rows, for a person to review: everything in it is marked as inferred."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from pandas.api.types import pandas_dtype

from fedsynth.data.column import LARGEST_CLASS_RANGE, Column
from fedsynth.data.draft_column import Undraftable, draft_column
from fedsynth.data.schema import Schema
from fedsynth.data.text import words_of
from fedsynth.data.values import as_text, nullable, places
from fedsynth.errors import BadInput, nearest


@dataclass(frozen=True)
class Wishes:
    """The user's knowledge of a table before its schema is drafted."""

    label: str | None = None
    client: str | None = None
    drop: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # texts and numbers that mean a missing value
    texts: tuple[str, ...] = ()  # columns of codes, to be kept as text
    prefixes: Mapping[str, int] = field(default_factory=dict)  # how many characters of a code count

    def check(self, names: list[str]) -> None:
        """Refuse a column that is not in the table; a label that is not there is left out of the draft instead."""
        wanted = {"client column": (self.client,), "--drop": self.drop, "--text-columns": self.texts}
        for role, columns in {**wanted, "--prefix": tuple(self.prefixes)}.items():
            for name in columns:
                if name is not None and name not in names:
                    raise BadInput(f"{role} {name!r} is not in the table; {nearest(name, names)}")


@dataclass(frozen=True)
class Draft:
    """A schema that rows fit, and what could not be done as wished.

    `left_out` has the columns without a type, each with the reason as the end of a sentence. It was read from rows, as
    the schema was, and is for whoever holds them: it is no part of the schema, which is made public.
    """

    schema: Schema
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def draft_schema(frame: pd.DataFrame, wishes: Wishes | None = None) -> Draft:
    """A schema that these rows fit. It was read from private rows, so every column is `inferred`.

    >>> people = pd.DataFrame({"age": [20, 31, 64], "sex": ["F", "M", "F"]})
    >>> schema = draft_schema(people, Wishes(label="sex")).schema
    >>> [(column.name, column.type) for column in schema.columns], schema.inferred()
    ([('age', 'integer'), ('sex', 'binary')], ('age', 'sex'))
    """
    wishes = wishes or Wishes()
    names = [str(name) for name in frame.columns]
    wishes.check(names)
    columns, left_out = [], {}
    for name in names:
        if name == wishes.client or name in wishes.drop:
            continue
        try:
            columns.append(_drafted(name, frame[name], wishes))
        except Undraftable as error:
            left_out[name] = str(error)
    if not columns:
        reasons = "; ".join(f"{name!r} {reason}" for name, reason in left_out.items())
        raise BadInput(f"no column can be drafted: {reasons or 'all are dropped'}")
    label, notes = _label(wishes.label, columns, left_out)
    inferred = {column.name: "inferred" for column in columns}
    schema = Schema(columns=tuple(columns), label=label, client=wishes.client, provenance=inferred)
    return Draft(schema, left_out, notes)


def _drafted(name: str, values: pd.Series, wishes: Wishes) -> Column:
    absent = places(values, wishes.missing) >= 0
    if absent.any():
        whole = pd.api.types.is_integer_dtype(values)
        values = (values.astype(pandas_dtype(nullable(str(values.dtype)))) if whole else values).mask(absent)
    column = draft_column(
        name,
        values,
        is_label=name == wishes.label,
        is_text=name in wishes.texts or name in wishes.prefixes,
        prefix=wishes.prefixes.get(name),
    )
    return replace(column, missing_values=wishes.missing) if absent.any() else column


def _label(
    label: str | None, columns: list[Column], left_out: Mapping[str, str]
) -> tuple[str | None, tuple[str, ...]]:
    """The label, or None with a sentence why the draft has none."""
    if label is None:
        return None, ()
    column = next((column for column in columns if column.name == label), None)
    if column is None:
        known = nearest(label, [column.name for column in columns])
        reason = left_out.get(label, f"is not in the table; {known}")
    elif column.missing:
        reason = "has missing values; drop those rows, or add a category for them"
    elif column.categories is None and not (
        column.type == "integer" and (column.values or 0) <= LARGEST_CLASS_RANGE
    ):
        reason = f"is drafted as {column.type}; a label has categories or few whole numbers"
    elif len(columns) == 1:
        reason = "is the only column"
    else:
        return label, ()
    return None, (f"label {label!r} {reason}; the draft has no label",)


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
