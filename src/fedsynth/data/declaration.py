"""Types that the user declares before any row is read, by flags or in a file; the rows then pay only for the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsynth.data import configuration
from fedsynth.data.column import NUMBERS, TYPES, Column
from fedsynth.errors import BadInput, nearest

_EXAMPLE = (
    "expected COLUMN=TYPE or COLUMN=TYPE:decimals=2,missing, for example --type dose=continuous:decimals=1"
)

_STAND_INS: dict[str, dict[str, Any]] = {  # for what is learned
    **dict.fromkeys(NUMBERS, {"min": 0, "max": 1}),
    **dict.fromkeys(("date", "timestamp"), {"min": "2000-01-01", "max": "2000-01-02"}),
    "time": {"min": "00:00"},
    "id": {},
}


@dataclass(frozen=True)
class Declared:
    """A column as declared.

    `complete` if its bounds or categories are declared too, so that nothing of it has to be learned. Else `column`
    has stand-ins for them, and `missing` is None where the declaration does not say whether values may be missing.
    """

    column: Column
    complete: bool = False
    missing: bool | None = None


def declared(written: Any) -> Declared:
    """A declaration from the keys of a schema's column, of which bounds, categories and `missing` may be left out.

    >>> declared({"name": "dose", "type": "continuous", "decimals": 1}).missing is None
    True
    >>> declared({"name": "sex", "type": "categorical", "categories": ["F", "M"]}).complete
    True
    """
    keys = dict(written) if isinstance(written, Mapping) else {}
    kind = keys.get("type")
    stand_ins = _STAND_INS.get(str(kind), {"categories": ["-"]})
    complete = bool(set(stand_ins) & set(keys)) or not stand_ins
    if kind == "binary" and not complete:
        advice = "declare it categorical, or list its two categories"
        raise BadInput(
            f"column {keys.get('name')!r}: a binary column is declared by its categories; {advice}"
        )
    if not complete and kind in TYPES:
        keys.update(stand_ins)
    column = Column.from_dict(keys if keys else written)
    return Declared(column, complete, column.missing if complete or "missing" in keys else None)


def read_flag(text: str) -> Declared:
    """A declaration as `--type` gives it.

    >>> read_flag("dose=continuous:decimals=2,missing").column.decimals, read_flag("visits=integer,missing").missing
    (2, True)
    """
    name, equals, rest = text.partition("=")
    if not name or not equals or not rest:
        raise BadInput(f"--type {text}: {_EXAMPLE}")
    return declared({"name": name, **_options(rest, f"--type {text}")})


def read_file(path: Path) -> list[Declared]:
    """Declarations in a file: TOML with a line or a table for each column, or JSON with the columns of a schema."""
    written = configuration.read_file(path)
    if path.suffix == ".json":
        columns = written.get("columns")
        if not isinstance(columns, list):
            raise BadInput(f"--types {path}: expected the columns of a schema, {{'columns': [...]}}")
    else:
        columns = [{"name": name, **_table(keys, name, path)} for name, keys in written.items()]
    try:
        return [declared(column) for column in columns]
    except BadInput as error:
        raise BadInput(f"--types {path}: {error}") from None


def all_declared(listed: Iterable[Declared], names: Iterable[str]) -> dict[str, Declared]:
    """Declarations by column; refuses a column that is not in the table, or that is declared twice."""
    present = list(names)
    by_name: dict[str, Declared] = {}
    for item in listed:
        name = item.column.name
        if name not in present:
            raise BadInput(f"declared column {name!r} is not in the table; {nearest(name, present)}")
        if name in by_name:
            raise BadInput(f"column {name!r} is declared twice; keep one of the declarations")
        by_name[name] = item
    return by_name


def _table(keys: Any, name: str, path: Path) -> dict[str, Any]:
    if isinstance(keys, str):
        return _options(keys, f"--types {path}: {name} = {keys!r}")
    if isinstance(keys, Mapping):
        return dict(keys)
    raise BadInput(
        f"--types {path}: {name} = {keys!r}: expected a type such as 'integer', or a table of keys"
    )


def _options(text: str, where: str) -> dict[str, Any]:
    """Keys from TYPE[:decimals=N][,missing]."""
    kind, *options = re.split("[:,]", text)
    if kind not in TYPES:
        raise BadInput(f"{where}: unknown type {kind!r}, {nearest(kind, TYPES)}")
    keys: dict[str, Any] = {"type": kind}
    for option in options:
        key, _, value = option.strip().partition("=")
        if key == "missing" and value in ("", "true", "false"):
            keys["missing"] = value != "false"
        elif key == "decimals" and value.isdigit():
            keys["decimals"] = int(value)
        else:
            raise BadInput(f"{where}: unknown option {option!r}; {_EXAMPLE}")
    return keys
