"""The public schema: everything fedsynth may know of the data before it spends any privacy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedsynth.data.atomic import write_file
from fedsynth.data.column import LARGEST_CLASS_RANGE, Column
from fedsynth.data.rule_parser import parse_rule
from fedsynth.data.rules import Rule
from fedsynth.errors import BadInput, nearest

KINDS = ("table", "image", "text")
PROVENANCES = ("public", "paid", "inferred")

__all__ = ["Column", "Schema"]


@dataclass(frozen=True)
class Schema:
    """Columns, label and client column of a table; shape and classes of images; vocabulary of texts.

    The column `client` says who owns a row and is never synthesised; it need not be among `columns`.
    `provenance` says where a column's bounds or categories come from; a column it does not name is public.
    An image's (or text's) label is its one column. `constraints` are rules that every row keeps; a column that one of
    them computes out of others, and one of type `id`, is made with each sample and never learned.

    >>> age = Column("age", "integer", min=0, max=99)
    >>> schema = Schema(columns=(age, Column("ill", "binary")), label="ill")
    >>> schema.classes
    ('0', '1')
    >>> [column.name for column in schema.feature_columns]
    ['age']
    """

    version: int = 1
    kind: str = "table"
    columns: tuple[Column, ...] = ()
    label: str | None = None
    client: str | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    label_probabilities: tuple[float, ...] | None = None
    height: int | None = None
    width: int | None = None
    channels: int | None = None
    vocabulary: str | tuple[str, ...] | None = None
    length: int | None = None  # the most symbols in a piece of text
    constraints: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "provenance", dict(self.provenance))
        problems = _problems(self)
        if problems:
            raise BadInput("; ".join(problems))

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict(), sort_keys=True))

    def column(self, name: str) -> Column:
        """The column called `name`."""
        for column in self.columns:
            if column.name == name:
                return column
        raise BadInput(f"the schema has no column {name!r}; {nearest(name, self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that are learned, in order: all but the client's, identifiers and derived ones."""
        return tuple(
            column.name
            for column in self.columns
            if column.name != self.client and column.type != "id" and column.name not in self.derived
        )

    @property
    def sampled_names(self) -> tuple[str, ...]:
        """Names of the columns of a sample, in order: those that are learned, and those that are made."""
        return tuple(column.name for column in self.columns if column.name != self.client)

    @property
    def feature_columns(self) -> tuple[Column, ...]:
        """The columns that are learned, minus the label."""
        learned = {*self.names} - {self.label}
        return tuple(column for column in self.columns if column.name in learned)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The constraints, parsed."""
        return tuple(parse_rule(text, self.columns) for text in self.constraints)

    @cached_property
    def derived(self) -> Mapping[str, Rule]:
        """Columns that a constraint computes, and that constraint, in an order in which they can be computed."""
        rules = {
            rule.derived: rule for rule in reversed(self.rules) if rule.derived not in (None, self.label)
        }
        ordered: dict[str, Rule] = {}
        while len(ordered) < len(rules):
            ready = [
                name
                for name, rule in rules.items()
                if name and name not in ordered and not {*rule.columns} & ({*rules} - {*ordered, name})
            ]
            if (
                not ready
            ):  # a circle: the first of its columns is learned, and its constraint is one among others
                del rules[next(name for name in rules if name not in ordered)]
            ordered.update({str(name): rules[name] for name in ready})
        return ordered

    @property
    def label_column(self) -> Column | None:
        """The label's column, None without a label."""
        return None if self.label is None else self.column(self.label)

    @property
    def classes(self) -> tuple[str, ...]:
        """The label's values as text; empty without a label."""
        column = self.label_column
        return () if column is None else column.labels

    def inferred(self) -> tuple[str, ...]:
        """Names of what was read from rows without paying: a release built on these is not private."""
        return tuple(name for name, source in self.provenance.items() if source == "inferred")

    def with_label(self, name: str | None) -> Schema:
        """The same schema with another label; a class balance declared for the old one is dropped."""
        if name == self.label:
            return self
        return replace(self, label=name, label_probabilities=None)

    def with_client(self, name: str | None) -> Schema:
        """The same schema with another client column."""
        return replace(self, client=name)

    def to_dict(self) -> dict[str, Any]:
        """The schema as in schema.json: only what differs from the default."""
        written: dict[str, Any] = {"version": self.version, "kind": self.kind}
        for item in fields(self):
            value = getattr(self, item.name)
            if value not in (None, ()) and item.name not in ("columns", "provenance", "version", "kind"):
                written[item.name] = list(value) if isinstance(value, tuple) else value
        if self.kind == "table":
            written["columns"] = [column.to_dict() for column in self.columns]
        elif self.label_column is not None:
            written["label"] = {"name": self.label, "categories": list(self.classes)}
        if self.provenance:
            written["provenance"] = dict(self.provenance)
        return written

    @staticmethod
    def from_dict(written: Any) -> Schema:
        """A schema out of schema.json's object; all its problems are reported together."""
        if not isinstance(written, Mapping):
            raise BadInput(f"a schema is an object with 'kind' and 'columns', not a {type(written).__name__}")
        known = [item.name for item in fields(Schema)]
        problems = [f"unknown key {key!r}, {nearest(str(key), known)}" for key in written if key not in known]
        arguments = {key: value for key, value in written.items() if key in known}
        if not isinstance(arguments.get("provenance", {}), Mapping):
            problems.append(f"'provenance' must be an object, not {arguments.pop('provenance')!r}")
        columns, column_problems = _read_columns(arguments)
        problems += column_problems
        for key in ("label_probabilities", "vocabulary", "constraints"):
            if isinstance(arguments.get(key), list):
                arguments[key] = tuple(arguments[key])
        if isinstance(arguments.get("label"), Mapping):
            arguments["label"] = arguments["label"].get("name", "label")
        return _build({**arguments, "columns": columns}, problems)

    @staticmethod
    def load(path: Path | str) -> Schema:
        """Read schema.json."""
        try:
            written = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInput(
                f"schema {path}: cannot be read ({error.strerror}); draft one with 'fedsynth schema draft'"
            ) from None
        except ValueError as error:
            raise BadInput(f"schema {path}: is not JSON ({error}); correct it or draft a new one") from None
        try:
            return Schema.from_dict(written)
        except BadInput as error:
            raise BadInput(f"schema {path}: {error}") from None

    def save(self, path: Path | str) -> None:
        """Write schema.json, whole or not at all."""
        write_file(path, _written(self.to_dict()))


def _written(schema: dict[str, Any]) -> str:
    """JSON with a line for each column, as a person would review it."""
    parts = {key: json.dumps(value, ensure_ascii=False) for key, value in schema.items()}
    if "columns" in schema:
        lines = [json.dumps(column, ensure_ascii=False) for column in schema["columns"]]
        parts["columns"] = "[\n  " + ",\n  ".join(lines) + "]"
    return "{" + ",\n ".join(f'"{key}": {value}' for key, value in parts.items()) + "}\n"


def _read_columns(arguments: dict[str, Any]) -> tuple[tuple[Column, ...], list[str]]:
    """The columns, and what is wrong with those that cannot be read."""
    listed = arguments.get("columns", [])
    if not isinstance(listed, list | tuple):
        return (), [f"'columns' must be a list of columns, not {listed!r}"]
    label = arguments.get("label")
    if isinstance(label, Mapping):
        listed = [*listed, {"name": "label", "type": "categorical", **label}]
    columns, problems = [], []
    for item in listed:
        try:
            columns.append(Column.from_dict(item))
        except BadInput as error:
            problems.append(str(error))
            # A stand-in, so that the rest can be checked without calling this column unknown.
            columns.append(
                Column(str(item.get("name")) if isinstance(item, Mapping) else repr(item), "binary")
            )
    return tuple(columns), problems


def _build(arguments: dict[str, Any], problems: list[str]) -> Schema:
    """The schema, or one error with the problems so far and those that only the whole shows."""
    if problems:
        for key in ("label_probabilities", "constraints"):  # cannot be judged without knowing the columns
            arguments.pop(key, None)
    try:
        schema = Schema(**arguments)
    except BadInput as error:
        raise BadInput("; ".join([*problems, str(error)])) from None
    if problems:
        raise BadInput("; ".join(problems))
    return schema


def _problems(schema: Schema) -> list[str]:
    problems = []
    if schema.version != 1:
        problems.append(f"version {schema.version!r}: this fedsynth reads version 1")
    if schema.kind not in KINDS:
        return [*problems, f"unknown kind {schema.kind!r}, {nearest(str(schema.kind), KINDS)}"]
    names = [column.name for column in schema.columns]
    problems += [
        f"column {name!r} is listed twice" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    problems += {"table": _table_problems, "image": _image_problems, "text": _text_problems}[schema.kind](
        schema
    )
    problems += _label_problems(schema, names)
    return problems + _provenance_problems(schema, names)


def _table_problems(schema: Schema) -> list[str]:
    problems = [
        f"{key!r} is for images or text, not for a table"
        for key in ("height", "width", "channels", "vocabulary", "length")
        if getattr(schema, key) is not None
    ]
    if schema.client is not None and not isinstance(schema.client, str):
        problems.append(f"client {schema.client!r} must be the name of a column")
    problems += _constraint_problems(schema)
    if not problems and not schema.feature_columns:
        problems.append("'columns' must list at least one column besides the label")
    return problems


def _constraint_problems(schema: Schema) -> list[str]:
    if not isinstance(schema.constraints, tuple):
        return [
            f"constraints {schema.constraints!r}: expected a list of texts such as 'discharge >= admission'"
        ]
    problems = []
    for text in schema.constraints:
        try:
            parse_rule(text, [column for column in schema.columns if column.name != schema.client])
        except BadInput as error:
            problems.append(str(error))
    return problems


def _image_problems(schema: Schema) -> list[str]:
    problems = [
        f"{key}={getattr(schema, key)!r} must be a whole number of at least 1"
        for key in ("height", "width")
        if type(getattr(schema, key)) is not int or getattr(schema, key) < 1
    ]
    return (
        problems
        if schema.channels in (1, 3)
        else [*problems, f"channels={schema.channels!r} must be 1 (grey) or 3 (RGB)"]
    )


def _text_problems(schema: Schema) -> list[str]:
    words, length = schema.vocabulary, schema.length
    problems = []
    if not (
        words == "bytes" or (isinstance(words, tuple) and words and all(isinstance(w, str) for w in words))
    ):
        problems.append(f"vocabulary={words!r} must be 'bytes' or a list of words")
    elif isinstance(words, tuple) and len(set(words)) < len(words):
        problems.append("vocabulary: a word is listed twice")
    if length is not None and (type(length) is not int or length < 1):
        problems.append(f"length={length!r} must be a whole number of at least 1")
    return problems


def _label_problems(schema: Schema, names: list[str]) -> list[str]:
    if schema.label is None:
        return ["label_probabilities need a label"] if schema.label_probabilities is not None else []
    if schema.label not in names:
        return [f"label {schema.label!r} is no column, {nearest(str(schema.label), names)}"]
    if schema.label == schema.client:
        return [f"label {schema.label!r} is also the client column; choose another label"]
    column = schema.column(schema.label)
    if column.missing:
        return [f"label {schema.label!r} must not allow missing values; drop those rows or add a category"]
    integers = column.type == "integer" and (column.values or 0) <= LARGEST_CLASS_RANGE
    if column.categories is None and not integers:
        advice = "choose a categorical, ordinal or binary column or leave the label out"
        return [f"label {schema.label!r} is {column.type} with too many values for classes; {advice}"]
    return _probability_problems(schema)


def _probability_problems(schema: Schema) -> list[str]:
    shares = schema.label_probabilities
    if shares is None:
        return []
    if not isinstance(shares, tuple):
        return [f"label_probabilities {shares!r}: expected a list with a number for each class"]
    if len(shares) != len(schema.classes):
        return [f"label_probabilities: {len(shares)} numbers for {len(schema.classes)} classes"]
    numbers = all(isinstance(share, int | float) and share >= 0 for share in shares)
    if not numbers or not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
        return [f"label_probabilities {shares}: expected numbers of at least 0 that add up to 1"]
    return []


def _provenance_problems(schema: Schema, names: list[str]) -> list[str]:
    known = [*names, "label_probabilities", *(["vocabulary"] if schema.kind == "text" else [])]
    problems = [
        f"provenance of unknown column {name!r}, {nearest(str(name), known)}"
        for name in schema.provenance
        if name not in known
    ]
    return problems + [
        f"provenance of {name!r} is {source!r}, {nearest(str(source), PROVENANCES)}"
        for name, source in schema.provenance.items()
        if source not in PROVENANCES
    ]
