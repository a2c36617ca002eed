"""One call that measures a synthetic data set: every score that its kind allows, and what plots need.

Everything here is made from real rows, which no privacy budget pays for: the result is internal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsynth.assess.cache import Cache
from fedsynth.assess.history_steps import history_steps
from fedsynth.assess.image_steps import image_steps
from fedsynth.assess.metric import metric_steps
from fedsynth.assess.scores.score import Score, load_scores, save_scores
from fedsynth.assess.step import Comparison, Found, Step
from fedsynth.assess.table_steps import table_steps
from fedsynth.assess.text_steps import text_steps
from fedsynth.data.atomic import write_file
from fedsynth.data.modality import Data, for_kind, kinds_of, modality_of
from fedsynth.data.notebook import card
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, nearest

INTERNAL = "internal: made from real rows"
SCORES = "scores.json"
DETAILS = "details.json"

Progress = Callable[[str, int, int], None]  # title of the next piece, pieces done, pieces in all


@dataclass(frozen=True)
class Evaluation:
    """The scores of a synthetic data set, and plain data for plots.

    `details` has, where the kind of data allows it:

    - `internal`, `kind`, `label`, `rows` (`real`, `synthetic`, `test`), `seconds` by piece, `failed` by piece
    - `columns`: a list of {name, type, bins (texts), edges (numbers, or null for categories), real, synthetic
      (shares of the values that are there), missing_real, missing_synthetic, failed, summary, alerts}
    - `associations`: {names, real, synthetic} with square matrices, -1 to 1, null where not defined
    - `pairs`: the pairs of columns that changed most, {columns, bins, real, synthetic, change} with joint shares
    - `embedding`: {real, synthetic, explained}, rows as points of a plane
    - `closest`: {edges, synthetic, holdout, ...}, shares of rows by the distance to their closest training row
    - `risks`: those of Article 29, {name, risk, at_least, at_most, members, control, guessed, attacks}
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
        raise BadInput(f"no score {name!r}; {nearest(name, [score.name for score in self.scores])}")

    def __str__(self) -> str:
        return "\n".join([f"Evaluation ({INTERNAL})", *(f"  {score}" for score in self.scores)])

    def _repr_html_(self) -> str:
        rows = {
            f"{what} rows": f"{count:,}" for what, count in (self.details.get("rows") or {}).items() if count
        }
        return card(f"Evaluation ({INTERNAL})", rows, "\n\n".join(map(str, self.scores)))

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
    progress: Progress | None = None,
    cache: Path | str | None = None,
    **how: Any,
) -> Evaluation:
    """Measure how faithful and useful `synthetic` is; a score that cannot be computed says why.

    `cache` is a folder that keeps what was measured: the same data are not measured twice. What else can be said,
    for example `test`, `deep` and `seed`, are the fields of `Comparison`.
    """
    stage = _Stage(progress)
    compared = Comparison(real, synthetic, schema, tell=stage.within, **how)
    steps = _steps(compared)
    kept = _cache(compared, cache) if cache else None
    size = modality_of(schema).size
    details: dict[str, Any] = {
        "internal": INTERNAL,
        "kind": schema.kind,
        "label": schema.label,
        "rows": {name: None if data is None else size(data) for name, data in compared.data_sets.items()},
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


def _merge(details: dict[str, Any], result: Found) -> None:
    """Add a step's details; topics that are objects or lists are joined."""
    for topic, value in result.details.items():
        known = details.get(topic)
        if isinstance(known, Mapping):
            details[topic] = {**known, **value}
        else:
            details[topic] = [*known, *value] if isinstance(known, list) else value


def _cache(one: Comparison, folder: Path | str) -> Cache:
    data = one.real, one.synthetic, one.schema.to_dict(), one.test, one.deep, one.seed
    network = one.network.setting() if one.network else None
    return Cache.of(folder, *data, network, one.claim, one.sampler is not None, one.shadows, one.reader)


def _steps(compared: Comparison) -> list[Step]:
    """The pieces for this kind of data, and those of other packages."""
    schema, modality = compared.schema, modality_of(compared.schema)
    for what, data in compared.data_sets.items():
        if data is not None and not modality.fits(data):
            raise BadInput(
                f"{what} data: the schema is of kind {schema.kind!r}; expected {modality.expected}"
            )
    foreign = metric_steps(compared.real, compared.synthetic, schema)
    if foreign and not {*kinds_of(schema)} & {*_STEPS}:
        return foreign
    return [*for_kind(_STEPS, schema, "scores")(compared), *foreign]


_STEPS = {"table": table_steps, "image": image_steps, "text": text_steps, "linked": history_steps}
