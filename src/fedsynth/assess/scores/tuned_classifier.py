"""Can models be chosen on synthetic rows: does their order agree with the order on real ones.

The tuning use-case of the thesis on federated VAEs (section 3.2): hyper-parameters are tried on synthetic rows as
often as one likes, and only the best is trained on real ones. So every candidate is trained and tested on synthetic
rows, as a tuner without real rows must do, and set against itself trained and tested on real rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, spearmanr

from fedsynth.assess.scores.classifiers import Classifier, as_codes, as_positions, plain, sklearn
from fedsynth.assess.scores.score import Score
from fedsynth.assess.scores.utility import performance_of
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

ORDER = "order of models: rank correlation"
REGRET = "tuning regret: AUC lost"
_HELD = 0.3  # share of the synthetic rows that candidates are tested on


def _boosting(rate: float, leaves: int) -> Classifier:
    settings: dict[str, Any] = {
        "learning_rate": rate,
        "max_leaf_nodes": leaves,
        "max_iter": 60,
        "early_stopping": False,
    }
    return plain(as_codes, "ensemble:HistGradientBoostingClassifier", **settings)


def _tree(depth: int) -> Classifier:
    return plain(as_positions, "tree:DecisionTreeClassifier", max_depth=depth)


def _neighbors(count: int) -> Classifier:
    def make(schema: Schema, classes: np.ndarray, seed: int) -> Any:
        return sklearn("neighbors:KNeighborsClassifier", min(count, len(classes)))

    return Classifier(as_positions, make)


CANDIDATES: dict[str, Classifier] = {
    "boosting, rate 0.01, 7 leaves": _boosting(0.01, 7),
    "boosting, rate 0.1, 7 leaves": _boosting(0.1, 7),
    "boosting, rate 0.1, 63 leaves": _boosting(0.1, 63),
    "boosting, rate 1, 63 leaves": _boosting(1.0, 63),
    "tree, depth 2": _tree(2),
    "tree, depth 6": _tree(6),
    "tree, depth 20": _tree(20),
    "1 neighbor": _neighbors(1),
    "50 neighbors": _neighbors(50),
    "naive bayes": plain(as_positions, "naive_bayes:GaussianNB", seeded=False, var_smoothing=1e-3),
}


def rank_agreement(real: Mapping[str, float], synthetic: Mapping[str, float]) -> tuple[float, float]:
    """Spearman's and Kendall's correlation of two measures of the same candidates.

    >>> rank_agreement({"a": 0.9, "b": 0.8, "c": 0.7}, {"a": 0.6, "b": 0.5, "c": 0.4})
    (1.0, 1.0)
    """
    names = sorted(real)
    one, other = [real[name] for name in names], [synthetic[name] for name in names]
    if len(names) < 3 or len(set(one)) == 1 or len(set(other)) == 1:
        raise BadInput("an order needs three candidates that differ; all candidates do equally well")
    correlations = spearmanr(one, other).statistic, kendalltau(one, other).statistic
    return round(float(correlations[0]), 12), round(float(correlations[1]), 12)


def tuning(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    test: pd.DataFrame,
    schema: Schema,
    *,
    seed: int = 0,
    candidates: Mapping[str, Classifier] | None = None,
) -> list[Score]:
    """Whether synthetic rows order the candidates by AUC as real ones do, and what the choice costs.

    The regret is the AUC on real test rows of the candidate that is best when trained on real rows, minus that
    of the candidate that synthetic rows chose, trained on real rows as well.
    """
    tried = CANDIDATES if candidates is None else candidates
    order = Rng(seed).at("held out").numpy().permutation(len(synthetic))
    size = max(1, int(len(synthetic) * _HELD))
    judged, learned = synthetic.iloc[order[:size]], synthetic.iloc[order[size:]]
    by_real = {
        name: performance_of(candidate, real, test, schema, seed).auc for name, candidate in tried.items()
    }
    by_synthetic = {
        name: performance_of(candidate, learned, judged, schema, seed).auc
        for name, candidate in tried.items()
    }
    spearman, kendall = rank_agreement(by_real, by_synthetic)
    chosen, best = max(by_synthetic, key=by_synthetic.__getitem__), max(by_real, key=by_real.__getitem__)
    detail = {"on_real": by_real, "on_synthetic": by_synthetic, "kendall": kendall, "rows": len(synthetic)}
    regret = by_real[best] - by_real[chosen]
    return [
        Score(ORDER, spearman, range=(-1.0, 1.0), seeds=(seed,), detail=detail),
        Score(REGRET, regret, "min", seeds=(seed,), detail={"chosen": chosen, "best": best}),
    ]
