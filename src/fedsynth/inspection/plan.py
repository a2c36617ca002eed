"""The part of an inspection that sites receive: one step after the other, as data. No code travels, and no price.

A step is a run of its own at a site. Its plan names the selections (as tables of TOML would), the noise of questions,
and the model that judges rows: an ONNX file by its hash, or something that the site has installed by its name.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedsynth.errors import BadInput
from fedsynth.inspection.selection import Selection
from fedsynth.inspection.step import MEETING, SHARES, SLICES, InspectionQuestion, SelectionTraining, Step

_KEYS = ("name", "selections", "noise", "onnx", "entry_point", "step")
_STEP_KEYS = ("kind", "name", "place", "of")


def hash_of(content: bytes) -> str:
    """The name of a model's bytes."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class ModelSource:
    """Where the model comes from: `onnx` is the SHA-256 of a file that travels, `entry_point` is installed; or none."""

    onnx: str = ""
    entry_point: str = ""


@dataclass(frozen=True)
class InspectionPlan:
    """One step of an inspection, and all that the inspection will ask for."""

    name: str  # those of its runs begin with it
    selections: Mapping[str, Selection]  # as asked for: their number is the number of models
    noise: float | None  # of each question; None without privacy
    source: ModelSource
    step: Step

    @property
    def run(self) -> str:
        """The name of this step's run."""
        return f"{self.name}-{self.step.kind}-{self.step.place}"

    def to_dict(self) -> dict[str, Any]:
        """JSON values, for the terms of the run."""
        return {
            "name": self.name,
            "selections": {name: _table(selection) for name, selection in self.selections.items()},
            "noise": self.noise,
            "onnx": self.source.onnx,
            "entry_point": self.source.entry_point,
            "step": {
                "kind": self.step.kind,
                "name": self.step.name,
                "place": self.step.place,
                "of": [_table(selection) for selection in self.step.of],
            },
        }

    @classmethod
    def from_dict(cls, keys: Mapping[str, Any]) -> InspectionPlan:
        """Read what `to_dict` wrote; anything else is refused."""
        _check_keys("inspection", keys, _KEYS)
        noise, named = keys["noise"], keys["selections"]
        if noise is not None and not (isinstance(noise, (int, float)) and math.isfinite(noise) and noise > 0):
            raise BadInput(f"inspection: noise={noise!r}: expected a number above 0, or none")
        if not isinstance(named, Mapping) or not 1 <= len(named) <= 2:
            raise BadInput("inspection: expected one selection or two")
        texts = [keys[key] for key in ("name", "onnx", "entry_point")]
        if not all(isinstance(text, str) for text in texts) or not keys["name"]:
            raise BadInput("inspection: name, onnx and entry_point are texts, and the name is not empty")
        source = ModelSource(keys["onnx"], keys["entry_point"])
        if source.onnx and source.entry_point:
            raise BadInput("inspection: expected one model, not an ONNX file and an entry point")
        selections = {str(name): _selection(table) for name, table in named.items()}
        return cls(keys["name"], selections, noise, source, _step(keys["step"]))


def _step(keys: Any) -> Step:
    _check_keys("step", keys, _STEP_KEYS)
    kind, place, tables = keys["kind"], keys["place"], keys["of"]
    if type(place) is not int or not 0 <= place < 10 or not isinstance(tables, list) or not tables:
        raise BadInput(
            f"step: place={place!r} of {type(tables).__name__}: expected a small number and a list"
        )
    of = tuple(_selection(table) for table in tables)
    if kind == SelectionTraining.kind and len(of) == 1:
        return SelectionTraining(str(keys["name"]), of, place)
    if kind == MEETING or (kind in (SHARES, SLICES) and len(of) == 1):
        return InspectionQuestion(kind, of, place)
    raise BadInput(f"step: kind={kind!r} about {len(of)} selections: no such step")


def _table(selection: Selection) -> dict[str, Any]:
    """A selection's keys; classes that were asked for go along."""
    classes = selection.criterion.classes
    return {**selection.table, **({"classes": list(classes)} if classes else {})}


def _selection(table: Any) -> Selection:
    if not isinstance(table, Mapping):
        raise BadInput(f"inspection: a selection is {type(table).__name__}; expected a table")
    keys = dict(table)
    classes = keys.pop("classes", [])
    selection = Selection.parse(keys)
    if not classes:
        return selection
    if not (selection.criterion.by_class and all(type(number) is int for number in classes)):
        raise BadInput("inspection: classes are numbers, for the criterion weak_slices")
    return replace(selection, criterion=replace(selection.criterion, classes=tuple(classes)))


def _check_keys(what: str, table: Any, expected: tuple[str, ...]) -> None:
    if not isinstance(table, Mapping) or set(table) != set(expected):
        raise BadInput(f"{what}: expected the keys {', '.join(expected)}")
