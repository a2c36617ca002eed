"""A schema of linked tables that persons pay for: each table as `pay_for_schema` learns it, its rows owned by persons.

How tables belong together is read from the names of tables and columns alone, which count as public. Numbers of
children are paid for as a column of the parent: their bound is the bound on children that count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from fedsynth.data.axis import FINEST
from fedsynth.data.clients import RawClients
from fedsynth.data.column import Column
from fedsynth.data.declaration import Declared, declared
from fedsynth.data.draft import Draft
from fedsynth.data.linked import MOST, LinkedTable
from fedsynth.data.linked_draft import TableLink, describe_table, links_by_name
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, BudgetExhausted
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng
from fedsynth.synthesis.paid_schema import HIDDEN, pay_for_schema


def pay_for_tables(
    frames: Mapping[str, pd.DataFrame],
    *,
    epsilon: float,
    delta: float,
    ledger: Ledger,
    rng: Rng,
    types: Sequence[Declared] = (),
    missing: tuple[str, ...] = (),
) -> Draft:
    """The schema of linked tables; tables share epsilon and delta by their numbers of columns, all paid by persons.

    A table without children of which nothing stands out of the noise is left out.
    """
    links = links_by_name({name: [str(column) for column in frame] for name, frame in frames.items()})
    owners, positions = _owners(frames, links)
    persons = len(next(iter(owners.values())))
    questions = {name: _paid_columns(name, frames, links, positions) for name in links}
    columns = sum(len(frame.columns) for frame in questions.values())
    own = {name: _of_table(name, questions[name], types) for name in links}
    _check_types(types, own)
    tables: dict[str, LinkedTable] = {}
    left_out: dict[str, str] = {}
    most = dict.fromkeys(links, MOST)
    for name, link in links.items():
        part, frame = len(questions[name].columns) / max(1, columns), questions[name]
        schema = Schema(inside=True)
        if len(frame.columns):
            raw = RawClients(owners[name], persons, (), frame)
            try:
                schema = pay_for_schema(
                    raw, epsilon=epsilon * part, delta=delta * part, ledger=ledger, rng=rng.at("table", name),
                    types=[*own[name], *map(_count_type, _children(name, links))], missing=missing,
                )  # fmt: skip
            except BudgetExhausted as error:
                if link.parent is None:
                    raise BudgetExhausted(f"table {name!r}: {error}") from None
        learned = {column.name: column for column in schema.columns}
        for child in _children(name, links):
            count = learned.pop(_count_name(child), None)
            most[child] = MOST if count is None else int(np.clip(count.bounds[1], 1, FINEST - 1))
        order = _order(learned) if link.parent else None
        if order is not None:
            learned[order] = replace(learned[order], missing=False)
        left_out |= {
            f"{name}.{column}": HIDDEN
            for column in frame
            if column not in (*learned, *map(_count_name, links))
        }
        if not learned and len(frames[name].columns) > len(link.linking) and not _children(name, links):
            continue  # a table of which nothing is known would be rows of links alone
        kept = replace(
            schema,
            inside=True,
            columns=tuple(learned.values()),
            provenance={c: schema.provenance[c] for c in learned},
        )
        tables[name] = LinkedTable(name, kept, link.id, link.parent, link.key, order, most[name])
    notes = [describe_table(table) for table in tables.values()]
    notes.append(
        "no constraint was read from rows: write into 'constraints' what is known, as discharge >= admission"
    )
    written = {name: table.to_dict() for name, table in tables.items()}
    return Draft(Schema.from_dict({"version": 2, "tables": written}), left_out, tuple(notes))


def _order(columns: Mapping[str, Column]) -> str | None:
    """The column that orders rows: the first moment."""
    return next((name for name, column in columns.items() if column.type in ("date", "timestamp")), None)


def _count_name(table: str) -> str:
    return f"{table} count"


def _count_type(table: str) -> Declared:
    return declared({"name": _count_name(table), "type": "integer", "missing": False})


def _children(name: str, links: Mapping[str, TableLink]) -> list[str]:
    return [child for child, link in links.items() if link.parent == name]


def _owners(
    frames: Mapping[str, pd.DataFrame], links: Mapping[str, TableLink]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The person of each row, and the row of its parent, table by table; rows that belong to nobody are refused."""
    owners: dict[str, np.ndarray] = {}
    positions: dict[str, np.ndarray] = {}
    for name, link in links.items():
        if link.parent is None:
            owners[name] = np.arange(len(frames[name]))
            continue
        parent = frames[link.parent]
        ids = pd.Index(parent[links[link.parent].id])
        if not ids.is_unique:
            raise BadInput(f"table {link.parent!r}: column {links[link.parent].id!r} names some rows twice")
        at = ids.get_indexer(frames[name][link.key])
        if (at < 0).any():
            raise BadInput(
                f"table {name!r}: {int((at < 0).sum())} of {len(at)} rows belong to no row of {link.parent!r}; add "
                "those rows or drop these"
            )
        positions[name], owners[name] = at, owners[link.parent][at]
    return owners, positions


def _paid_columns(
    name: str,
    frames: Mapping[str, pd.DataFrame],
    links: Mapping[str, TableLink],
    positions: Mapping[str, np.ndarray],
) -> pd.DataFrame:
    """The columns of a table that are paid for: its own, and how many children each row has."""
    frame = frames[name].drop(columns=[column for column in links[name].linking if column in frames[name]])
    counts = {
        _count_name(child): pd.Series(np.bincount(positions[child], minlength=len(frame)), frame.index)
        for child in _children(name, links)
    }
    return frame.assign(**{count: values.astype(str) for count, values in counts.items()})


def _of_table(name: str, frame: pd.DataFrame, types: Sequence[Declared]) -> list[Declared]:
    """The declarations of a table's columns, named COLUMN or TABLE.COLUMN."""
    lead, listed = f"{name}.", []
    for item in types:
        column = item.column.name.removeprefix(lead)
        if column in frame:
            listed.append(replace(item, column=replace(item.column, name=column)))
    return listed


def _check_types(types: Sequence[Declared], own: Mapping[str, list[Declared]]) -> None:
    for item in types:
        if not any(
            item.column.name in (c.column.name, f"{name}.{c.column.name}")
            for name, of in own.items()
            for c in of
        ):
            raise BadInput(
                f"declared column {item.column.name!r} is in no table; name it COLUMN or TABLE.COLUMN"
            )
