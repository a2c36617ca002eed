import numpy as np
import pandas as pd
import pytest

from fedsynth.assess.scores.fidelity import (
    column_pairs,
    column_shapes,
    contingency_similarity,
    correlation_similarity,
    ks_complement,
    missing_values,
    tv_complement,
)
from fedsynth.assess.scores.tables import Tables
from fedsynth.data.schema import Column, Schema
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

SCHEMA = Schema(
    columns=(
        Column("age", "integer", min=0, max=99, missing=True),
        Column("weight", "continuous", min=0.0, max=200.0),
        Column("sex", "categorical", categories=("F", "M")),
        Column("ill", "binary", categories=("no", "yes")),
    ),
    label="ill",
)


def table(rows: int = 500) -> pd.DataFrame:
    """Age drives weight and illness; a tenth of the ages is missing."""
    random = Rng(3).numpy()
    age = random.integers(20, 80, rows)
    return pd.DataFrame(
        {
            "age": pd.array(np.where(random.random(rows) < 0.1, -1, age), dtype="Int64"),
            "weight": 40.0 + age,
            "sex": random.choice(["F", "M"], rows),
            "ill": np.where(age > 50, "yes", "no"),
        }
    ).assign(age=lambda frame: frame["age"].mask(frame["age"] < 0))


def fidelity(real, synthetic, schema):
    tables = Tables.of(real, synthetic, schema)
    return [column_shapes(tables), column_pairs(tables), missing_values(tables)]


def by_name(real, synthetic):
    return {score.name: score for score in fidelity(real, synthetic, SCHEMA)}


def test_identical_tables_score_one():
    assert all(score.value == pytest.approx(1.0) for score in fidelity(table(), table(), SCHEMA))


def test_the_order_of_rows_does_not_matter():
    shuffled = table().sample(frac=1.0, random_state=1)
    assert all(score.value == pytest.approx(1.0) for score in fidelity(table(), shuffled, SCHEMA))


def test_columns_shuffled_apart_keep_their_shapes_and_lose_their_pairs():
    random = Rng(1).numpy()
    apart = pd.DataFrame(
        {name: column.sample(frac=1, random_state=random).to_numpy() for name, column in table().items()}
    )
    scores = by_name(table(), apart)
    assert scores["column shapes"].value == pytest.approx(1.0)
    pairs = scores["column pairs"].detail["parts"]
    assert pairs["age, weight"] == pytest.approx(0.5, abs=0.05)  # correlation 1 against about 0
    assert pairs["weight, ill"] < 0.65


def test_disjoint_tables_score_zero():
    real, other = table(), table()
    real["sex"], other["sex"] = "F", "M"
    other["weight"] = 199.0
    parts = by_name(real, other)["column shapes"].detail["parts"]
    assert parts["sex"] == 0.0 and parts["weight"] == 0.0


def test_a_constant_column_fails_its_correlation_with_a_reason_and_nothing_else():
    constant = table().assign(weight=60.0)
    pairs = by_name(table(), constant)["column pairs"]
    assert list(pairs.detail["failed"]) == ["age, weight"]
    assert "constant" in pairs.detail["failed"]["age, weight"]
    assert pairs.value == pytest.approx(np.mean(list(pairs.detail["parts"].values())))


def test_missing_values_count_in_pairs_of_categories_and_in_their_own_score():
    empty = table().assign(age=pd.array([pd.NA] * 500, dtype="Int64"))
    scores = by_name(table(), empty)
    assert "missing" in scores["column shapes"].detail["failed"]["age"]
    share = table()["age"].isna().mean()
    assert scores["missing values"].detail["parts"]["age"] == pytest.approx(share)


def test_a_missing_number_is_not_taken_for_a_large_one_in_pairs():
    filled = table()
    filled["age"] = filled["age"].fillna(79)  # the largest bin
    share = table()["age"].isna().mean()
    assert by_name(table(), filled)["column pairs"].detail["parts"]["age, sex"] == pytest.approx(1 - share)


def test_correlations_leave_out_rows_where_either_value_is_missing():
    one, holes = np.array([1.0, 2, 3, 4]), np.array([1.0, np.nan, 3, 4])
    for pair in ((one, holes), (holes, one)):
        assert correlation_similarity(pair, (one, one)) == pytest.approx(1.0)


def test_numbers_are_compared_by_distribution_and_categories_by_share():
    moved = table().assign(
        weight=lambda frame: frame["weight"] + 0.5
    )  # no value in common, nearly the same shape
    shapes = by_name(table(), moved)["column shapes"].detail["parts"]
    assert shapes["weight"] > 0.95
    women = table().assign(sex="F")
    share = (table()["sex"] == "F").mean()
    assert by_name(table(), women)["column shapes"].detail["parts"]["sex"] == pytest.approx(share)


def test_another_column_is_refused_with_the_reason():
    with pytest.raises(BadInput, match="'age' is missing"):
        fidelity(table(), table().rename(columns={"age": "years"}), SCHEMA)


def test_a_value_outside_the_schema_fails_its_column_alone():
    wrong = table()
    wrong.loc[0, "weight"] = 500.0
    shapes = by_name(table(), wrong)["column shapes"]
    assert list(shapes.detail["failed"]) == ["weight"] and set(shapes.detail["parts"]) == {
        "age",
        "sex",
        "ill",
    }


def test_the_measures_agree_with_numbers_worked_out_by_hand():
    assert ks_complement(np.array([1.0, 2, 3, 4]), np.array([3.0, 4, 5, 6])) == pytest.approx(0.5)
    assert tv_complement(np.array([0.0, 0, 1]), np.array([0.0, 1, 2])) == pytest.approx(2 / 3)
    one, other = np.array([0.0, 1, 2]), np.array([0.0, 1, 0])
    assert correlation_similarity((one, one), (one, other)) == pytest.approx(0.5)
    missing = np.array([0.0, np.nan])
    assert contingency_similarity((missing, missing), (missing, missing)) == 1.0
    assert contingency_similarity((missing, missing), (missing, missing[::-1])) == 0.0
