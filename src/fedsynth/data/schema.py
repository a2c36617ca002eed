"""The public schema: everything fedsynth may know of the data before it spends any privacy."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsynth.data.atomic import write_file
from fedsynth.data.column import LARGEST_CLASS_RANGE, Column
from fedsynth.data.modality import kind_problems
from fedsynth.data.rule_parser import parse_rule
from fedsynth.data.rules import Constraint
from fedsynth.errors import BadInput, nearest, speaks_python

if TYPE_CHECKING:
    from fedsynth.data.linked import LinkedTable

PROVENANCES = ("public", "accepted", "paid", "inferred")

__all__ = ["Column", "Schema"]


@dataclass(frozen=True)
class Schema:
    """Columns, label and client column of a table; shape and classes of images; vocabulary of texts.

    The column `client` says who owns a row and is never synthesized; it need not be among `columns`.
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
    tables: tuple[LinkedTable, ...] = ()  # linked ones; `columns` are then those of the first, the persons'
    inside: bool | None = None  # one of linked tables, which may have keys alone

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
    def rules(self) -> tuple[Constraint, ...]:
        """The constraints, parsed."""
        return tuple(parse_rule(text, self.columns) for text in self.constraints)

    @cached_property
    def derived(self) -> Mapping[str, Constraint]:
        """Columns that a constraint computes, and that constraint, in an order in which they can be computed."""
        rules = {
            rule.derived: rule for rule in reversed(self.rules) if rule.derived not in (None, self.label)
        }
        ordered: dict[str, Constraint] = {}
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
        return self._with_source("inferred")

    def paid(self) -> tuple[str, ...]:
        """Names of what rows paid for."""
        return self._with_source("paid")

    def _with_source(self, source: str) -> tuple[str, ...]:
        inside = (
            f"{table.name}.{name}" for table in self.tables for name in table.schema._with_source(source)
        )
        return (*(name for name, of in self.provenance.items() if of == source), *inside)

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
        if self.tables:
            return {**written, "tables": {table.name: table.to_dict() for table in self.tables}}
        for item in fields(self):
            value = getattr(self, item.name)
            if value not in (None, ()) and item.name not in ("columns", "provenance", "version", "kind"):
                written[item.name] = list(value) if isinstance(value, tuple) else value
        if self.feature_columns:
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
        if "tables" in written:
            return _linked(written)
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
    @speaks_python
    def draft(
        data: Any,
        *,
        label: str | None = None,
        client_column: str | None = None,
        drop: Iterable[str] = (),
        missing: Iterable[str] = (),
        text_columns: Iterable[str] = (),
        prefix: Mapping[str, int] | None = None,
    ) -> Schema:
        """Guess a schema from a DataFrame, frames by name, images, or a file; a warning names what is left out.

        Everything in it is `inferred`: review it before a private run (`made_public`, or `fedsynth schema review`).

        >>> import pandas as pd
        >>> Schema.draft(pd.DataFrame({"age": [20, 31, 64], "sex": ["F", "M", "F"]})).inferred()
        ('age', 'sex')
        """
        from fedsynth.data.draft import Wishes  # which need this file
        from fedsynth.data.drafting import draft_from

        wishes = Wishes(label, client_column, tuple(drop), tuple(missing), tuple(text_columns), prefix or {})
        drafted = draft_from(data, wishes)
        for note in (
            *drafted.notes,
            *(f"{name} is left out: it {why}" for name, why in drafted.left_out.items()),
        ):
            warnings.warn(note, stacklevel=3)
        return drafted.schema

    def made_public(self, name: str | None = None, **changes: Any) -> Schema:
        """The schema with a column (or all that is inferred) called public, with other bounds or categories if given.

        >>> import pandas as pd
        >>> drafted = Schema.draft(pd.DataFrame({"age": [20, 31, 64], "sex": ["F", "M", "F"]}))
        >>> drafted.made_public("age", min=0, max=110).inferred()
        ('sex',)
        >>> drafted.made_public().inferred()
        ()
        """
        from fedsynth.data.review import public_as  # which needs this file

        return public_as(self, name, changes)

    @staticmethod
    @speaks_python
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
    if "tables" in schema:
        inner = [f'"{name}": {_written(table).rstrip()}' for name, table in schema["tables"].items()]
        parts["tables"] = "{\n" + ",\n".join(inner) + "}"
    if "columns" in schema:
        lines = [json.dumps(column, ensure_ascii=False) for column in schema["columns"]]
        parts["columns"] = "[\n  " + ",\n  ".join(lines) + "]"
    return "{" + ",\n ".join(f'"{key}": {value}' for key, value in parts.items()) + "}\n"


def _linked(written: Mapping[str, Any]) -> Schema:
    """A schema of several tables."""
    from fedsynth.data.linked import LinkedSchema  # which needs this file

    known = ("version", "kind", "tables")
    problems = [f"unknown key {key!r}, {nearest(str(key), known)}" for key in written if key not in known]
    if written.get("version") != 2 or written.get("kind", "linked") != "linked":
        problems.append("tables: expected version 2 and kind 'linked' (or no kind)")
    if not isinstance(written["tables"], Mapping) or problems:
        raise BadInput("; ".join(problems or ["tables: expected an object with a table for each name"]))
    linked = LinkedSchema.from_dict(written["tables"])
    return Schema(version=2, kind="linked", columns=linked.root.schema.columns, tables=linked.tables)


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
    if schema.version != (2 if schema.tables else 1):
        problems.append(f"version {schema.version!r}: this fedsynth reads version 1, and 2 for linked tables")
    try:
        of_kind = kind_problems(schema)
    except BadInput as error:  # nobody knows the kind
        return [*problems, str(error)]
    names = [column.name for column in schema.columns]
    problems += [
        f"column {name!r} is listed twice" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    problems += of_kind + _label_problems(schema, names)
    return problems + _provenance_problems(schema, names)


def constraint_problems(schema: Schema) -> list[str]:
    """Say which constraints cannot be read."""
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
    others = [key for key in ("vocabulary", "constraints") if getattr(schema, key) or schema.inside]
    others += ["most"] if schema.inside else []
    known = [*names, "label_probabilities", *others]
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
