"""The TOML file of an inspection: data, model, selections, training, test; everything wrong with it told at once.

```toml
[data]          # what `fedsynth run` is told of the data
file = "scans.npz"
schema = "schema.json"
client_column = "owner"
[model]         # onnx = FILE, or entry_point = NAME
onnx = "classifier.onnx"
[select.bad]
by = "user"
criterion = "correct"
below = "25%"
[select.good]
by = "user"
criterion = "correct"
above = "75%"
[train]         # what `fedsynth run` is told of training
recipe = "moment_vae"
epsilon = 8
delta = 1e-4
```
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest
from fedsynth.inspection.primary import primary_from
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.selection import Selection
from fedsynth.inspection.verdict import Simulation
from fedsynth.synthesis.request import Request, read_toml

_DATA = ("file", "schema", "client_column", "clients", "split", "split_seed", "label", "text_column")
_TRAIN = (
    "recipe", "epsilon", "delta", "rounds", "noise_multiplier", "private", "device", "seed", "accept", "arguments",
)  # fmt: skip
_TABLES: dict[str, tuple[str, ...]] = {
    "data": _DATA,
    "model": ("onnx", "entry_point"),
    "train": _TRAIN,
    "survey": ("share",),
    "test": ("models", "rows", "tolerance"),
    "show": ("examples",),
    "budget": ("total",),
}


def read_request(path: Path) -> tuple[Request, dict[str, Any]]:
    """What the data are and how to train, and the whole file as it was checked."""
    keys = read_toml(path)
    problems = _problems(keys)
    if problems:
        raise BadInput(f"{path}: " + "; ".join(problems))
    data, train = dict(keys["data"]), dict(keys["train"])
    for name in ("file", "schema"):
        if name in data:
            data[name] = str(path.parent / data[name])
    named = {"data": data.pop("file", None), **data, **train}
    return Request.from_toml({name: value for name, value in named.items() if value is not None}), keys


def inspection_of(
    path: Path, keys: Mapping[str, Any], request: Request, schema: Schema, *, here: bool = True
) -> Inspection:
    """The inspection that a checked file asks for; its model is read if it runs `here` and not at sites."""
    selections = {name: _selection(name, table) for name, table in keys["select"].items()}
    test = keys.get("test", {})
    number = _Numbers(keys)
    examples = number.whole("show", "examples", 2000)
    usual = Simulation()
    simulation = Simulation(
        number.whole("test", "models", usual.models, 0), number.whole("test", "rows", usual.rows), examples
    )
    given = {"tolerance": number.real("test", "tolerance")} if "tolerance" in test else {}
    given |= {"survey_share": number.real("survey", "share")} if keys.get("survey") else {}
    given |= {"total": number.real("budget", "total")} if keys.get("budget") else {}
    model = model_keys(path, keys)
    needed = [name for name, selection in selections.items() if selection.criterion.needs_model]
    if needed and not model:
        raise BadInput(
            f"[select.{needed[0]}] criterion {keys['select'][needed[0]]['criterion']!r} needs a model; "
            "name one under [model]"
        )
    return Inspection(
        request,
        schema,
        selections,
        primary_from(schema, **model) if model and here else None,
        simulation,
        shown=examples,
        **given,
    )


def model_keys(path: Path, keys: Mapping[str, Any]) -> dict[str, str]:
    """What [model] names, an ONNX file beside the configuration; nothing if there is no such table."""
    model = dict(keys.get("model", {}))
    if "onnx" in model:
        model["onnx"] = str(path.parent / model["onnx"])
    return model


def _problems(keys: Mapping[str, Any]) -> list[str]:
    known = [*_TABLES, "select"]
    found = [f"[{name}]: no such table; {nearest(name, known)}" for name in keys if name not in known]
    found += [f"[{name}] is missing" for name in ("data", "select", "train") if name not in keys]
    for name, table in keys.items():
        if not isinstance(table, Mapping):
            found.append(f"{name}={table!r}: expected a table [{name}]")
        elif name in _TABLES:
            allowed = _TABLES[name]
            found += [
                f"[{name}] {key}: no such key; {nearest(key, allowed)}" for key in table if key not in allowed
            ]
    selections = keys.get("select")
    if isinstance(selections, Mapping):
        wrong = [name for name, table in selections.items() if not isinstance(table, Mapping)]
        found += [f"select.{name}: expected a table [select.{name}]" for name in wrong]
        odd = [name for name in selections if not name.replace("_", "").replace("-", "").isalnum()]
        found += [f"[select.{name!r}]: a name has letters, digits, - and _ only" for name in odd]
    return found


def _selection(name: str, table: Mapping[str, Any]) -> Selection:
    try:
        return Selection.parse(table)
    except BadInput as error:
        raise BadInput(f"[select.{name}] {error}") from None


class _Numbers:
    """Numbers of a file's tables, with the table's name in what is wrong with them."""

    def __init__(self, keys: Mapping[str, Any]) -> None:
        self._keys = keys

    def whole(self, table: str, name: str, usual: int, least: int = 1) -> int:
        return int(
            self._read(table, name, usual, lambda v: isinstance(v, int) and v >= least, f"at least {least}")
        )

    def real(self, table: str, name: str) -> float:
        return float(
            self._read(table, name, None, lambda v: isinstance(v, (int, float)) and v > 0, "above 0")
        )

    def _read(self, table: str, name: str, usual: Any, fits: Callable[[Any], bool], expected: str) -> Any:
        value = self._keys.get(table, {}).get(name, usual)
        if isinstance(value, bool) or not fits(value):
            raise BadInput(f"[{table}] {name}={value!r}: expected a number, {expected}")
        return value
