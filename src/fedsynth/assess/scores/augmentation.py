"""Does it help: real plus synthetic rows against real rows alone, for a site with few rows and for a rare class.

The reason why sites train a generator together: what one of them has too little of, the others' data teach it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.assess.scores.score import Score, over_seeds
from fedsynth.assess.scores.utility import performance
from fedsynth.data.schema import Schema
from fedsynth.data.values import places
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

FEW_ROWS = "few rows: AUC gained by adding synthetic rows"
RARE_CLASS = "rare class: AUC gained by adding synthetic rows"
FEW = 100  # real rows of the site that has few
RARE = 20  # real rows of the rare class
_FEWEST_TEST = 5  # test rows of the rare class

Sampler = Callable[[str, int], pd.DataFrame]  # class, rows -> synthetic rows of that class


def few_rows(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    test: pd.DataFrame,
    schema: Schema,
    *,
    rows: int = FEW,
    classifier: str = "random forest",
    seeds: Sequence[int] = (0, 1, 2),
) -> Score:
    """AUC on test rows of a classifier with `rows` real rows and all synthetic ones, minus with the real ones alone.

    Each seed draws another site. The detail has both, and what the synthetic rows alone give.
    """
    alone, together = [], []
    for seed in seeds:
        site = _drawn(real, rows, seed, "site")
        alone.append(performance(site, test, schema, classifier, seed).auc)
        joined = _joined(site, synthetic, schema)
        together.append(performance(joined, test, schema, classifier, seed).auc)
    only = performance(synthetic, test, schema, classifier, seeds[0]).auc
    detail = {
        "real_alone": float(np.mean(alone)),
        "real_and_synthetic": float(np.mean(together)),
        "synthetic_alone": only,
        "real_rows": min(rows, len(real)),
        "synthetic_rows": len(synthetic),
        "classifier": classifier,
    }
    gains = [b - a for a, b in zip(alone, together, strict=True)]
    return over_seeds(FEW_ROWS, gains, seeds, range=(-1.0, 1.0), detail=detail)


def rare_class(
    real: pd.DataFrame,
    sampler: Sampler,
    test: pd.DataFrame,
    schema: Schema,
    *,
    rare: int = RARE,
    classifier: str = "gradient boosting",
    seeds: Sequence[int] = (0, 1, 2),
) -> Score:
    """AUC gained when the rarest class, cut to `rare` real rows, is balanced with synthetic rows of that class.

    Set against the unbalanced real rows or the same real rows of the class repeated, whichever is better: what is
    gained over both cannot be had without a generator. AUC does not change when only the balance does.
    """
    classes = places(real[_label(schema)], schema.classes)
    counts = np.bincount(classes[classes >= 0], minlength=len(schema.classes))
    rarest = int(np.where(counts == 0, counts.max() + 1, counts).argmin())
    _require_class(test, schema, rarest)
    alone: list[float] = []
    repeated: list[float] = []
    together: list[float] = []
    for seed in seeds:
        few = _drawn(real[classes == rarest], rare, seed, "rare")
        others = real[classes != rarest]
        lacking = max(1, int(counts[counts > 0].max()) - len(few))
        site = _joined(others, few, schema)
        synthetic = sampler(schema.classes[rarest], lacking)
        copies = few.sample(lacking, replace=True, random_state=seed)
        for areas, extra in ((alone, few.iloc[:0]), (repeated, copies), (together, synthetic)):
            areas.append(performance(_joined(site, extra, schema), test, schema, classifier, seed).auc)
    detail: dict[str, Any] = {
        "class": schema.classes[rarest],
        "real_alone": float(np.mean(alone)),
        "real_repeated": float(np.mean(repeated)),
        "real_and_synthetic": float(np.mean(together)),
        "rare_rows": min(rare, int(counts[rarest])),
        "classifier": classifier,
    }
    gains = [c - max(a, b) for a, b, c in zip(alone, repeated, together, strict=True)]
    return over_seeds(RARE_CLASS, gains, seeds, range=(-1.0, 1.0), detail=detail)


def sampler_from(synthetic: pd.DataFrame, schema: Schema, seed: int = 0) -> Sampler:
    """Rows of a class out of a synthetic table, each at most once: where the generator itself is not at hand."""
    classes = places(synthetic[_label(schema)], schema.classes)

    def sample(name: str, rows: int) -> pd.DataFrame:
        rows_of_class = synthetic[classes == schema.classes.index(name)]
        if not len(rows_of_class):
            raise BadInput(f"the synthetic rows have none of class {name!r}; sample more of them")
        return _drawn(rows_of_class, rows, seed, name)

    return sample


def _label(schema: Schema) -> str:
    if schema.label is None or len(schema.classes) < 2:
        raise BadInput("the schema has no label of 2 classes, so no classifier can be helped")
    return schema.label


def _require_class(test: pd.DataFrame, schema: Schema, rarest: int) -> None:
    there = int((places(test[_label(schema)], schema.classes) == rarest).sum())
    if there < _FEWEST_TEST:
        problem = f"the test rows have {there} of the rarest class, {schema.classes[rarest]!r}"
        raise BadInput(f"{problem}; expected at least {_FEWEST_TEST}")


def _drawn(frame: pd.DataFrame, rows: int, seed: int, what: str) -> pd.DataFrame:
    chosen = Rng(seed).at("augmentation", what).numpy().permutation(len(frame))[:rows]
    return frame.iloc[chosen]


def _joined(one: pd.DataFrame, other: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    names = list(schema.names)
    return pd.concat([one[names].astype(object), other[names].astype(object)], ignore_index=True)
