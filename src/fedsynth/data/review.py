"""Review what a draft read from rows: what is inferred, bounds to propose, and a person's answers in the schema."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedsynth.data.column import Column
from fedsynth.data.linked import LinkedSchema
from fedsynth.data.rules import Constraint
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest

_USUAL: tuple[tuple[str, float, float], ...] = (  # what everybody knows of a quantity by its name
    (r"age|.*\bage( at .*)?", 0, 120),
    (r"month", 1, 12),
    (r"week ?day", 0, 7),
    (r"hour", 0, 23),
    (r".*\b(percent|percentage)", 0, 100),
)
_BOUNDS = re.compile(
    r"(\S+(?: \d\d:\d\d(?::\d\d)?)?)\s*(?:\bto\b|\.\.|,|\s)\s*(\S+(?: \d\d:\d\d(?::\d\d)?)?)"
)


@dataclass(frozen=True)
class Inferred:
    """Something that a draft read from rows: a column, or a list of words or constraints (then `column` is None)."""

    name: str  # as `Schema.inferred` calls it
    column: Column | None
    described: str

    @property
    def proposal(self) -> Column | None:
        """The column with bounds that are rounder and wider than those read, for a person to call public."""
        return None if self.column is None else proposed(self.column)


def inferred_in(schema: Schema) -> list[Inferred]:
    """Everything that is inferred in a schema, in its order."""
    entries = []
    for name in schema.inferred():
        part, key = _part(schema, name)
        column = next((column for column in part.columns if column.name == key), None)
        if column is not None:
            entries.append(Inferred(name, column, f"{column.type}, {column.allowed()}"))
        else:
            entries.append(Inferred(name, None, _listed(key, _values(schema, name))))
    return entries


def _listed(key: str, values: Sequence[object]) -> str:
    """Words with commas; rules one a line with their numbers."""
    if key == "constraints":
        return "".join(f"\n  {number}. {rule}" for number, rule in enumerate(values, 1))
    return ", ".join(map(str, values[:6])) + (" ..." if len(values) > 6 else "")


def proposed(column: Column) -> Column:
    """The column with round bounds around those that were read; categories stay as they are.

    >>> proposed(Column("age", "integer", min=18, max=91)).allowed()
    '0 to 120'
    >>> proposed(Column("stay", "continuous", min=0.4, max=37.5, decimals=1)).allowed()
    '0 to 50 (1 decimal)'
    >>> proposed(Column("admission", "date", min="2019-02-11", max="2021-07-30")).allowed()
    '2019-01-01 to 2021-12-31'
    """
    if column.type in ("date", "timestamp"):
        years = (str(column.min)[:4], str(column.max)[:4])
        last = f"{years[1]}-12-31" if column.type == "date" else f"{years[1]}-12-31 23:59:59"
        return replace(column, min=f"{years[0]}-01-01", max=last)
    if not column.numeric or column.moment:
        return column
    low, high = column.bounds
    spoken = re.sub(r"[_-]+", " ", column.name).strip().lower()
    for pattern, least, most in _USUAL:
        if re.fullmatch(pattern, spoken) and least <= low and high <= most:
            return _bounded(column, least, most)
    return _bounded(column, -_rounded_up(-low) if low < 0 else _rounded_down(low, high), _rounded_up(high))


def _bounded(column: Column, low: float, high: float) -> Column:
    whole = column.type == "integer"
    try:
        return replace(column, min=int(low) if whole else float(low), max=int(high) if whole else float(high))
    except BadInput:  # more values than the column can tell apart
        return column


def _rounded_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50, ... from here on; 0 stays 0, and what is below it goes to 0."""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-12))


def _rounded_down(low: float, high: float) -> float:
    """0 where it is near, else the last of 1, 2, 5, 10, 20, 50, ... before here."""
    if low <= high / 2:
        return 0.0
    power = 10.0 ** math.floor(math.log10(low))
    return next(step * power for step in (5, 2, 1) if step * power <= low * (1 + 1e-12))


def answered(column: Column, answer: str) -> Column:
    """The column as a person describes it: `0 to 120`, categories with commas, or `+ X, Y` for two more.

    >>> answered(Column("age", "integer", min=18, max=91), "0 to 110").allowed()
    '0 to 110'
    >>> answered(Column("sex", "binary", categories=("F", "M")), "+ X").allowed()
    'F, M, X'
    """
    if column.type == "id":
        raise BadInput(f"column {column.name!r}: an id is made anew and has no values; accept it, or drop it")
    if column.numeric:
        ends = _BOUNDS.fullmatch(answer.strip())
        if not ends:
            raise BadInput(f"column {column.name!r}: {answer!r} gives no bounds; write them as 0 to 120")
        low, high = (
            (ends[1], ends[2]) if column.moment else (_number(column, ends[1]), _number(column, ends[2]))
        )
        return Column.from_dict({**column.to_dict(), "min": low, "max": high})
    more = answer.strip().startswith("+")
    listed = [text.strip() for text in answer.strip().removeprefix("+").split(",") if text.strip()]
    if not listed:
        raise BadInput(
            f"column {column.name!r}: {answer!r} names no category; write them with commas between"
        )
    categories = list(dict.fromkeys([*(column.labels if more else ()), *listed]))
    kind = "categorical" if column.type == "binary" and len(categories) != 2 else column.type
    return Column.from_dict({**column.to_dict(), "type": kind, "categories": categories})


def _number(column: Column, text: str) -> float:
    try:
        return int(text) if column.type == "integer" else float(text)
    except ValueError:
        raise BadInput(
            f"column {column.name!r}: {text!r} is no {column.type} number; write bounds as 0 to 120"
        ) from None


def made_public(schema: Schema, name: str, column: Column | None = None) -> Schema:
    """The schema in which what was inferred is public, as it is or as this column."""
    return _edited(schema, name, column, "public")


def with_proposals(schema: Schema) -> Schema:
    """The schema with every proposal in it, `accepted`: nobody said of any by itself that it is publicly known."""
    for entry in inferred_in(schema):
        schema = _edited(schema, entry.name, entry.proposal, "accepted")
    return schema


def accepted_in(schema: Schema) -> tuple[str, ...]:
    """Names of what was proposed from rows and taken as public without asking."""
    parts = {"": schema} if not schema.tables else {f"{table.name}.": table.schema for table in schema.tables}
    return tuple(
        f"{lead}{name}"
        for lead, part in parts.items()
        for name, source in part.provenance.items()
        if source == "accepted"
    )


def public_as(schema: Schema, name: str | None, changes: Mapping[str, Any]) -> Schema:
    """The schema in which an inferred column is public with these changes; without a name, all are, as they are."""
    known = {entry.name: entry.column for entry in inferred_in(schema)}
    if name is None and changes:
        raise BadInput(f"{', '.join(changes)}: name the column that is to be changed")
    if name is not None and name not in known:
        raise BadInput(f"column {name!r} is not inferred; {nearest(name, known)}")
    for entry in known if name is None else (name,):
        column = known[entry]
        if changes and column is not None:
            column = Column.from_dict({**column.to_dict(), **changes})
        schema = made_public(schema, entry, column)
    return schema


def with_rules(schema: Schema, name: str, answer: str) -> Schema:
    """The schema with those of its inferred constraints that a person keeps: their numbers with commas, or none.

    >>> days = Column("days", "integer", min=0, max=9)
    >>> drafted = Schema(columns=(days,), constraints=("days > 0", "days < 8"), provenance={"constraints": "inferred"})
    >>> with_rules(drafted, "constraints", "2").constraints, with_rules(drafted, "constraints", "").inferred()
    (('days < 8',), ())
    """
    rules = _values(schema, name)
    try:
        kept = [rules[int(number) - 1] for number in answer.split(",") if number.strip() and int(number) > 0]
    except (ValueError, IndexError):
        raise BadInput(
            f"{name}: {answer!r} are no numbers of rules; write those to keep with commas, as 1, 3; k keeps all, d none"
        ) from None
    return _edited(schema, name, None, "public" if kept else None, kept)


def without(schema: Schema, name: str) -> Schema:
    """The schema without a column, and without constraints that name it; a label is not left out."""
    return _edited(schema, name, None, None)


def _values(schema: Schema, name: str) -> tuple[str, ...]:
    """Say what an entry that is no column means: constraints, or how many rows of one parent count."""
    part, key = _part(schema, name)
    table = next((table for table in schema.tables if table.schema is part), None)
    if table is None:
        return tuple(map(str, getattr(part, key)))
    return (str(table.most),) if key == "most" else (*getattr(part, key), *table.across)


def _rules_by_part(
    schema: Schema, written: dict[str, Any]
) -> list[tuple[dict[str, Any], tuple[Constraint, ...]]]:
    """The written schema, or each of its tables, with its rules, those that name columns of parents among them."""
    linked = LinkedSchema(schema.tables)
    tables = [(written["tables"][table.name], linked.rules(table)) for table in schema.tables]
    return tables or [(written, tuple(schema.rules))]


def _part(schema: Schema, name: str) -> tuple[Schema, str]:
    """The schema, or the table's, that has this entry, and what the entry is called there."""
    for table in schema.tables:
        if name.startswith(f"{table.name}."):
            return table.schema, name.removeprefix(f"{table.name}.")
    return schema, name


def _edited(
    schema: Schema, name: str, column: Column | None, source: str | None, rules: list[str] | None = None
) -> Schema:
    written = schema.to_dict()
    of, key = _part(schema, name)
    place: dict[str, Any] = written
    if of is not schema:
        place = written["tables"][name.removesuffix(f".{key}")]
    provenance = {other: mark for other, mark in place["provenance"].items() if other != key}
    place["provenance"] = provenance if source is None else {**provenance, key: source}
    if isinstance(place.get("label"), Mapping) and column is not None:
        place["label"] = {"name": column.name, "categories": list(column.labels)}
    elif rules is not None:
        place["constraints"] = rules
    elif source is None:
        if key == of.label:
            raise BadInput(f"column {key!r} is the label and cannot be dropped; choose another label first")
        place["columns"] = [entry for entry in place["columns"] if entry["name"] != key]
        if key == "most":
            place.pop("most", None)  # as many count as without a draft
        for part, rules_of in _rules_by_part(schema, written):
            called = key if part is place else name
            part["constraints"] = [rule.text for rule in rules_of if called not in rule.columns]
            if not part["constraints"]:
                del part["constraints"]
                part.get("provenance", {}).pop("constraints", None)
    elif column is not None:
        place["columns"] = [column.to_dict() if entry["name"] == key else entry for entry in place["columns"]]
    return Schema.from_dict(written)
