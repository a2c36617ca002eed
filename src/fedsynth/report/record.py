"""What a page is made from: the released files for everybody, and what a run keeps to itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.data.image import read_images
from fedsynth.data.schema import Schema
from fedsynth.data.table import read_table
from fedsynth.errors import BadInput
from fedsynth.evaluation.suite import Evaluation
from fedsynth.privacy.chain import head_path
from fedsynth.privacy.ledger import Ledger, Line
from fedsynth.privacy.statement import Statement
from fedsynth.synthesis.folder import Folder

# of recipe.toml; paths, the split of simulated clients and the machine are nobody's business
PUBLISHED_SETTINGS = (
    "recipe", "label", "epsilon", "delta", "rounds", "noise_multiplier", "private", "unit", "trust", "transport",
)  # fmt: skip
_SYNTHETIC = {"table": ("synthetic.parquet",), "image": ("synthetic.npz",), "text": ("synthetic.parquet",)}
Data = pd.DataFrame | tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True)
class Released:
    """The files that may be published, read, with the hashes by which others can check them."""

    schema: Schema
    statement: Statement
    settings: Mapping[str, Any]
    arguments: Mapping[str, Any]
    synthetic: Data | None
    hashes: Mapping[str, str]  # SHA-256 by file name
    ledger_head: str | None

    @classmethod
    def read(cls, path: Path | str) -> Released:
        """Read a finished run's released files, and no other."""
        folder = Folder(path)
        recipe = folder.read_recipe()
        if not folder.finished:
            raise BadInput(
                f"{folder.path}: the run is not finished; go on with fedsynth run --out {folder.path} --resume"
            )
        schema = Schema.load(folder.schema)
        data = _synthetic_path(folder.path, schema)
        files = [folder.generator, folder.privacy, folder.schema, *([data] if data else [])]
        return cls(
            schema=schema,
            statement=Statement.load(folder.privacy),
            settings={key: recipe[key] for key in PUBLISHED_SETTINGS if key in recipe},
            arguments=recipe.get("arguments", {}),
            synthetic=read_data(data, schema) if data else None,
            hashes={file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
            ledger_head=_head(folder.ledger),
        )


@dataclass(frozen=True)
class Record:
    """A finished run with what it keeps to itself; `evaluation` is None where nothing was compared."""

    name: str
    released: Released
    lines: Sequence[Line]
    history: Sequence[Mapping[str, Any]]
    evaluation: Evaluation | None
    real: Data | None = None

    @classmethod
    def read(cls, path: Path | str, evaluation: Evaluation | None, real: Data | None = None) -> Record:
        """Read a run's folder; refuses a ledger that somebody changed."""
        folder = Folder(path)
        released = Released.read(path)
        lines = Ledger(folder.ledger).lines()
        name = folder.path.resolve().name
        return cls(name, released, lines, folder.read_history(), evaluation, real)


def read_data(path: Path | str, schema: Schema) -> Data:
    """A table or images, by the schema's kind."""
    return read_images(path) if schema.kind == "image" else read_table(path, schema)


def _synthetic_path(folder: Path, schema: Schema) -> Path | None:
    return next((folder / name for name in _SYNTHETIC[schema.kind] if (folder / name).is_file()), None)


def _head(ledger: Path) -> str | None:
    """The hash of the ledger's last line, as the file beside it tells; None for a run that released nothing."""
    path = head_path(ledger)
    if not path.exists():
        return None
    try:
        return str(json.loads(path.read_text())["hash"])
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{path}: cannot be read; see `fedsynth ledger verify {ledger.parent}`") from None
