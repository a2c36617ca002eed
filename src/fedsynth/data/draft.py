"""Guess a schema from rows, for a person to review: everything in it is marked as inferred."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from pandas.api.types import pandas_dtype

from fedsynth.data.cells import number_in
from fedsynth.data.column import LARGEST_CLASS_RANGE, Column
from fedsynth.data.draft_column import Undraftable, draft_column
from fedsynth.data.draft_rules import rules_of
from fedsynth.data.schema import Schema
from fedsynth.data.table_files import NAMELESS
from fedsynth.data.text import words_of
from fedsynth.data.values import as_text, nullable, places
from fedsynth.errors import BadInput, nearest

_NO_VALUE = ("?", "??", "-", "--", ".", "na", "n/a", "#n/a", "nan", "null", "none")  # in small letters
_BELOW_ALL = (-9.0, -99.0, -999.0, -9999.0, -99999.0)
_ABOVE_ALL = (999.0, 9999.0, 99999.0)
_FAR = 3  # times larger than any other number


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


def draft_schema(frame: pd.DataFrame, wishes: Wishes | None = None, *, rules: bool = True) -> Draft:
    """A schema that these rows fit, with `rules` that all keep. It was read from private rows: all is `inferred`.

    >>> people = pd.DataFrame({"age": [20, 31, 64], "sex": ["F", "M", "F"]})
    >>> schema = draft_schema(people, Wishes(label="sex")).schema
    >>> [(column.name, column.type) for column in schema.columns], schema.inferred()
    ([('age', 'integer'), ('sex', 'binary')], ('age', 'sex'))
    """
    wishes = wishes or Wishes()
    names = [str(name) for name in frame.columns]
    wishes.check(names)
    columns, left_out, hints = [], {}, []
    for name in names:
        if name == wishes.client or name in wishes.drop:
            continue
        hints += [
            f"{name!r} has the value {text}; if it means a missing one, draft again with --missing {shlex.quote(text)}"
            for text in _stand_ins(frame[name])
            if text not in wishes.missing
        ]
        try:
            columns.append(_drafted(name, frame[name], wishes))
        except Undraftable as error:
            left_out[name] = str(error)
    if all(column.type == "id" for column in columns):
        left_out |= {column.name: "is an identifier, which is never learned" for column in columns}
        reasons = "; ".join(f"{name!r} {reason}" for name, reason in left_out.items())
        raise BadInput(f"no column can be drafted: {reasons or 'all are dropped'}")
    label, notes = _label(wishes.label, columns, left_out)
    inferred = {column.name: "inferred" for column in columns}
    schema = Schema(columns=tuple(columns), label=label, client=wishes.client, provenance=inferred)
    kept = rules_of(schema, frame) if rules else ()
    if kept:
        schema = replace(schema, constraints=kept, provenance={**inferred, "constraints": "inferred"})
    return Draft(schema, left_out, (*notes, *hints))


def _stand_ins(values: pd.Series) -> list[str]:
    """The values that often stand for a missing one: a question mark and the like, or a number far from all others.

    >>> _stand_ins(pd.Series(["3", "?", "5"])), _stand_ins(pd.Series([40, -999, 61]))
    (['?'], ['-999'])
    """
    texts = [as_text(value) for value in pd.unique(values.dropna().to_numpy(dtype=object))]
    numbers = {number: text for text in texts if not np.isnan(number := number_in(text))}
    ends = []
    if len(numbers) > 1:
        lowest, second, *_ = sorted(numbers)
        *_, last, highest = sorted(numbers)
        ends += [numbers[lowest]] if lowest in _BELOW_ALL and second >= 0 else []
        ends += [numbers[highest]] if highest in _ABOVE_ALL and last * _FAR < highest else []
    return [text for text in texts if text.strip().lower() in _NO_VALUE] + ends


def _drafted(name: str, values: pd.Series, wishes: Wishes) -> Column:
    if name.startswith(NAMELESS):
        raise Undraftable("has no name in the first line; name it there to keep it")
    if pd.api.types.infer_dtype(values, skipna=True).startswith("timedelta"):
        raise Undraftable("holds durations; write them as numbers, such as hours, to keep it")
    absent = places(values, ("", *wishes.missing)) >= 0
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
    return replace(column, missing_values=wishes.missing) if absent.any() and column.type != "id" else column


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
