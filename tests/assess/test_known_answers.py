"""What every score of a table must say of copies, of columns shuffled apart, of a constant column and of other values.

A score that is added without a known answer fails here.
"""

import pandas as pd
import pytest
from small_tables import SCHEMA, shuffled, table

from fedsynth.assess.scores.classifiers import CLASSIFIERS
from fedsynth.assess.scores.marginals import WAYS
from fedsynth.assess.scores.utility import MEASURES
from fedsynth.assess.suite import evaluate
from fedsynth.data.schema import Schema

REAL, TEST = table(), table(300, "test")
APART = Schema(columns=SCHEMA.columns[:3])  # age, weight, town: columns that can have other values altogether
FAR = pd.DataFrame({"age": [5, 6] * 150, "weight": [190.0, 199.0] * 150, "town": ["d"] * 300})
CHANCE = (0.4, 0.6)
MARGINALS = [f"{ways}-way marginals: average variation distance" for ways in WAYS]
ATTACKS = ("closest record", "density ratio", "attribute inference")
FOUND = "true positives at 1% false positives"

COPIES = {  # the least and the most that each score may be
    "column shapes": (1, 1),
    "missing values": (1, 1),
    "column pairs": (1, 1),
    **dict.fromkeys(MARGINALS, (0, 0)),
    "correlation matrix distance": (-1e-9, 1e-9),
    "coverage": (1, 1),
    "boundary validity": (1, 1),
    "category validity": (1, 1),
    "new rows": (0, 0),
    "detection by logistic regression: AUC": (0.5, 0.52),
    "detection by gradient boosting: AUC": (0.5, 0.52),
    **{f"{attack}: AUC": (0.75, 1) for attack in ATTACKS},
    f"closest record: {FOUND}": (0.9, 1),
    **{f"{attack}: {FOUND}": (0.02, 1) for attack in ATTACKS[1:]},
    "attribute inference: advantage": (0.1, 1),
    **{f"{name}: {measure}": (0.75, 1) for name in CLASSIFIERS for measure in MEASURES},
    "order of models: rank correlation": (
        0.6,
        1,
    ),  # judged on rows held out of the copies, not on the test rows
    "tuning regret: AUC lost": (0, 0.01),
    "few rows: AUC gained by adding synthetic rows": (-0.02, 0.2),
    "singling out: risk": (0.2, 0.6),
    "linkability: risk": (0.3, 0.6),
    "inference: risk": (0.9, 1),
    "rare class: AUC gained by adding synthetic rows": (-0.02, 0.3),
}
SHUFFLED = {
    **dict.fromkeys(("column shapes", "missing values", "coverage"), (1, 1)),
    **dict.fromkeys(("boundary validity", "category validity"), (1, 1)),
    "column pairs": (0.5, 0.9),
    **dict.fromkeys(MARGINALS, (0.1, 1)),
    "correlation matrix distance": (0.1, 1),
    "new rows": (0.95, 1),
    "detection by logistic regression: AUC": (0.5, 0.6),  # it sees columns one by one
    "detection by gradient boosting: AUC": (0.8, 1),
    **{f"{attack}: AUC": CHANCE for attack in ATTACKS},
    **{f"{attack}: {FOUND}": (0, 0.08) for attack in ATTACKS},
    "attribute inference: advantage": (-0.06, 0.06),
    **{f"{name}: {measure}": (0, 0.85) for name in CLASSIFIERS for measure in MEASURES},
    "order of models: rank correlation": (-1, 0.9),
    "tuning regret: AUC lost": (0, 0.2),
    "few rows: AUC gained by adding synthetic rows": (-1, -0.02),
    "singling out: risk": (0, 0.1),
    "linkability: risk": (0, 0.05),
    "inference: risk": (0, 0.15),  # the highest of all columns, by chance
    "rare class: AUC gained by adding synthetic rows": (-1, 0.0),
}
DISJOINT = {
    "column shapes": (0, 0),
    "column pairs": (0, 0.5),  # ages and weights are correlated in both
    **dict.fromkeys(MARGINALS[:2], (1, 1)),
    "correlation matrix distance": (0, 1),
    "coverage": (0, 0),
    "boundary validity": (1, 1),
    "category validity": (1, 1),
    "new rows": (1, 1),
    "detection by logistic regression: AUC": (1, 1),
    "detection by gradient boosting: AUC": (1, 1),
    **{f"{attack}: AUC": CHANCE for attack in ATTACKS},
    **{f"{attack}: {FOUND}": (0, 0.08) for attack in ATTACKS},
    "attribute inference: advantage": (-0.06, 0.06),
    **dict.fromkeys(("linkability: risk", "inference: risk"), (0, 0.05)),
}


def check(found, expected):
    values = {score.name: score.value for score in found.scores if score.failed is None}
    assert set(values) <= set(expected), "a score without a known answer"
    wrong = {
        name: (values.get(name), bounds)
        for name, bounds in expected.items()
        if name not in values or not bounds[0] - 1e-9 <= values[name] <= bounds[1] + 1e-9
    }
    assert not wrong
    return {score.name: score for score in found.scores}


def test_copies():
    found = check(evaluate(REAL, REAL.copy(), SCHEMA, test=TEST), COPIES)
    for name in CLASSIFIERS:
        auc = found[f"{name}: auc"]
        assert auc.value == pytest.approx(auc.detail["train_on_real"])


def test_columns_shuffled_apart():
    check(evaluate(REAL, shuffled(REAL), SCHEMA, test=TEST), SHUFFLED)


def test_other_values_altogether():
    real, test = (frame[list(APART.names)] for frame in (REAL, TEST))
    found = check(
        evaluate(real.dropna(), FAR, APART, test=test.dropna()), DISJOINT | {"missing values": (1, 1)}
    )
    for name in MARGINALS[2:]:
        assert "3 columns" in found[name].failed
    assert "fits just one synthetic row" in found["singling out: risk"].failed


def test_a_constant_column_costs_just_what_it_must():
    plain = SCHEMA.with_label(None)
    constant = table(key="fresh").assign(age=50)
    good = {score.name: score for score in evaluate(REAL, table(key="fresh"), plain, test=TEST).scores}
    found = {score.name: score for score in evaluate(REAL, constant, plain, test=TEST).scores}
    assert [name for name, score in found.items() if score.failed] == []
    known = REAL["age"].dropna()
    below, upto = (known < 50).mean(), (known <= 50).mean()
    shapes = found["column shapes"].detail["parts"]
    assert shapes["age"] == pytest.approx(1 - max(below, 1 - upto))  # Kolmogorov and Smirnov, by hand
    assert shapes["weight"] == pytest.approx(good["column shapes"].detail["parts"]["weight"])
    assert found["coverage"].detail["parts"]["age"] == 0
    assert found["missing values"].value < 1  # none are missing any more
    assert "age" in str(found["correlation matrix distance"].detail)
    assert any("age" in pair for pair in found["column pairs"].detail["failed"])
    for name in (*MARGINALS, "correlation matrix distance", "detection by gradient boosting: AUC"):
        assert found[name].value > good[name].value
    assert found["new rows"].value == 1
