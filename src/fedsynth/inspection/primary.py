"""The model that a modeler wants to debug, as it runs at a client: an ONNX file or something the site has installed.

No code travels: an ONNX file holds a graph of numbers, and an entry point names what is installed at the site already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from fedsynth.data.clients import RawClients, encode_clients
from fedsynth.data.modality import modality_of
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest
from fedsynth.inspection.unlabelled import strip_labels, without_label

GROUP = "fedsynth.primary"


class Primary(Protocol):
    """Scores of rows: [rows, classes] from a classifier, [rows] from a model of how likely a row is."""

    def __call__(self, rows: RawClients) -> np.ndarray:
        """The scores of one client's rows; whatever it raises makes that client sit out."""


@dataclass(frozen=True)
class Installed:
    """A function of images [rows, height, width(, 3)], of a table without its label, or of a list of texts."""

    function: Callable[[Any], Any]
    schema: Schema

    def __call__(self, rows: RawClients) -> np.ndarray:
        """Hand over the plain rows."""
        return np.asarray(self.function(modality_of(self.schema).inputs(rows.data)))


@dataclass(frozen=True)
class Graph:
    """An ONNX graph of encoded rows: images as numbers in [0, 1], tables and texts as the schema encodes them."""

    run: Callable[[np.ndarray], np.ndarray]
    schema: Schema

    def __call__(self, rows: RawClients) -> np.ndarray:
        """Encode the rows by the public schema and run the graph; a label is not part of its input."""
        encoded = encode_clients(strip_labels(rows, self.schema), without_label(self.schema)).x
        numbers = encoded.numpy().astype(np.float32)
        return self.run(numbers / 255 if encoded.dtype == torch.uint8 else numbers)


def primary_from(schema: Schema, *, onnx: str | None = None, entry_point: str | None = None) -> Primary:
    """The model that a configuration names; exactly one of the two."""
    if (onnx is None) == (entry_point is None):
        raise BadInput("model: expected one of onnx = FILE and entry_point = NAME")
    if entry_point is not None:
        return installed(schema, entry_point)
    return graph_from(schema, read_model(Path(onnx or "")), str(onnx))


def read_model(path: Path) -> bytes:
    """The bytes of an ONNX file."""
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file; check the path of the ONNX model")
    return path.read_bytes()


def graph_from(schema: Schema, content: bytes, where: str) -> Graph:
    """The ONNX model in these bytes, if it takes rows as the schema encodes them."""
    from fedsynth.inspection.onnx_graph import load_graph

    shape = modality_of(without_label(schema)).shape
    return Graph(load_graph(content, shape, (len(schema.classes), 1), where), schema)


def check_entry_point(name: str) -> None:
    """Refuse a name under which nothing is installed here."""
    installed = _entry_points()
    if name not in installed:
        raise BadInput(
            f"entry_point={name!r}: nothing of that name is installed in the group {GROUP}; {nearest(name, installed)}"
        )


def installed(schema: Schema, name: str) -> Installed:
    """The model that is installed here under a name."""
    check_entry_point(name)
    return Installed(_entry_points()[name].load(), schema)


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def class_scores(model: Primary, rows: RawClients, classes: int) -> np.ndarray:
    """A classifier's scores [rows, classes]; anything else is refused."""
    scores = np.asarray(model(rows), dtype=np.float64)
    if scores.shape != (rows.rows, classes) or not np.isfinite(scores).all():
        raise BadInput(
            f"the model gave scores of shape {scores.shape}; expected [rows, {classes}], all finite"
        )
    return scores


def row_scores(model: Primary, rows: RawClients) -> np.ndarray:
    """One number a row; anything else is refused."""
    scores = np.asarray(model(rows), dtype=np.float64)
    if scores.shape not in ((rows.rows,), (rows.rows, 1)) or not np.isfinite(scores).all():
        raise BadInput(f"the model gave scores of shape {scores.shape}; expected one finite number per row")
    return scores.reshape(-1)
