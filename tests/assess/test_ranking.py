"""The scores put a good table above a bad one: fresh rows, generators with less and more noise, independent columns."""

import json
from pathlib import Path

import pytest
from small_tables import SCHEMA, shuffled, table

from fedsynth.assess.attacks.shadow import Shadows
from fedsynth.assess.scores.utility import baseline, utility
from fedsynth.assess.suite import evaluate
from fedsynth.research.datasets import adult, data_folder
from fedsynth.rng import Rng

RESULTS = Path(__file__).resolve().parents[2] / "experiments" / "evaluation" / "results"
ORDER = ("fresh", "dpd_fvae", "dpd_fvae_8", "dpd_fvae_1", "independent")
FALLING = [
    *(f"{ways}-way marginals: average variation distance" for ways in (3, 4, 5, 6)),
    "correlation matrix distance",
    "detection by gradient boosting: AUC",
    *(
        f"{classifier}: {measure}"
        for classifier in ("logistic regression", "random forest", "gradient boosting", "mlp")
        for measure in ("accuracy", "auc")
    ),
    "few rows: AUC gained by adding synthetic rows",
    "rare class: AUC gained by adding synthetic rows",
]
QUICK = (
    "3-way marginals: average variation distance",
    "correlation matrix distance",
    "detection by gradient boosting: AUC",
    "gradient boosting: auc",
)


def goodness(score: dict) -> float:
    """The value, with the better end up."""
    return score["value"] if score["goal"] == "max" else -score["value"]


@pytest.fixture(scope="module")
def measured():
    found = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    return {row: {score["name"]: score for score in result["scores"]} for row, result in found.items()}


@pytest.mark.parametrize("name", FALLING)
def test_the_measured_order_is_the_known_one(measured, name):
    values = [goodness(measured[row][name]) for row in ORDER]
    assert values == sorted(values, reverse=True)


def test_copies_are_perfect_in_everything_but_privacy(measured):
    copies = measured["copies"]
    for name in ("column pairs", "6-way marginals: average variation distance", "new rows"):
        assert copies[name]["value"] in (0.0, 1.0)
    for attack in ("closest record", "density ratio"):
        assert copies[f"{attack}: AUC"]["value"] > 0.99
        assert all(abs(measured[row][f"{attack}: AUC"]["value"] - 0.5) < 0.03 for row in ORDER)


def tables_from_good_to_bad(real, fresh, schema, values):
    """A fresh draw, the recipe without and with far too much noise, and independent columns."""
    noisy = {**values, "noise_multiplier": 20.0}
    made = [
        Shadows("dpd_fvae", schema, noisy, clients=60, private=private)([real], len(real), Rng(3))[0]
        for private in (False, True)
    ]
    return fresh, *made, shuffled(real)


def scores_of(real, synthetic, test, schema, beside):
    found = evaluate(real, synthetic, schema.with_label(None)).scores
    listed = [*found, *utility(synthetic, test, schema, beside)]
    return {score.name: score.to_dict() for score in listed}


def check_order(real, fresh, test, schema, values):
    beside = baseline(real, test, schema, classifiers=("gradient boosting",), seeds=(0,))
    ranked = [
        scores_of(real, each, test, schema, beside)
        for each in tables_from_good_to_bad(real, fresh, schema, values)
    ]
    for name in QUICK:
        good, fair, poor, independent = (goodness(scores[name]) for scores in ranked)
        assert good > fair > poor, name
        assert good > independent, name
    # a recipe drowned in noise can be worse than independent columns in anything but what goes together
    assert ranked[1]["gradient boosting: auc"]["value"] > ranked[3]["gradient boosting: auc"]["value"] + 0.1
    assert ranked[1]["column pairs"]["value"] < ranked[0]["column pairs"]["value"]


@pytest.mark.recipe
def test_made_up_rows_are_ranked_rightly():
    check_order(
        table(1200),
        table(1200, "fresh"),
        table(600, "test"),
        SCHEMA,
        {"rounds": 60, "hidden": (32,), "latent": 4},
    )


@pytest.mark.recipe
@pytest.mark.skipif(data_folder() is None, reason="FEDSYNTH_DATA names no folder with adult.parquet")
def test_adult_is_ranked_rightly():
    rows, schema = adult("train")
    rows = rows.sample(3000, random_state=0)
    test = adult("test")[0].sample(2000, random_state=0)
    real, fresh = (part.reset_index(drop=True) for part in (rows.iloc[:1500], rows.iloc[1500:]))
    check_order(real, fresh, test, schema, {"rounds": 60})
