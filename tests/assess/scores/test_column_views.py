import numpy as np
import pandas as pd
import pytest

from fedsynth.assess.attacks.distance import closest_records
from fedsynth.assess.scores.column_summary import column_alerts
from fedsynth.assess.scores.embedding import embedding
from fedsynth.assess.scores.overlay import associations, changed_pairs, column_overlays, overlap, pair_views
from fedsynth.assess.scores.tables import Tables
from fedsynth.data.schema import Column, Schema

SCHEMA = Schema(
    columns=(
        Column("age", "integer", min=0, max=99),
        Column("sex", "categorical", categories=("f", "m", "rare")),
        Column("dose", "continuous", min=0, max=1, missing=True),
        Column("code", "categorical", categories=tuple(f"c{i}" for i in range(30))),
    )
)


def rows(seed, related=True, sexes=("f", "m", "rare")):
    draw = np.random.default_rng(seed)
    age = draw.integers(0, 100, 400)
    dose = age / 100 if related else draw.random(400)
    frame = {
        "age": age,
        "sex": draw.choice(sexes, 400),
        "dose": np.where(draw.random(400) < 0.6, np.nan, dose),
    }
    return pd.DataFrame({**frame, "code": draw.choice([f"c{i}" for i in range(30)], 400)})


@pytest.fixture(scope="module")
def tables():
    return Tables.of(rows(0), rows(1, related=False, sexes=("f",)), SCHEMA)


def test_alerts_name_what_is_constant_missing_and_lost(tables):
    columns = {column["name"]: column for column in column_overlays(tables)}
    assert columns["sex"]["alerts"][0] == "constant in the synthetic rows only"
    assert "2 rare values lost: m, rare" in columns["sex"]["alerts"][1]
    assert columns["dose"]["alerts"][0].startswith("mostly missing (real 6")
    assert columns["age"]["alerts"] == [] and columns["age"]["summary"]["real"]["distinct"] > 90


def test_the_overlap_is_what_both_histograms_share(tables):
    matches = {column["name"]: overlap(column) for column in column_overlays(tables)}
    assert matches["sex"] == pytest.approx((tables.real["sex"] == 0).mean())
    assert matches["age"] > 0.8 > matches["sex"]


def test_the_pair_that_changed_most_is_drawn_first_and_shares_add_up(tables):
    relations = associations(tables)
    first = pair_views(tables, relations)[0]
    assert first["columns"] == ["age", "dose"] and first["change"] < -0.8
    for side in ("real", "synthetic"):
        assert np.sum(first[side]) == pytest.approx(1, abs=1e-3)
    assert all(len(bins) <= 10 for view in pair_views(tables, relations) for bins in view["bins"])
    assert abs(changed_pairs(relations)[0][0]) >= abs(changed_pairs(relations)[-1][0])


def test_the_first_direction_explains_most_and_equal_rows_lie_upon_each_other():
    same = embedding(Tables.of(rows(0), rows(0), SCHEMA))
    assert same["real"] == same["synthetic"] and same["explained"][0] >= same["explained"][1] > 0


def test_copies_are_closer_to_training_rows_than_strangers_are():
    real, strangers = rows(0), rows(2)
    near = closest_records(real, real.sample(frac=1, random_state=1), strangers, SCHEMA)
    assert near["synthetic_copies"] == 1 and near["holdout_copies"] < 0.1
    assert sum(near["synthetic"]) == pytest.approx(1) and sum(near["holdout"]) == pytest.approx(1)
    fresh = closest_records(real, rows(3), strangers, SCHEMA)
    assert fresh["synthetic_median"] == pytest.approx(fresh["holdout_median"], rel=0.2)


def test_numbers_of_few_values_that_synthetic_rows_fill_in_are_told():
    dose, real = Column("dose", "continuous", min=0, max=10), np.repeat([0.0, 2.5, 5.0], 40)
    (alert,) = column_alerts(dose, real, np.linspace(0, 10, 120))
    assert alert.startswith("3 different values in the real rows, 120 in the synthetic ones")
    assert column_alerts(dose, real, real) == column_alerts(dose, np.linspace(0, 5, 90), real) == []
