"""The TOML file of an inspection: data, model, selections, training, test; everything wrong with it told at once.

```toml
[data]          # as for `fedsynth run`
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
[train]         # as for `fedsynth run`
recipe = "moment_vae"
epsilon = 8
delta = 1e-4
```
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsynth.data.configuration import Key, check, keys_of, read_file
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.inspection.primary import primary_from
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.selection import Selection
from fedsynth.inspection.verdict import Simulation
from fedsynth.synthesis.request import Request

_REQUEST = keys_of(Request)
_DATA = ("schema", "client_column", "clients", "split", "split_seed", "label", "text_column")
_TRAIN = (
    "recipe", "epsilon", "delta", "rounds", "noise_multiplier", "private", "device", "seed", "accept", "arguments",
)  # fmt: skip
_KEYS = {
    "data": Key({"file": Key(str), **{name: _REQUEST[name] for name in _DATA}}, True),
    "model": Key({"onnx": Key(str), "entry_point": Key(str)}),
    "select": Key(Mapping[str, Any], True),
    "train": Key({name: _REQUEST[name] for name in _TRAIN}, True),
    "survey": Key({"share": Key(float)}),
    "test": Key({"models": Key(int), "rows": Key(int), "tolerance": Key(float)}),
    "show": Key({"examples": Key(int)}),
    "budget": Key({"total": Key(float)}),
}


def read_request(path: Path) -> tuple[Request, dict[str, Any]]:
    """Return the request (what the data are and how to train), and the whole file as it was checked."""
    keys = read_file(path)
    check(keys, _KEYS, path)
    _check_selections(path, keys["select"])
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
    examples = _number(keys, "show", "examples", 2000)
    usual = Simulation()
    simulation = Simulation(
        _number(keys, "test", "models", usual.models, 0), _number(keys, "test", "rows", usual.rows), examples
    )
    places = {
        "tolerance": ("test", "tolerance"),
        "survey_share": ("survey", "share"),
        "total": ("budget", "total"),
    }
    numbers = {field: _number(keys, table, name, least=0.0) for field, (table, name) in places.items()}
    settings = {field: float(value) for field, value in numbers.items() if value is not None}
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
        **settings,
    )


def model_keys(path: Path, keys: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys of [model], with its ONNX file beside the configuration; empty if there is no such table."""
    model = dict(keys.get("model", {}))
    if "onnx" in model:
        model["onnx"] = str(path.parent / model["onnx"])
    return model


def _check_selections(path: Path, selections: Mapping[str, Any]) -> None:
    wrong = [name for name, table in selections.items() if not isinstance(table, Mapping)]
    problems = [f"select.{name}: expected a table [select.{name}]" for name in wrong]
    odd = [name for name in selections if not name.replace("_", "").replace("-", "").isalnum()]
    problems += [f"[select.{name!r}]: a name has letters, digits, - and _ only" for name in odd]
    if problems:
        raise BadInput(f"{path}: " + "; ".join(problems))


def _selection(name: str, table: Mapping[str, Any]) -> Selection:
    try:
        return Selection.parse(table)
    except BadInput as error:
        raise BadInput(f"[select.{name}] {error}") from None


def _number(keys: Mapping[str, Any], table: str, name: str, usual: Any = None, least: float = 1) -> Any:
    """A number of a checked file; at least so much, or above 0 where `least` is that and no whole number."""
    value = keys.get(table, {}).get(name, usual)
    if value is not None and (value < least or (isinstance(least, float) and value == least)):
        bound = f"at least {least}" if isinstance(least, int) else f"above {least:g}"
        raise BadInput(f"[{table}] {name}={value!r}: expected a number, {bound}")
    return value
