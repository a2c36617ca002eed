"""Which settings serve best, on rows that anybody may see: a search that costs no privacy.

Such rows are public ones, or the synthetic rows of an earlier private run: whatever is done with those is
post-processing. A search on private rows is in charged_search.py, and it is charged.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.assess.scores.fidelity import column_pairs
from fedsynth.assess.scores.image_utility import LOGISTIC, image_performance
from fedsynth.assess.scores.tables import Tables
from fedsynth.assess.scores.utility import performance
from fedsynth.data.clients import RawClients
from fedsynth.data.image import Image, Images
from fedsynth.data.modality import for_kind
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, FedsynthError
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from fedsynth.synthesis.generator import Generator
from fedsynth.synthesis.request import Request
from fedsynth.synthesis.synthesizer import Synthesizer

HELD = 0.3  # share of the rows that candidates are judged by
_MOST = 200  # candidates
_DRAWN = 10_000  # synthetic rows that a candidate is judged by
_CLASSIFIERS = ("logistic regression", "gradient boosting")
Settings = dict[str, Any]
Tell = Callable[[str, int, int], None]  # what comes next, how many are done, of how many


def candidates(recipe: str, choices: Mapping[str, Sequence[str]]) -> list[Settings]:
    """Every combination of the choices, as the recipe understands them.

    >>> candidates("dpd_fvae", {"clip": ["0.5", "1"], "latent": ["8"]})
    [{'clip': 0.5, 'latent': 8}, {'clip': 1.0, 'latent': 8}]
    """
    if not choices:
        raise BadInput(
            "--try: name at least one setting and its values, for example --try clip=0.5 --try clip=1"
        )
    known = recipe_named(recipe)
    parsed = {name: [known.values({name: text})[name] for text in texts] for name, texts in choices.items()}
    combined = [dict(zip(parsed, values, strict=True)) for values in itertools.product(*parsed.values())]
    if len(combined) > _MOST:
        raise BadInput(f"--try: {len(combined)} combinations; expected at most {_MOST}. Try fewer values")
    return combined


@dataclass(frozen=True)
class Trial:
    """The score of one candidate; `failed` says why it has none."""

    settings: Settings
    score: float | None
    spread: float
    seconds: float
    failed: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**vars(self), "settings": {name: _plain(value) for name, value in self.settings.items()}}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class FreeSearch:
    """Trains each candidate as the run would be trained, on a part of the rows, and judges it by the rest."""

    request: Request
    schema: Schema
    rows: RawClients
    runs: int = 1  # trainings of each candidate, with their seeds
    seed: int = 0

    @property
    def measure(self) -> str:
        """The name of the score; more is better."""
        if self.schema.channels:
            return f"{LOGISTIC}: accuracy on held-out images"
        if self.schema.label is None:
            return "column pairs: similarity to held-out rows"
        return f"AUC on held-out rows, mean of {' and '.join(_CLASSIFIERS)}"

    def trials(self, tried: Sequence[Settings], tell: Tell | None = None) -> list[Trial]:
        """All candidates, the best first; one that fails comes last and says why."""
        self._check()
        kept, test = self._parted()
        done = []
        for number, settings in enumerate(tried):
            if tell:
                tell(
                    ", ".join(f"{name}={_plain(value)}" for name, value in settings.items()),
                    number,
                    len(tried),
                )
            done.append(self._trial(settings, kept, test))
        return sorted(done, key=lambda trial: -np.inf if trial.score is None else trial.score, reverse=True)

    def _check(self) -> None:
        for_kind(_SCORES, self.schema, "searches over settings")
        if self.schema.channels and self.schema.label is None:
            raise BadInput("tune: images need a label to be judged by; the schema names none")
        if self.runs < 1:
            raise BadInput(f"--runs {self.runs}: expected at least one training of each candidate")

    def _parted(self) -> tuple[RawClients, RawClients]:
        """Clients to train on and clients to judge by, or rows where there is one client."""
        rng = Rng(self.seed).at("held out")
        if self.rows.count >= 10:
            chosen = rng.uniforms(self.rows.count) < HELD
            apart = chosen[self.rows.owner]
        else:
            apart = rng.uniforms(self.rows.rows) < HELD
        if apart.all() or not apart.any():
            raise BadInput(f"rows={self.rows.rows}: too few to hold some out")
        return self.rows.only(~apart, self.schema), self.rows.only(apart, self.schema)

    def _trial(self, settings: Settings, kept: RawClients, test: RawClients) -> Trial:
        began = time.perf_counter()
        scores = []
        try:
            for run in range(self.runs):
                request = self.request.changed(seed=self.seed + run, arguments=settings)
                synthesizer = Synthesizer.of(request, self.schema).fit(kept)
                scores.append(self._score(synthesizer.generator, test))
        except FedsynthError as error:
            return Trial(settings, None, 0.0, time.perf_counter() - began, str(error))
        return Trial(settings, float(np.mean(scores)), float(np.std(scores)), time.perf_counter() - began)

    def _score(self, generator: Generator, tested: RawClients) -> float:
        drawn = generator.sample(_DRAWN, Rng(self.seed).at("judged"))
        return for_kind(_SCORES, self.schema, "scores")(drawn, tested.data, self.schema, self.seed)


def _score_of_images(drawn: Images, tested: Images, schema: Schema, seed: int) -> float:
    train, test = Image(schema).encode(drawn), Image(schema).encode(tested)
    return image_performance(train, test, len(schema.classes), LOGISTIC, seed, passes=1).accuracy


def _score_of_tables(drawn: pd.DataFrame, tested: pd.DataFrame, schema: Schema, seed: int) -> float:
    if schema.label is None:
        score = column_pairs(Tables.of(tested, drawn, schema))
        if score.value is None:
            raise BadInput(f"column pairs: {score.failed}")
        return score.value
    return float(np.mean([performance(drawn, tested, schema, name, seed).auc for name in _CLASSIFIERS]))


_SCORES: dict[str, Callable[..., float]] = {"table": _score_of_tables, "image": _score_of_images}


def best_of(trials: Sequence[Trial]) -> Trial:
    """The best candidate; refused if none could be trained."""
    if trials[0].score is None:
        raise BadInput(
            f"tune: none of {len(trials)} candidates could be trained; the first says: {trials[0].failed}"
        )
    return trials[0]
