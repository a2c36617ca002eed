"""The pieces of a table's evaluation, in the order in which a reader wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pandas as pd

from fedsynth.assess.attacks.article29 import NAMES as RISKS
from fedsynth.assess.attacks.article29 import article29_risks, score_name
from fedsynth.assess.attacks.attack import MEASURES as ATTACKED
from fedsynth.assess.attacks.attack import attack_curves
from fedsynth.assess.attacks.distance import closest_records
from fedsynth.assess.attacks.membership import NAME
from fedsynth.assess.attacks.table_attacks import table_attacks
from fedsynth.assess.cache import fingerprint
from fedsynth.assess.scores.augmentation import (
    FEW_ROWS,
    RARE_CLASS,
    few_rows,
    rare_class,
    sampler_from,
)
from fedsynth.assess.scores.classifiers import CLASSIFIERS, FURTHER, KNOWN, chosen_classifiers
from fedsynth.assess.scores.detection import DETECTORS, detection, detection_name
from fedsynth.assess.scores.embedding import embedding
from fedsynth.assess.scores.fidelity import column_pairs, column_shapes, missing_values
from fedsynth.assess.scores.holdout import parted
from fedsynth.assess.scores.marginals import CMD, WAYS, correlation_matrix_distance, marginal_name, marginals
from fedsynth.assess.scores.overlay import associations, column_overlays, overlap, pair_views
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
from fedsynth.assess.step import Comparison, Found, Step
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


def table_steps(compared: Comparison) -> Sequence[Step]:
    """Every piece for a table; nothing is computed before a piece is run."""
    work, deep, schema = _Work(**vars(compared)), compared.deep, compared.schema
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
    if compared.test is not None:
        steps.append(Step("attacks", (), work.attacks))
        steps.append(Step("closest records", (), work.closest))
        steps.append(Step("Article 29 risks", tuple(map(score_name, RISKS)), work.risks))
    if deep:
        steps.append(
            Step("shadow generators", tuple(f"{NAME}: {each}" for each in ATTACKED), work.membership)
        )
    if schema.label is None:
        return steps
    usual = (*CLASSIFIERS, *(FURTHER if deep else ()))
    steps += [work.usefulness(name) for name in chosen_classifiers(compared.classifiers, usual, KNOWN)]
    return [
        *steps,
        Step("tuning", (ORDER, REGRET), work.tuning),
        Step("few rows", (FEW_ROWS,), work.few_rows),
        Step("rare class", (RARE_CLASS,), work.rare_class),
    ]


class _Work(Comparison):
    """The data, read and cut to size when the first piece needs them."""

    @cached_property
    def tables(self) -> Tables:
        return Tables.of(self.real, self.synthetic, self.schema)

    @cached_property
    def sample(self) -> Tables:
        return self.tables.sampled(PAIR_ROWS, self.seed)

    @cached_property
    def split(self) -> tuple[pd.DataFrame, pd.DataFrame, str]:
        """Real rows to train on, rows to test on, and where the latter come from."""
        self.tables  # noqa: B018  refuses tables of other columns or without rows
        if self.test is not None:
            _require_table(self.test, self.schema)
            return self.real, self._some(self.test, TEST_ROWS[self.deep], "test"), UNSEEN
        tested, kept = parted(self.real, self.schema, _HELD, Rng(self.seed).at("held out"))
        return kept, self._some(tested, TEST_ROWS[self.deep], "test"), SEEN

    def shapes(self) -> Found:
        columns = column_overlays(self.tables)
        overlaps = {column["name"]: match for column in columns if (match := overlap(column)) is not None}
        shapes = self._detailed(
            column_shapes(self.tables), overlap=overlaps, real_rows=fingerprint(self.real)
        )
        return Found((shapes, missing_values(self.tables)), {"columns": columns})

    def pairs(self) -> Found:
        score = self._detailed(column_pairs(self.sample), rows=list(self.sample.rows))
        relations = associations(self.sample)
        drawn = {"associations": relations, "pairs": pair_views(self.sample, relations)}
        return Found((score,), {**drawn, "embedding": embedding(self.sample, self.seed)})

    def marginals(self) -> Found:
        scores, worst = marginals(self.sample, self.seed)
        return Found(tuple(scores), {"marginals": worst[:_SHOWN_MARGINALS]})

    def new_rows(self) -> Found:
        unseen = None if self.test is None else Tables.of(self.real, self.test, self.schema)
        return Found((new_rows(self.tables, unseen),))

    def detection(self) -> Found:
        return Found(tuple(detection(self.tables, rows=DETECTION_ROWS[self.deep], seed=self.seed)))

    def attacks(self) -> Found:
        """Whether synthetic rows give away who was trained on; only rows that were not can show it."""
        assert self.test is not None
        scores = table_attacks(
            self.real, self.synthetic, self.test, self.schema, claim=self.claim, seed=self.seed
        )
        return Found(tuple(scores), {"attacks": attack_curves(scores)})

    def closest(self) -> Found:
        """How near synthetic rows come to training rows, beside real rows that were not trained on."""
        assert self.test is not None
        near = closest_records(self.real, self.synthetic, self.test, self.schema, seed=self.seed)
        return Found(details={"closest": near})

    def risks(self) -> Found:
        """Singling out, linkability and inference, each against rows that were not trained on."""
        assert self.test is not None
        scores = article29_risks(self.real, self.synthetic, self.test, self.schema, seed=self.seed)
        return Found(
            tuple(scores), {"risks": [dict(score.detail) for score in scores if score.failed is None]}
        )

    def membership(self) -> Found:
        """Whether training the run's recipe again and again tells who was in it."""
        if self.shadows is None:
            raise BadInput("shadow generators need the recipe of the run; name it with --run RUN")
        ceiling = self.claim.ceiling if self.claim else None
        scores = self.shadows.play(self.real, self.schema, ceiling=ceiling, seed=self.seed, tell=self.tell)
        return Found(tuple(scores), {"attacks": attack_curves(scores)})

    def usefulness(self, classifier: str) -> Step:
        """Train on synthetic, test on real, by one classifier."""

        def compute() -> Found:
            real, test, source = self.split
            limit = FURTHER_ROWS if classifier in FURTHER else TRAIN_ROWS[self.deep]
            learned = self._some(real, limit, "train")
            seeds = range(self.seed, self.seed + 3)
            beside = baseline(learned, test, self.schema, classifiers=(classifier,), seeds=tuple(seeds))
            synthetic = self._some(self.synthetic, limit, "synthetic")
            scores = utility(synthetic, test, self.schema, beside)
            rows = {"real": len(learned), "synthetic": len(synthetic), "test": len(test)}
            provenance = {"rows": rows, "test": source, "test_rows": fingerprint(test)}
            return Found(tuple(self._detailed(score, **provenance) for score in scores))

        return Step(classifier, tuple(f"{classifier}: {measure}" for measure in MEASURES), compute)

    def tuning(self) -> Found:
        real, test, source = self.split
        limit = TUNING_ROWS[self.deep]
        learned, synthetic, tested = (
            self._some(frame, limit, "tuning") for frame in (real, self.synthetic, test)
        )
        scores = tuning(learned, synthetic, tested, self.schema, seed=self.seed)
        return Found(tuple(self._detailed(score, test=source) for score in scores))

    def few_rows(self) -> Found:
        real, test, source = self.split
        synthetic = self._some(self.synthetic, TRAIN_ROWS[self.deep], "synthetic")
        return Found((self._detailed(few_rows(real, synthetic, test, self.schema), test=source),))

    def rare_class(self) -> Found:
        real, test, source = self.split
        learned = self._some(real, TRAIN_ROWS[self.deep], "train")
        sampler = self.sampler or sampler_from(self.synthetic, self.schema, self.seed)
        return Found((self._detailed(rare_class(learned, sampler, test, self.schema), test=source),))

    def _some(self, frame: pd.DataFrame, rows: int, what: str) -> pd.DataFrame:
        if len(frame) <= rows:
            return frame
        kept = Rng(self.seed).at("rows", what).numpy().choice(len(frame), rows, replace=False)
        return frame.iloc[kept]

    @staticmethod
    def _detailed(score: Score, **detail: Any) -> Score:
        return replace(score, detail={**score.detail, **detail})


def _require_table(frame: pd.DataFrame, schema: Schema) -> None:
    missing = [name for name in schema.names if name not in frame.columns]
    if missing or not len(frame):
        problem = f"column {missing[0]!r} is missing" if missing else "there are no rows"
        raise BadInput(f"the test table: {problem}; expected rows with the columns of the schema")
