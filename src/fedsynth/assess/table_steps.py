"""The pieces of a table's evaluation, in the order in which a reader wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pandas as pd

from fedsynth.assess.attacks.attack import MEASURES as ATTACKED
from fedsynth.assess.attacks.attack import attack_curves
from fedsynth.assess.attacks.membership import NAME
from fedsynth.assess.attacks.shadow_game import ShadowGame, Tell
from fedsynth.assess.attacks.table_attacks import Claim, table_attacks
from fedsynth.assess.scores.augmentation import (
    FEW_ROWS,
    RARE_CLASS,
    Sampler,
    few_rows,
    rare_class,
    sampler_from,
)
from fedsynth.assess.scores.classifiers import CLASSIFIERS, FURTHER, KNOWN, chosen_classifiers
from fedsynth.assess.scores.detection import DETECTORS, detection, detection_name
from fedsynth.assess.scores.fidelity import column_pairs, column_shapes, missing_values
from fedsynth.assess.scores.holdout import parted
from fedsynth.assess.scores.marginals import CMD, WAYS, correlation_matrix_distance, marginal_name, marginals
from fedsynth.assess.scores.overlay import associations, column_overlays
from fedsynth.assess.scores.score import Score
from fedsynth.assess.scores.tables import Tables
from fedsynth.assess.scores.tuned_classifier import ORDER, REGRET, tuning
from fedsynth.assess.scores.utility import MEASURES, baseline, utility
from fedsynth.assess.scores.validity import (
    BOUNDARIES,
    CATEGORIES,
    COVERAGE,
    NEW_ROWS,
    coverage,
    new_rows,
    validity,
)
from fedsynth.assess.step import Found, Step
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

PAIR_ROWS = 200_000  # of each table that pairs, marginals and correlations are measured on
TRAIN_ROWS = {False: 10_000, True: 50_000}  # that classifiers are trained on, by depth
TEST_ROWS = {False: 20_000, True: 100_000}
TUNING_ROWS = {False: 5_000, True: 20_000}
FURTHER_ROWS = 5_000  # for classifiers whose time grows with the square of the rows
DETECTION_ROWS = {False: 20_000, True: 100_000}
_SHOWN_MARGINALS = 50
_HELD = 0.2  # of the real rows, where no test rows are given
SEEN = "a fifth of the real rows, which the generator may have seen"
UNSEEN = "real rows that the generator never saw"


def table_steps(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    schema: Schema,
    *,
    test: pd.DataFrame | None = None,
    deep: bool = False,
    seed: int = 0,
    sampler: Sampler | None = None,
    claim: Claim | None = None,
    shadows: ShadowGame | None = None,
    tell: Tell | None = None,
    classifiers: Sequence[str] = (),
) -> Sequence[Step]:
    """Every piece for a table; nothing is computed before a piece is run. `tell` hears from long pieces."""
    work = _Work(real, synthetic, schema, test, deep, seed, sampler, claim, shadows, tell)
    steps = [
        Step("column shapes", ("column shapes", "missing values"), work.shapes),
        Step("column pairs", ("column pairs",), work.pairs),
        Step("marginals", tuple(marginal_name(ways) for ways in WAYS), work.marginals),
        Step("correlations", (CMD,), lambda: Found((correlation_matrix_distance(work.sample),))),
        Step("coverage", (COVERAGE,), lambda: Found((coverage(work.tables),))),
        Step("validity", (BOUNDARIES, CATEGORIES), lambda: Found(tuple(validity(work.tables)))),
        Step("new rows", (NEW_ROWS,), work.new_rows),
        Step("detection", tuple(map(detection_name, DETECTORS)), work.detection),
    ]
    if test is not None:
        steps.append(Step("attacks", (), work.attacks))
    if deep:
        steps.append(
            Step("shadow generators", tuple(f"{NAME}: {each}" for each in ATTACKED), work.membership)
        )
    if schema.label is None:
        return steps
    usual = (*CLASSIFIERS, *(FURTHER if deep else ()))
    steps += [work.usefulness(name) for name in chosen_classifiers(classifiers, usual, KNOWN)]
    return [
        *steps,
        Step("tuning", (ORDER, REGRET), work.tuning),
        Step("few rows", (FEW_ROWS,), work.few_rows),
        Step("rare class", (RARE_CLASS,), work.rare_class),
    ]


class _Work:
    """The data, read and cut to size when the first piece needs them."""

    def __init__(
        self,
        real: pd.DataFrame,
        synthetic: pd.DataFrame,
        schema: Schema,
        test: pd.DataFrame | None,
        deep: bool,
        seed: int,
        sampler: Sampler | None,
        claim: Claim | None,
        shadows: ShadowGame | None,
        tell: Tell | None,
    ) -> None:
        self._real, self._synthetic, self._schema, self._test = real, synthetic, schema, test
        self._deep, self._seed, self._sampler, self._claim = deep, seed, sampler, claim
        self._shadows, self._tell = shadows, tell

    @cached_property
    def tables(self) -> Tables:
        return Tables.of(self._real, self._synthetic, self._schema)

    @cached_property
    def sample(self) -> Tables:
        return self.tables.sampled(PAIR_ROWS, self._seed)

    @cached_property
    def split(self) -> tuple[pd.DataFrame, pd.DataFrame, str]:
        """Real rows to train on, rows to test on, and where the latter come from."""
        self.tables  # noqa: B018  refuses tables of other columns or without rows
        if self._test is not None:
            _require_table(self._test, self._schema)
            return self._real, self._some(self._test, TEST_ROWS[self._deep], "test"), UNSEEN
        tested, kept = parted(self._real, self._schema, _HELD, Rng(self._seed).at("held out"))
        return kept, self._some(tested, TEST_ROWS[self._deep], "test"), SEEN

    def shapes(self) -> Found:
        scores = (column_shapes(self.tables), missing_values(self.tables))
        return Found(scores, {"columns": column_overlays(self.tables)})

    def pairs(self) -> Found:
        score = self._told(column_pairs(self.sample), rows=list(self.sample.rows))
        return Found((score,), {"associations": associations(self.sample)})

    def marginals(self) -> Found:
        scores, worst = marginals(self.sample, self._seed)
        return Found(tuple(scores), {"marginals": worst[:_SHOWN_MARGINALS]})

    def new_rows(self) -> Found:
        unseen = None if self._test is None else Tables.of(self._real, self._test, self._schema)
        return Found((new_rows(self.tables, unseen),))

    def detection(self) -> Found:
        return Found(tuple(detection(self.tables, rows=DETECTION_ROWS[self._deep], seed=self._seed)))

    def attacks(self) -> Found:
        """Whether synthetic rows give away who was trained on; only rows that were not can show it."""
        assert self._test is not None
        scores = table_attacks(
            self._real, self._synthetic, self._test, self._schema, claim=self._claim, seed=self._seed
        )
        return Found(tuple(scores), {"attacks": attack_curves(scores)})

    def membership(self) -> Found:
        """Whether training the run's recipe again and again tells who was in it."""
        if self._shadows is None:
            raise BadInput("shadow generators need the recipe of the run; name it with --run RUN")
        ceiling = self._claim.ceiling if self._claim else None
        scores = self._shadows.play(
            self._real, self._schema, ceiling=ceiling, seed=self._seed, tell=self._tell
        )
        return Found(tuple(scores), {"attacks": attack_curves(scores)})

    def usefulness(self, classifier: str) -> Step:
        """Train on synthetic, test on real, by one classifier."""

        def compute() -> Found:
            real, test, source = self.split
            limit = FURTHER_ROWS if classifier in FURTHER else TRAIN_ROWS[self._deep]
            learned = self._some(real, limit, "train")
            seeds = range(self._seed, self._seed + 3)
            beside = baseline(learned, test, self._schema, classifiers=(classifier,), seeds=tuple(seeds))
            synthetic = self._some(self._synthetic, limit, "synthetic")
            scores = utility(synthetic, test, self._schema, beside)
            rows = {"real": len(learned), "synthetic": len(synthetic), "test": len(test)}
            return Found(tuple(self._told(score, rows=rows, test=source) for score in scores))

        return Step(classifier, tuple(f"{classifier}: {measure}" for measure in MEASURES), compute)

    def tuning(self) -> Found:
        real, test, source = self.split
        limit = TUNING_ROWS[self._deep]
        learned, synthetic, tested = (
            self._some(frame, limit, "tuning") for frame in (real, self._synthetic, test)
        )
        scores = tuning(learned, synthetic, tested, self._schema, seed=self._seed)
        return Found(tuple(self._told(score, test=source) for score in scores))

    def few_rows(self) -> Found:
        real, test, source = self.split
        synthetic = self._some(self._synthetic, TRAIN_ROWS[self._deep], "synthetic")
        return Found((self._told(few_rows(real, synthetic, test, self._schema), test=source),))

    def rare_class(self) -> Found:
        real, test, source = self.split
        learned = self._some(real, TRAIN_ROWS[self._deep], "train")
        sampler = self._sampler or sampler_from(self._synthetic, self._schema, self._seed)
        return Found((self._told(rare_class(learned, sampler, test, self._schema), test=source),))

    def _some(self, frame: pd.DataFrame, rows: int, what: str) -> pd.DataFrame:
        if len(frame) <= rows:
            return frame
        kept = Rng(self._seed).at("rows", what).numpy().choice(len(frame), rows, replace=False)
        return frame.iloc[kept]

    @staticmethod
    def _told(score: Score, **detail: Any) -> Score:
        return replace(score, detail={**score.detail, **detail})


def _require_table(frame: pd.DataFrame, schema: Schema) -> None:
    missing = [name for name in schema.names if name not in frame.columns]
    if missing or not len(frame):
        problem = f"column {missing[0]!r} is missing" if missing else "there are no rows"
        raise BadInput(f"the test table: {problem}; expected rows with the columns of the schema")
