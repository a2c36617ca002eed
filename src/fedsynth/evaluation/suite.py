"""One call that measures a synthetic data set: every score that its kind allows, and what plots need.

Everything here is made from real rows, which no privacy budget pays for: the result is internal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.data.atomic import replacing
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.evaluation.augmentation import Sampler
from fedsynth.evaluation.cache import Cache
from fedsynth.evaluation.score import Score, load_scores, save_scores
from fedsynth.evaluation.step import Found, Step
from fedsynth.evaluation.table_steps import table_steps

INTERNAL = "internal: made from real rows"
SCORES = "scores.json"
DETAILS = "details.json"

Images = tuple[np.ndarray, np.ndarray | None]  # bytes [rows, height, width(, 3)], labels
Data = pd.DataFrame | Images | Sequence[str]
Progress = Callable[[str, int, int], None]  # title of the next piece, pieces done, pieces in all


@dataclass(frozen=True)
class Evaluation:
    """The scores of a synthetic data set, and plain data for plots.

    `details` has, where the kind of data allows it:

    - `internal`, `kind`, `label`, `rows` (`real`, `synthetic`, `test`), `seconds` by piece, `failed` by piece
    - `columns`: a list of {name, type, bins (texts), edges (numbers, or null for categories), real, synthetic
      (shares of the values that are there), missing_real, missing_synthetic, failed}
    - `associations`: {names, real, synthetic} with square matrices, -1 to 1, null where not defined
    - `marginals`: a list of {columns, ways, distance, halves}, worst first
    - `images`: {real, synthetic (rows to show), nearest: a list of {synthetic, real, distance}}
    - `texts`: {synthetic (samples), duplicates, unknown_by_position, ...}
    - `attacks`: a list of {name, false_positive_rate, true_positive_rate, auc}
    """

    scores: tuple[Score, ...]
    details: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Score:
        """The score called `name`."""
        for score in self.scores:
            if score.name == name:
                return score
        raise BadInput(f"no score {name!r}; there are: {', '.join(score.name for score in self.scores)}")

    def to_dict(self) -> dict[str, Any]:
        """Scores and details as one JSON object."""
        return {"scores": [score.to_dict() for score in self.scores], "details": self.details}

    def save(self, folder: Path | str) -> None:
        """Write scores.json and details.json into a folder, which is created."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        save_scores(self.scores, place / SCORES)
        with replacing(place / DETAILS) as temporary:
            temporary.write_text(json.dumps(self.details, allow_nan=False) + "\n")

    @classmethod
    def load(cls, folder: Path | str) -> Evaluation:
        """Read a folder that `save` wrote; without details.json there are no details."""
        place = Path(folder)
        details = place / DETAILS
        try:
            read = json.loads(details.read_text()) if details.is_file() else {}
        except (OSError, ValueError) as error:
            raise BadInput(f"{details}: cannot be read ({error}); run fedsynth evaluate again") from None
        return cls(tuple(load_scores(place / SCORES)), read)


def evaluate(
    real: Data,
    synthetic: Data,
    schema: Schema,
    *,
    test: Data | None = None,
    deep: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    cache: Path | str | None = None,
    sampler: Sampler | None = None,
) -> Evaluation:
    """Measure how faithful and useful `synthetic` is; a score that cannot be computed says why.

    `real` are the rows that the generator was trained on, `test` are real rows that it never saw. `deep` uses
    more rows, more seeds and more classifiers. `cache` is a folder that keeps what was measured: the same data
    are not measured twice. `sampler(class, rows)` makes synthetic rows of a class for a table whose rare class is
    balanced; without it they are taken out of `synthetic`.
    """
    steps = _steps(real, synthetic, schema, test, deep, seed, sampler)
    kept = Cache.of(cache, real, synthetic, schema.to_dict(), test, deep, seed) if cache else None
    details: dict[str, Any] = {
        "internal": INTERNAL,
        "kind": schema.kind,
        "label": schema.label,
        "rows": {
            "real": _rows(real),
            "synthetic": _rows(synthetic),
            "test": None if test is None else _rows(test),
        },
    }
    scores: list[Score] = []
    for done, step in enumerate(steps):
        if progress:
            progress(step.title, done, len(steps))
        found = kept.run(step) if kept else step.run()
        scores += found.scores
        _merge(details, found)
    if progress:
        progress("done", len(steps), len(steps))
    return Evaluation(tuple(scores), details)


def _rows(data: Data) -> int:
    return len(data[0]) if isinstance(data, tuple) else len(data)


def _merge(details: dict[str, Any], found: Found) -> None:
    """Add a step's details; topics that are objects are joined."""
    for topic, value in found.details.items():
        known = details.get(topic)
        details[topic] = {**known, **value} if isinstance(known, Mapping) else value


def _steps(
    real: Data,
    synthetic: Data,
    schema: Schema,
    test: Data | None,
    deep: bool,
    seed: int,
    sampler: Sampler | None,
) -> Sequence[Step]:
    if schema.kind == "table":
        for what, frame in (("real", real), ("synthetic", synthetic), ("test", test)):
            if frame is not None and not isinstance(frame, pd.DataFrame):
                raise BadInput(f"{what}: the schema is of a table; expected a pandas DataFrame")
        assert isinstance(real, pd.DataFrame) and isinstance(synthetic, pd.DataFrame)
        assert test is None or isinstance(test, pd.DataFrame)
        return table_steps(real, synthetic, schema, test=test, deep=deep, seed=seed, sampler=sampler)
    raise BadInput(f"data of kind {schema.kind!r} cannot be measured; expected kind 'table'")
