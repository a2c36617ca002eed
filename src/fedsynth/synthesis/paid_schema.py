"""A schema that the rows pay for: types, bounds, categories and missing values out of three noisy sums.

Nothing in it depends on rows but through these sums and what the user declares; the names of the columns count as
public. Each unit has one vote in each column, whatever it holds:

1. types: which of its cells are missing, texts, or numbers with so many decimals (`CellShares`);
2. values: the categories that it holds, or the public buckets of its numbers (`Holdings`);
3. fit: which of its cells are missing, or have no place in what was learned (`CellShares`).

A sum moves by at most 1 in L2 norm when a unit comes or goes, over all columns together, so three Gaussian releases
are the whole cost, and half of delta for the categories (`Holdings.threshold`). What is asked in a later sum depends
on the earlier ones alone, not on rows, so adaptive composition covers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fedsynth.data.cells import KINDS, MOMENT_KINDS, TEXT, WHOLE, Cells, number_in, read_cells
from fedsynth.data.clients import Clients, RawClients
from fedsynth.data.clock import UNITS, seconds_of
from fedsynth.data.column import LARGEST_RANGE, Column
from fedsynth.data.declaration import Declared, all_declared, declared
from fedsynth.data.draft import require_columns
from fedsynth.data.draft_column import is_code, written_dtype
from fedsynth.data.schema import Schema
from fedsynth.data.values import ABSENT, OTHER, UNFIT, fit_of
from fedsynth.errors import BadInput, BudgetExhausted
from fedsynth.federation.statistics import CellShares, Holdings
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import Unit
from fedsynth.rng import Rng
from fedsynth.synthesis.paid_release import Payers, clients_with, noise_of

MOST_VALUES = 16  # of a column that one client names; a record has one

HIDDEN = (  # why a column is left out
    "holds nothing that stands out of the noise; write it into the schema with bounds or categories that are publicly "
    "known, or leave it so"
)

_POWERS = 2.0 ** np.arange(-10, 41)
_POSITIVE = np.union1d(_POWERS, np.arange(1, 17))
_EDGES = np.concatenate(
    [-_POSITIVE[::-1], [0.0], _POSITIVE]
)  # public: powers of two, and small whole numbers
_YEARS = np.arange(1900, 2101)
_YEAR_EDGES = np.array([seconds_of("date", f"{year}-01-01") for year in _YEARS], dtype=np.float64)
_WIDE = 2.0**14  # a range that a linear scale would not resolve
_TYPES, _VALUES, _FIT = 0.2, 0.6, 0.2  # parts of the budget
_RARE = 0.05  # of the cells may be cut to a column's type
_HARDLY_ANY = 0.01  # of the cells may be without a place in the column


@dataclass(frozen=True)
class _Rows:
    """The table as cells, its rows sorted by client."""

    cells: Mapping[str, Cells]
    offsets: np.ndarray

    @staticmethod
    def of(raw: RawClients, missing: tuple[str, ...]) -> _Rows:
        frame = raw.data.iloc[np.argsort(raw.owner, kind="stable")]
        cells = {str(name): read_cells(frame[name], missing) for name in frame.columns}
        return _Rows(cells, np.concatenate([[0], np.cumsum(raw.sizes)]))

    def clients(self, codes: list[np.ndarray]) -> Clients:
        """The clients with a code for each of some columns."""
        return clients_with(np.stack(codes, axis=1), self.offsets)


def pay_for_schema(
    raw: RawClients,
    *,
    epsilon: float,
    delta: float,
    ledger: Ledger,
    rng: Rng,
    unit: Unit = "client",
    label: str | None = None,
    types: Iterable[Declared] = (),
    missing: tuple[str, ...] = (),
) -> Schema:
    """The schema of a table, learned under noise but for what `types` declares; `missing` are texts for no value.

    A label is categorical unless declared otherwise. Columns that are declared whole are `public`, the others `paid`.
    A column of which nothing stands out of the noise is left out. Numbers get bounds at the public buckets in which
    more than noise was seen; categories are those that clearly more than one unit holds.
    """
    if not isinstance(raw.data, pd.DataFrame):
        raise BadInput("nothing to pay for: only the columns of a table can be learned under noise")
    require_columns(raw.data, label=label, client_column=None)
    names = [str(name) for name in raw.data.columns]
    known = all_declared(types, names)
    if label is not None and label not in known:
        known[label] = declared({"name": label, "type": "categorical", "missing": False})
    if all(name in known and known[name].complete for name in names):
        raise BadInput("nothing to pay for: every column is declared with its bounds or categories")
    kind = "categorical" if label is None else known[label].column.type
    if kind in ("continuous", "date", "time", "timestamp", "id"):
        raise BadInput(f"label {label!r} is declared {kind}; a label is categorical, ordinal or integer")
    unknown = [name for name in names if name not in known]
    parts = (*([_TYPES] if unknown else []), _VALUES, _FIT)
    *for_types, for_values, for_fit = noise_of(epsilon, delta, parts)
    rows, payers = _Rows.of(raw, missing), Payers(unit, ledger, rng)
    for noise in for_types:
        known.update(_learn_types(rows, unknown, payers, noise))
    incomplete = [known[name] for name in names if not known[name].complete]
    learned = _learn_values(rows, incomplete, payers, for_values, delta)
    learned.update({name: _as_classes(learned[name]) for name in unknown if name in learned})
    fitted = _learn_fit(rows, learned, label, payers, for_fit)
    fitted = {name: replace(column, missing_values=missing) for name, column in fitted.items()}
    public = {name: item.column for name, item in known.items() if item.complete}
    return _schema(names, {**public, **fitted}, raw.client_column, label, fitted, epsilon)


def _schema(
    names: list[str],
    columns: Mapping[str, Column],
    client: str | None,
    label: str | None,
    paid: Mapping[str, Column],
    epsilon: float,
) -> Schema:
    if not columns or (label is not None and label not in columns):
        nothing = f"of the label {label!r}" if columns else "of any column"
        raise BudgetExhausted(
            f"epsilon={epsilon:g}: nothing {nothing} stands out of the noise, and the budget is spent; "
            "declare bounds and categories, or pay more"
        )
    kept = [name for name in names if name in columns]
    return Schema(
        columns=tuple(columns[name] for name in kept),
        label=label,
        client=client,
        provenance={name: "paid" if name in paid else "public" for name in kept},
    )


def _learn_types(rows: _Rows, names: list[str], payers: Payers, noise: float) -> dict[str, Declared]:
    """Type and decimals of each column, as if they were declared, from the noisy shares of kinds of cells."""
    shares = CellShares(len(names), KINDS)
    clients = rows.clients([rows.cells[name].kinds() for name in names])
    noisy = payers.shares("types of columns", shares, clients, noise)
    return {
        name: declared({"name": name, **_type_of(block, noise)})
        for name, block in zip(names, noisy, strict=True)
    }


def _type_of(noisy: np.ndarray, noise: float) -> dict[str, str | int]:
    """The narrowest type that all but a few of the cells have, as far as the noise lets one see.

    >>> counts = [0, 3, 900, 40, 0, 0, 1, 0, 0, 0]  # missing, texts, numbers with 0, 1, ... decimals, moments
    >>> _type_of(np.array(counts), noise=1.0), _type_of(np.array([0, 900, 3, *[0] * 7]), noise=1.0)
    ({'type': 'integer'}, {'type': 'categorical'})
    """
    first = min(MOMENT_KINDS.values())
    texts, numbers = noisy[TEXT], noisy[WHOLE:first]
    present = max(noisy[TEXT:].sum(), 0.0)

    def rare(mass: float, summed: int) -> bool:
        return mass <= max(_RARE * present, 3 * noise * summed**0.5)

    for kind, place in MOMENT_KINDS.items():
        if noisy[place] > max(present / 2, 4 * noise) and rare(present - noisy[place], KINDS - 2):
            return {"type": kind}
    texts += noisy[first:][noisy[first:] > 3 * noise].sum()  # moments among other cells are texts
    if texts > numbers.sum() or not rare(texts, 1):
        return {"type": "categorical"}
    more = len(numbers) - 1
    decimals = next(d for d in range(more + 1) if rare(numbers[d + 1 :].sum(), more - d))
    if decimals == 0:
        return {"type": "integer"}
    return {"type": "continuous"} if decimals == more else {"type": "continuous", "decimals": decimals}


def _learn_values(
    rows: _Rows, incomplete: list[Declared], payers: Payers, noise: float, delta: float
) -> dict[str, Declared]:
    """Each column with its bounds or categories; without those of which nothing stands out of the noise."""
    values = [_values(item.column, rows.cells[item.column.name]) for item in incomplete]
    edges = [len(_edges(item.column)) - 1 for item in incomplete]
    sizes = tuple(
        size if texts is None else len(texts) for size, (_, texts) in zip(edges, values, strict=True)
    )
    holdings = Holdings(sizes, MOST_VALUES if payers.unit == "client" else 1)
    clients = rows.clients([codes for codes, _ in values])
    blocks, threshold = payers.holdings("bounds and categories of columns", holdings, clients, noise, delta)
    learned = {}
    for item, (_, texts), noisy in zip(incomplete, values, blocks, strict=True):
        column = (
            _bounded(item.column, np.flatnonzero(noisy > 4 * noise))  # one bucket in 30,000 is a wrong one
            if texts is None
            else _listed(item.column, texts[noisy > threshold])
        )
        if column is not None:
            learned[column.name] = replace(item, column=column)
    return learned


def _values(column: Column, cells: Cells) -> tuple[np.ndarray, np.ndarray | None]:
    """Codes of a column's cells, -1 for none, and the texts that they stand for; None for the public buckets."""
    if column.numeric:
        numbers = cells.seconds(column.type, column.format) if column.moment else cells.numbers
        places = np.searchsorted(_edges(column), numbers, side="right") - 1
        return np.where(np.isnan(numbers), -1, np.clip(places, 0, len(_edges(column)) - 2)), None
    cut = pd.Series(cells.texts, dtype=object).str[: column.prefix] if column.prefix else cells.texts
    codes, texts = pd.factorize(np.asarray(cut, dtype=object), sort=True)  # by alphabet: see Holdings
    return codes, np.asarray(texts if len(texts) else [OTHER], dtype=object)


def _edges(column: Column) -> np.ndarray:
    """The public edges of the buckets that a column's numbers are counted in."""
    return _YEAR_EDGES if column.moment else _EDGES


def _listed(column: Column, texts: np.ndarray) -> Column | None:
    by = None if column.type == "text-code" else _by_size
    kept = sorted((str(text) for text in texts if text != OTHER), key=by)
    return replace(column, categories=tuple(kept)) if kept else None


def _by_size(text: str) -> tuple[bool, float, str]:
    """Numbers by size before texts by alphabet."""
    number = number_in(text)
    return (True, 0.0, text) if np.isnan(number) else (False, number, text)


def _bounded(column: Column, shown: np.ndarray) -> Column | None:
    if not len(shown):
        return None
    if column.type == "time":
        return replace(column, min="00:00", max="23:59:59")
    if column.moment:
        return _dated(column, int(_YEARS[shown[0]]), int(_YEARS[shown[-1]]))
    low, high = float(_EDGES[shown[0]]), float(_EDGES[shown[-1] + 1])
    scale = "log" if high - low > _WIDE else "linear"
    if column.type == "integer":
        low, high = float(np.ceil(low)), float(np.ceil(high)) - 1  # a bucket ends below its upper edge
        high = max(low, high)
        if high - low < LARGEST_RANGE[scale]:
            return replace(column, min=int(low), max=int(high), scale=scale)
        return replace(column, type="continuous", min=low, max=high, scale=scale, decimals=0, dtype="Int64")
    return replace(column, min=float(np.floor(low)), max=float(np.ceil(high)), scale=scale)


def _dated(column: Column, first: int, last: int) -> Column:
    """Whole years as bounds, and the finest grain that leaves room for them."""
    clock = "" if column.type == "date" else " 23:59:59"
    seconds = (last - first + 1) * 366 * UNITS["day"]
    grain = next(
        unit for unit in ("minute", "hour", "day") if seconds / UNITS[unit] < LARGEST_RANGE["linear"]
    )
    known = column.grain if column.type == "date" or column.grain else grain
    return replace(column, min=f"{first}-01-01", max=f"{last}-12-31{clock}", grain=known)


def _as_classes(item: Declared) -> Declared:
    """Two neighboring whole numbers as two categories, such as 0 and 1."""
    column = item.column
    if column.type != "integer" or column.values != 2:
        return item
    return replace(item, column=Column(column.name, "categorical", categories=column.labels))


def _learn_fit(
    rows: _Rows, learned: dict[str, Declared], label: str | None, payers: Payers, noise: float
) -> dict[str, Column]:
    """Each column with a place for missing values and for other categories, if more than hardly any cell needs it."""
    if not learned:
        return {}
    shares = CellShares(len(learned), UNFIT + 1)
    fits = [fit_of(item.column, pd.Series(rows.cells[name].texts)) for name, item in learned.items()]
    noisy = payers.shares("missing values and rare categories", shares, rows.clients(fits), noise)
    return {
        name: _with_places(item, block, noise, name == label)
        for (name, item), block in zip(learned.items(), noisy, strict=True)
    }


def _with_places(item: Declared, noisy: np.ndarray, noise: float, is_label: bool) -> Column:
    """The column with `missing` and the category "other" as the noisy counts of cells without a place say.

    A feature gets a place unless clearly no more than hardly any cell needs it. A label, for which another class costs
    more than a few rows in a wrong one, and a column of two categories, which is no longer binary with a third, get
    "other" only if clearly more than hardly any cell needs it. A label has no missing values.
    """
    column, few = item.column, _HARDLY_ANY * max(noisy.sum(), 0.0)

    def needed(mass: float) -> bool:
        return bool(mass + 3 * noise > few)

    if is_label:
        rest = noisy[ABSENT] + noisy[UNFIT]
        return _finished(replace(column, missing=False), other=bool(rest > few + 4 * noise * 2**0.5))
    absent = noisy[ABSENT] + (noisy[UNFIT] if column.numeric else 0.0)
    missing = item.missing if item.missing is not None else needed(absent)
    two = len(column.categories or ()) == 2
    other = bool(noisy[UNFIT] > few + 4 * noise) if two else needed(noisy[UNFIT])
    return _finished(replace(column, missing=missing), other=other)


def _finished(column: Column, other: bool) -> Column:
    if column.numeric:
        return column
    categories = (*(column.categories or ()), *([OTHER] if other else []))
    if column.type != "categorical":
        return replace(column, categories=categories)
    if any(is_code(text) for text in categories):
        return replace(column, type="text-code", categories=categories)
    kind = "binary" if len(categories) == 2 else "categorical"
    return replace(column, type=kind, categories=categories, dtype=column.dtype or written_dtype(categories))
