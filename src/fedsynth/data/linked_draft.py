"""Guess how tables belong together: which column identifies a row, which names its parent, which orders it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from fedsynth.data.draft import Draft, Wishes, draft_schema
from fedsynth.data.linked import MOST, LinkedTable
from fedsynth.data.linked_rules import numbered_by, with_rules
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput

_ID = re.compile(r".*\b(id|key|number|no)$|.*(?<=[a-z])Id$", re.IGNORECASE)
_BOUNDS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, MOST)  # of numbers of children
_FEW_REPEATS = 0.1  # of an id's rows: more, and it is the key of another table's rows
_BARE = ("id", "key", "number", "no")  # names of ids that say nothing of whose they are


def draft_linked(frames: Mapping[str, pd.DataFrame], wishes: Wishes | None = None) -> Draft:
    """A schema that these tables fit; its notes say how the tables were found to belong together.

    >>> person = pd.DataFrame({"person id": [1, 2], "age": [20, 31]})
    >>> visit = pd.DataFrame({"person id": [1, 1, 2], "day": ["2020-01-01", "2020-02-01", "2020-01-01"]})
    >>> draft_linked({"person": person, "visit": visit}).notes[-1].split(";")[0]
    "table 'visit': rows belong to 'person' by 'person id' and are ordered by 'day'"
    """
    wishes = wishes or Wishes()
    empty = [name for name, frame in frames.items() if frame.empty]
    frames = {name: frame for name, frame in frames.items() if name not in empty}
    if not frames:
        raise BadInput(f"tables {', '.join(empty)}: none of them has a row; expected at least persons")
    ids = {name: _ids(frame) for name, frame in frames.items()}
    links = {name: _parent(name, frames, ids) for name in frames}
    doubtful = {name for name, (_, key) in links.items() if key is None or _letters(key) in _BARE}
    if len(doubtful) > 1:
        links |= _by_name(frames, doubtful)
    _refuse_ids_that_are_there_twice(frames, links, ids)
    tables: dict[str, LinkedTable] = {}
    left_out: dict[str, str] = {}
    for name, frame in frames.items():
        parent, key = links[name]
        own = _own_id(name, frame, ids, key)
        inherited = [column for column in frame if _belongs_above(str(column), name, links, ids)]
        drop = [str(column) for column in frame if column in (own, key) or column in inherited]
        kept = replace(
            wishes, label=None, client=None, drop=tuple({*drop, *(c for c in wishes.drop if c in frame)})
        )
        kept = replace(kept, texts=tuple(c for c in wishes.texts if c in frame))
        kept = replace(kept, prefixes={c: n for c, n in wishes.prefixes.items() if c in frame})
        try:
            bare = {*map(str, frame)} <= {*kept.drop}
            drafted = Draft(Schema(inside=True)) if bare else draft_schema(frame, kept, rules=False)
        except BadInput as error:
            raise BadInput(f"table {name!r}: {error}") from None
        left_out |= {f"{name}.{column}": reason for column, reason in drafted.left_out.items()}
        moments = [
            c.name for c in drafted.schema.columns if c.type in ("date", "timestamp") and not c.missing
        ]
        order = None
        if key is not None:
            order = moments[0] if moments else numbered_by(drafted.schema, frame, key)
        schema, most = drafted.schema, MOST
        if key is not None:
            most = next(bound for bound in _BOUNDS if bound >= min(MOST, frame[key].value_counts().max()))
            schema = replace(schema, inside=True, provenance={**schema.provenance, "most": "inferred"})
        tables[name] = LinkedTable(name, schema, own, parent, key, order, most)
    tables = with_rules(tables, frames)
    notes = [describe_table(table) + _beyond(table, frames[name]) for name, table in tables.items()]
    notes += [f"table {name!r}: has no rows and is left out of the schema" for name in empty]
    written = {name: table.to_dict() for name, table in tables.items()}
    return Draft(Schema.from_dict({"version": 2, "tables": written}), left_out, tuple(notes))


def _ids(frame: pd.DataFrame) -> list[str]:
    """The columns that could identify a row: named so, and never twice the same."""
    return [
        str(c)
        for c in frame
        if _ID.fullmatch(str(c).replace("_", " ")) and frame[c].is_unique and frame[c].notna().all()
    ]


def _parent(
    name: str, frames: Mapping[str, pd.DataFrame], ids: Mapping[str, list[str]]
) -> tuple[str | None, str | None]:
    """The table whose id stands in this one too, and that column; of several the one whose name it bears."""
    shared = [
        (other, key)
        for other in frames
        if other != name
        for key in ids[other]
        if key in frames[name]
        and (key not in ids[name] or _named(key, other) or len(frames[other]) > len(frames[name]))
        and frames[name][key].isin(frames[other][key]).mean() > 0.5
    ]
    return max(
        shared, key=lambda link: (_named(link[1], link[0]), len(frames[link[0]])), default=(None, None)
    )


def _refuse_ids_that_are_there_twice(
    frames: Mapping[str, pd.DataFrame],
    links: Mapping[str, tuple[str | None, str | None]],
    ids: Mapping[str, list[str]],
) -> None:
    """Say which id names two rows, where that leaves rows without a parent."""
    parents = {parent for parent, _ in links.values()}
    roots = [name for name, (parent, _) in links.items() if parent is None]
    for name in (name for name in roots if len(roots) > 1 or (name in parents and not ids[name])):
        others = {str(column) for other in frames if other != name for column in frames[other]}
        for column in (str(column) for column in frames[name] if column in others):
            repeated = frames[name][column].duplicated()
            if _ID.fullmatch(column.replace("_", " ")) and 0 < repeated.mean() < _FEW_REPEATS:
                raise BadInput(
                    f"table {name!r}: column {column!r} is in other tables too, but "
                    f"{frames[name][column][repeated].iloc[0]} is there twice; an id names one row: drop one of them"
                )


def _by_name(
    frames: Mapping[str, pd.DataFrame], doubtful: set[str]
) -> dict[str, tuple[str | None, str | None]]:
    """The links of some tables by names alone, as `person_id` names the `id` of table person; none if that fails."""
    try:
        named = links_by_name({name: [*map(str, frame)] for name, frame in frames.items()})
    except BadInput:
        return {}
    return {name: (named[name].parent, named[name].key) for name in doubtful}


def _named(column: str, table: str) -> bool:
    """Whether a column bears a table's name, as "visit id" does: it decides where each row has one in both tables."""
    return column.lower().startswith(table.lower())


def _own_id(name: str, frame: pd.DataFrame, ids: Mapping[str, list[str]], key: str | None) -> str | None:
    """The column that identifies a row, the one named as the table first."""
    own = [column for column in ids[name] if column != key]
    return min(own, key=lambda column: not _named(column, name), default=None)


def _belongs_above(
    column: str, name: str, links: Mapping[str, tuple[str | None, str | None]], ids: Mapping[str, list[str]]
) -> bool:
    """Whether a column is the id of a parent's parent: it follows from the parent's row."""
    above = links[name][0]
    while above is not None:
        if column in ids[above]:
            return True
        above = links[above][0]
    return False


def describe_table(table: LinkedTable) -> str:
    """Say in a sentence how a table belongs to the others."""
    if table.parent is None:
        return f"table {table.name!r}: each row is a person" + (
            f", called by {table.id!r}" if table.id else ""
        )
    ordered = f" and are ordered by {table.order!r}" if table.order else ", in no order"
    rules = "".join(f"; in all rows {rule}" for rule in (*table.schema.constraints, *table.across))
    first = "first counts" if table.most == 1 else f"first {table.most} count"
    bound = f"; of one {table.parent}'s rows the {first}"
    return f"table {table.name!r}: rows belong to {table.parent!r} by {table.key!r}{ordered}{rules}{bound}"


def _beyond(table: LinkedTable, frame: pd.DataFrame) -> str:
    """How many rows do not count."""
    if table.key is None:
        return ""
    beyond = int((frame[table.key].value_counts() - table.most).clip(lower=0).sum())
    return f" ({beyond} of {len(frame)} rows are further ones)" if beyond else ""


@dataclass(frozen=True)
class TableLink:
    """How a table belongs to others: its own id, its parent, the column that names the parent's row, ids of others."""

    id: str | None
    parent: str | None
    key: str | None
    others: tuple[str, ...] = ()  # ids of a parent's parents

    @property
    def linking(self) -> tuple[str, ...]:
        """All columns that only link."""
        return tuple(name for name in (self.id, self.key, *self.others) if name is not None)


def links_by_name(columns: Mapping[str, Sequence[str]]) -> dict[str, TableLink]:
    """How tables belong together by the names of tables and columns alone, parents first.

    >>> links_by_name({"visits": ["id", "person_id", "day"], "person": ["person_id", "age"]})["visits"]
    TableLink(id='id', parent='person', key='person_id', others=())
    """
    names = {table: {table.lower(), table.lower().rstrip("s")} for table in columns}
    ids: dict[str, str | None] = {}
    for table, own in columns.items():
        called = {f"{one}{word}" for one in {*names[table], ""} for word in _BARE}
        ids[table] = next((c for c in own if _letters(c) in called), None)
    keys: dict[str, dict[str, str]] = {}  # by table and parent
    for table, own in columns.items():
        keys[table] = {}
        for other in (other for other in columns if other != table and ids[other] is not None):
            called = {f"{one}{word}" for one in names[other] for word in _BARE}
            key = next((c for c in own if _letters(c) in called and c != ids[table]), None)
            if key is not None:
                keys[table][other] = key
    links: dict[str, TableLink] = {}
    while len(links) < len(columns):
        ready = [t for t in columns if t not in links and all(other in links for other in keys[t])]
        if not ready:
            raise BadInput(f"tables {', '.join(sorted({*columns} - {*links}))}: they name each other's ids")
        for table in ready:
            nearest_ones = [
                other for other in keys[table] if not any(other in keys[one] for one in keys[table])
            ]
            if len(nearest_ones) > 1:
                raise BadInput(
                    f"table {table!r}: names rows of {' and '.join(nearest_ones)}; --pay takes a table with one "
                    "parent: leave one of the columns out with --drop"
                )
            parent = nearest_ones[0] if nearest_ones else None
            others = tuple(key for other, key in keys[table].items() if other != parent)
            links[table] = TableLink(ids[table], parent, keys[table].get(parent or ""), others)
    roots = [table for table, link in links.items() if link.parent is None]
    if len(roots) != 1:
        raise BadInput(
            f"{len(roots)} tables ({', '.join(roots)}) name no row of another; expected one, that of the persons: a "
            "column 'person id' in table 'visit' names a row of table 'person' that has such a column too"
        )
    return links


def _letters(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())
