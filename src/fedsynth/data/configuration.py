"""Configuration files, read strictly: every unknown or missing key and every value of a wrong type is told at once."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedsynth.errors import BadInput, nearest

_KINDS: dict[Any, tuple[Any, str]] = {
    str: (str, "text"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    bool: (bool, "true or false"),
    tuple: ((list, tuple), "a list"),
    Mapping: (Mapping, "a table of names and values"),
}

T = TypeVar("T")


@dataclass(frozen=True)
class Key:
    """A key of a configuration: the type of its value, or the keys of its table; whether it has to be there."""

    kind: Any
    needed: bool = False


Keys = Mapping[str, Key]


def keys_of(settings: type) -> Keys:
    """The keys of a file that stands for a dataclass; those without a default are needed."""
    types = get_type_hints(settings)
    return {
        item.name: Key(types[item.name], item.default is MISSING and item.default_factory is MISSING)
        for item in fields(settings)
        if item.init
    }


def read_file(path: Path) -> dict[str, Any]:
    """The values in a TOML file, or in a JSON file with an object."""
    kind = "JSON" if path.suffix == ".json" else "TOML"
    try:
        text = path.read_text(encoding="utf-8")
        values = json.loads(text) if kind == "JSON" else tomllib.loads(text)
    except OSError as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise BadInput(f"{path}: {why}; check the path") from None
    except ValueError as error:
        raise BadInput(f"{path}: not valid {kind} ({error}); correct it") from None
    if not isinstance(values, dict):
        raise BadInput(f"{path}: holds {type(values).__name__}; expected an object with keys")
    return values


def check(values: Mapping[str, Any], known: Keys, source: Path | str = "") -> None:
    """Refuse values that do not fit the known keys, with all that is wrong in one sentence."""
    problems = _problems(values, known, "")
    if problems:
        raise BadInput((f"{source}: " if source else "") + "; ".join(problems))


def build(settings: type[T], values: Mapping[str, Any], **others: Any) -> T:
    """The dataclass with these checked values, lists as tuples, and with `others` that are not in the file."""
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return settings(**plain, **others)


def _problems(values: Mapping[str, Any], known: Keys, table: str) -> list[str]:
    where = f"[{table}] " if table else ""
    problems = []
    for name, value in values.items():
        if name not in known:
            kind = "table" if not table and isinstance(value, Mapping) else "key"
            shown = f"[{name}]" if kind == "table" else where + name
            problems.append(f"{shown}: no such {kind}; {nearest(name, known)}")
        elif (inner := _table(known[name])) is not None:
            fits = isinstance(value, Mapping)
            problems += (
                _problems(value, inner, name) if fits else [f"{name}={value!r}: expected a table [{name}]"]
            )
        elif not _fits(value, known[name].kind):
            problems.append(f"{where}{name}={value!r}: expected {_words(known[name].kind)}")
    for name, key in known.items():
        if key.needed and name not in values:
            inner = _table(key)
            shown = f"[{name}]" if inner is not None or get_origin(key.kind) is Mapping else where + name
            problems += _problems({}, inner or {}, name) or [f"{shown}: missing"]
    return problems


def _table(key: Key) -> Keys | None:
    if isinstance(key.kind, type) and is_dataclass(key.kind):
        return keys_of(key.kind)
    return key.kind if isinstance(key.kind, Mapping) else None


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value has a type; true and false are no numbers."""
    for choice in _choices(kind):
        origin = get_origin(choice) or choice
        if choice is Any or (choice is type(None) and value is None):
            return True
        if origin is Literal:
            origin = str  # which words are allowed is told by who knows them
        wanted = _KINDS.get(origin)
        if wanted and isinstance(value, wanted[0]) and (choice is bool or not isinstance(value, bool)):
            inner = get_args(choice)[0] if origin is tuple else Any
            return origin is not tuple or all(_fits(each, inner) for each in value)
    return False


def _words(kind: Any) -> str:
    choice = next(choice for choice in _choices(kind) if choice is not type(None))
    origin = get_origin(choice) or choice
    if origin is tuple and get_args(choice)[0] in _KINDS:
        return f"a list, each {_KINDS[get_args(choice)[0]][1]}"
    return _KINDS[str if origin is Literal else origin][1]
