import numpy as np
import pytest
from small_tables import SCHEMA, shuffled, table

from fedsynth.assess.scores.marginals import (
    WAYS,
    _correlations,
    column_sets,
    correlation_matrix_distance,
    marginal_name,
    marginals,
    matrix_distance,
    variation_distance,
)
from fedsynth.assess.scores.overlay import pearson
from fedsynth.assess.scores.tables import Tables
from fedsynth.data.schema import Column, Schema


def scored(real, synthetic, schema=SCHEMA):
    tables = Tables.of(real, synthetic, schema)
    return {score.name: score for score in marginals(tables)[0]}


def test_identical_tables_have_no_distance():
    tables = Tables.of(table(), table().sample(frac=1, random_state=1), SCHEMA)
    assert all(score.value == pytest.approx(0.0, abs=1e-12) for score in marginals(tables)[0])
    assert correlation_matrix_distance(tables).value == pytest.approx(0.0, abs=1e-12)


def test_disjoint_tables_have_the_largest_distance():
    other = table().assign(town="d")
    parts = marginals(Tables.of(table(), other, SCHEMA))[1]
    assert all(part["distance"] == pytest.approx(1.0) for part in parts if "town" in part["columns"])


def test_shuffled_columns_lose_their_marginals_and_more_so_with_more_ways():
    values = [scored(table(), shuffled(table()))[marginal_name(ways)].value for ways in WAYS]
    assert values == sorted(values) and values[0] > 0.1


def test_a_fresh_table_is_nearer_than_shuffled_columns():
    fresh, apart = (scored(table(), other) for other in (table(key="fresh"), shuffled(table())))
    for ways in (2, 3):
        assert fresh[marginal_name(ways)].value < apart[marginal_name(ways)].value


def test_the_distance_of_two_halves_stands_beside():
    score = scored(table(), table(key="fresh"))[marginal_name(2)]
    assert 0 < score.detail["real_halves"] < 0.3 and score.detail["sets"] == 15


def test_more_ways_than_columns_fail_and_the_others_go_on():
    two = Schema(columns=SCHEMA.columns[:2])
    scores = scored(table()[["age", "weight"]], table()[["age", "weight"]], two)
    assert scores[marginal_name(2)].value == 0.0
    assert "at least 3" in scores[marginal_name(3)].failed


def test_a_column_that_does_not_fit_is_left_out_by_name():
    wrong = table().assign(town="elsewhere")
    tables = Tables.of(table(), wrong, SCHEMA)
    scores, parts = marginals(tables)
    assert "elsewhere" in scores[0].detail["left_out"]["town"]
    assert all("town" not in part["columns"] for part in parts)


def test_distances_are_half_the_sum_of_differences_of_shares():
    assert variation_distance(np.array([0, 1, 2]), np.array([0, 1, 1])) == pytest.approx(1 / 3)


def test_at_most_100_sets_are_drawn_and_none_twice():
    sets = column_sets([str(i) for i in range(20)], 4, seed=0)
    assert len(sets) == len(set(sets)) == 100
    assert sets == column_sets([str(i) for i in range(20)], 4, seed=0)
    assert sets != column_sets([str(i) for i in range(20)], 4, seed=1)


def test_many_categories_do_not_overflow():
    names = tuple(f"c{i}" for i in range(6))
    values = tuple(str(i) for i in range(3000))
    schema = Schema(columns=tuple(Column(name, "categorical", categories=values) for name in names))
    import pandas as pd

    frame = pd.DataFrame({name: ["2999", "0", "2999"] for name in names})
    other = pd.DataFrame({name: ["2999", "0", "0"] for name in names})
    assert scored(frame, other, schema)[marginal_name(6)].value == pytest.approx(1 / 3)


def test_matrix_distance_is_one_minus_the_cosine():
    real, other = np.array([[1.0, 0.5], [0.5, 1.0]]), np.eye(2)
    assert matrix_distance(real, other) == pytest.approx(1 - 2 / np.sqrt(2.5 * 2))


def test_a_constant_column_counts_as_uncorrelated_and_is_named():
    score = correlation_matrix_distance(Tables.of(table(), table().assign(weight=70.0), SCHEMA))
    assert score.detail["constant"] == ["synthetic: weight"] and score.value > 0.01


def test_shuffled_columns_are_far_in_correlation():
    near = correlation_matrix_distance(Tables.of(table(), table(key="fresh"), SCHEMA))
    far = correlation_matrix_distance(Tables.of(table(), shuffled(table()), SCHEMA))
    assert near.value < 0.01 < 0.1 < far.value


def test_correlations_of_all_pairs_at_once_are_those_of_each_pair():
    draw = np.random.default_rng(0)
    numbers = [draw.normal(size=50), draw.integers(0, 3, 50).astype(float), np.full(50, 7.0)]
    numbers.append(numbers[0] - 2 * numbers[1])
    matrix = _correlations(numbers)
    expected = [[pearson(a, b) or 0.0 for b in numbers] for a in numbers]
    expected[2][2] = 1.0  # a constant column is its own, and nobody else's
    np.testing.assert_allclose(matrix, expected, atol=1e-12)
