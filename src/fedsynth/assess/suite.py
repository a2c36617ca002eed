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

from fedsynth.assess.attacks.shadow_game import ShadowGame, Tell
from fedsynth.assess.attacks.table_attacks import Claim
from fedsynth.assess.cache import Cache
from fedsynth.assess.image_steps import Images, image_steps
from fedsynth.assess.metric import metric_steps
from fedsynth.assess.scores.augmentation import Sampler
from fedsynth.assess.scores.features import FeatureNetwork
from fedsynth.assess.scores.reader import Reader
from fedsynth.assess.scores.score import Score, load_scores, save_scores
from fedsynth.assess.step import Found, Step
from fedsynth.assess.table_steps import table_steps
from fedsynth.assess.text_steps import text_steps
from fedsynth.data.atomic import write_file
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput

INTERNAL = "internal: made from real rows"
SCORES = "scores.json"
DETAILS = "details.json"

Data = pd.DataFrame | Images | Sequence[str]
_EXPECTED = {
    "table": "a pandas DataFrame",
    "image": "a pair of uint8 images [rows, height, width(, 3)] and their labels or None",
    "text": "a list of texts",
}
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
    - `attacks`: a list of {name, auc, false_positive_rate, true_positive_rate, ceiling, above_ceiling}
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
        write_file(place / DETAILS, json.dumps(self.details, allow_nan=False) + "\n")

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
    network: FeatureNetwork | None = None,
    claim: Claim | None = None,
    shadows: ShadowGame | None = None,
    classifiers: Sequence[str] = (),
    reader: Reader | None = None,
) -> Evaluation:
    """Measure how faithful and useful `synthetic` is; a score that cannot be computed says why.

    `real` are the rows that the generator was trained on, `test` are real rows that it never saw. `deep` uses
    more rows, more seeds and more classifiers. `cache` is a folder that keeps what was measured: the same data
    are not measured twice. `sampler(class, rows)` makes synthetic rows of a class for a table whose rare class is
    balanced; without it they are taken out of `synthetic`. `network` gives the features that images are compared
    on; without it, a LeNet is trained on the real ones. `claim` is the privacy that attacks on a table, which need
    `test`, are set beside. `shadows` is the recipe of the run, which `deep` trains many times over to see whether
    that tells who was in. `reader` is the model that wrote texts, which is tested on unseen ones. `classifiers` by
    name, or "all", are used instead of the usual ones. Where the schema names a client column and the tables have it,
    nobody is held out in part and nobody is asked about twice.
    """
    stage = _Stage(progress)
    steps = _steps(
        real,
        synthetic,
        schema,
        test,
        deep=deep,
        seed=seed,
        sampler=sampler,
        network=network,
        claim=claim,
        shadows=shadows,
        tell=stage.within,
        classifiers=classifiers,
        reader=reader,
    )
    known = (network.setting() if network else None, claim, sampler is not None, shadows, reader)
    kept = Cache.of(cache, real, synthetic, schema.to_dict(), test, deep, seed, *known) if cache else None
    steps = [*steps, *metric_steps(real, synthetic, schema)]
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
        stage.reach(step.title, done, len(steps))
        result = kept.run(step) if kept else step.run()
        scores += result.scores
        _merge(details, result)
    stage.reach("done", len(steps), len(steps))
    return Evaluation(tuple(scores), details)


class _Stage:
    """Which piece is at work, so that a long one can say how far it is."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._done, self._pieces = progress, 0, 0

    def reach(self, title: str, done: int, pieces: int) -> None:
        self._done, self._pieces = done, pieces
        self.within(title)

    def within(self, title: str) -> None:
        if self._progress:
            self._progress(title, self._done, self._pieces)


def _rows(data: Data) -> int:
    return len(data[0]) if isinstance(data, tuple) else len(data)


def _merge(details: dict[str, Any], result: Found) -> None:
    """Add a step's details; topics that are objects or lists are joined."""
    for topic, value in result.details.items():
        known = details.get(topic)
        if isinstance(known, Mapping):
            details[topic] = {**known, **value}
        else:
            details[topic] = [*known, *value] if isinstance(known, list) else value


def _steps(
    real: Data,
    synthetic: Data,
    schema: Schema,
    test: Data | None,
    *,
    deep: bool,
    seed: int,
    sampler: Sampler | None,
    network: FeatureNetwork | None,
    claim: Claim | None,
    shadows: ShadowGame | None,
    tell: Tell,
    classifiers: Sequence[str],
    reader: Reader | None,
) -> Sequence[Step]:
    data_sets = {"real": real, "synthetic": synthetic, "test": test}
    for what, data in data_sets.items():
        if data is not None and not _fits(data, schema.kind):
            raise BadInput(
                f"{what} data: the schema is of kind {schema.kind!r}; expected {_EXPECTED[schema.kind]}"
            )
    parts: dict[str, Any] = {"test": test, "deep": deep, "seed": seed}
    if schema.kind == "image":
        parts |= {"network": network, "classifiers": classifiers}
        return image_steps(real, synthetic, schema, **parts)  # type: ignore[arg-type]
    if schema.kind == "text":
        return text_steps(real, synthetic, schema, **parts, reader=reader)  # type: ignore[arg-type]
    parts |= {
        "sampler": sampler,
        "claim": claim,
        "shadows": shadows,
        "tell": tell,
        "classifiers": classifiers,
    }
    return table_steps(real, synthetic, schema, **parts)  # type: ignore[arg-type]


def _fits(data: Data, kind: str) -> bool:
    if kind == "table":
        return isinstance(data, pd.DataFrame)
    if kind == "image":
        return isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], np.ndarray)
    return isinstance(data, Sequence) and not isinstance(data, str) and all(isinstance(t, str) for t in data)
