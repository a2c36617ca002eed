"""Keep what was measured, so that the same data are not measured twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.assess.scores.score import Score
from fedsynth.assess.step import Found, Step
from fedsynth.data.atomic import write_file

VERSION = 2  # to be raised when a score changes its meaning


def fingerprint(*parts: Any) -> str:
    """A hash of data, settings and texts: equal for equal content, whatever object holds it.

    >>> fingerprint(pd.DataFrame({"a": [1]}), 2) == fingerprint(pd.DataFrame({"a": [1]}), 2)
    True
    >>> fingerprint("a", "b") == fingerprint("ab")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(_bytes(part)).digest())
    return digest.hexdigest()[:32]


def _bytes(part: Any) -> bytes:
    if isinstance(part, pd.DataFrame):
        names = repr([(str(name), str(kind)) for name, kind in part.dtypes.items()]).encode()
        return names + pd.util.hash_pandas_object(part, index=False).to_numpy().tobytes()
    if isinstance(part, np.ndarray) and part.dtype != object:
        return repr((part.shape, part.dtype.str)).encode() + np.ascontiguousarray(part).tobytes()
    if isinstance(part, np.ndarray | tuple | list) and not isinstance(part, str):
        return fingerprint(*part).encode()
    return repr(part).encode()


@dataclass(frozen=True)
class Cache:
    """A folder with a file for each piece that was measured. A file that cannot be read is measured again."""

    folder: Path
    key: str

    @classmethod
    def of(cls, folder: Path | str, *parts: Any) -> Cache:
        """The cache for just these data and settings; the folder is created."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        return cls(place, fingerprint(VERSION, *parts))

    def run(self, step: Step) -> Found:
        """Return the step's kept result, or compute it now; failures are tried again."""
        file = self.folder / f"{fingerprint(self.key, step.title)}.json"
        known = _read(file, step.promises)
        if known is not None:
            return known
        result = step.run()
        if "failed" not in result.details:
            written = {"scores": [score.to_dict() for score in result.scores], "details": result.details}
            write_file(file, json.dumps(written, allow_nan=False))
        return result


def _read(file: Path, promises: Sequence[str]) -> Found | None:
    try:
        written = json.loads(file.read_text())
        scores = tuple(Score.from_dict(entry) for entry in written["scores"])
        details = dict(written["details"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Found(scores, details) if set(promises) <= {score.name for score in scores} else None
