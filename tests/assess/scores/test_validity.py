import numpy as np
import pandas as pd
import pytest
from small_tables import SCHEMA, table

from fedsynth.assess.scores.tables import Tables
from fedsynth.assess.scores.validity import coverage, new_rows, range_coverage, validity
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput


def tables(synthetic, real=None):
    return Tables.of(table() if real is None else real, synthetic, SCHEMA)


def test_identical_tables_cover_everything_are_valid_and_not_new():
    same = tables(table())
    assert coverage(same).value == 1.0
    assert [score.value for score in validity(same)] == [1.0, 1.0]
    assert new_rows(same).value == 0.0 and new_rows(same).detail["copies"] == 600


def test_rows_of_another_draw_are_new():
    score = new_rows(tables(table(key="fresh")), tables(table(key="test")))
    assert score.value == 1.0 and score.detail["test"] == 1.0


def test_one_copied_row_is_found_with_its_missing_value():
    real = table()
    copied = pd.concat([table(key="fresh").iloc[:9], real[real["age"].isna()].iloc[:1]])
    assert new_rows(tables(copied)).value == pytest.approx(0.9)


def test_one_category_of_three_covers_a_third():
    parts = coverage(tables(table().assign(town="a"))).detail["parts"]
    assert parts["town"] == pytest.approx(1 / 3) and parts["sex"] == 1.0


def test_a_constant_number_covers_nothing_of_the_range():
    assert range_coverage(np.array([0.0, 4.0]), np.array([2.0])) == 0.0
    assert range_coverage(np.array([0.0, 4.0]), np.array([9.0])) == 0.0


def test_a_constant_real_column_has_no_range_and_says_so():
    real = table().assign(weight=70.0)
    score = coverage(tables(table(), real))
    assert "constant" in score.detail["failed"]["weight"] and score.value == 1.0


def test_an_all_missing_column_fails_alone():
    gone = table().assign(age=pd.array([pd.NA] * 600, dtype="Int64"))
    score = coverage(tables(gone))
    assert score.detail["failed"]["age"] == "all synthetic values are missing"
    with pytest.raises(BadInput, match="all real"):
        range_coverage(np.array([np.nan]), np.array([1.0]))


def test_values_outside_the_schema_are_counted():
    wrong = table()
    wrong.loc[:299, "weight"] = 900.0
    wrong.loc[:149, "town"] = "elsewhere"
    boundary, category = validity(tables(wrong))
    assert boundary.detail["parts"] == {"age": 1.0, "weight": 0.5}
    assert category.detail["parts"]["town"] == 0.75


def test_adherence_to_the_real_range_stands_beside():
    heavier = table().assign(weight=lambda frame: frame["weight"] + 500 * 0).assign(town="d")
    boundary, category = validity(tables(heavier))
    assert boundary.value == 1.0 and category.value == 1.0  # d is in the schema, though no real row has it
    assert category.detail["adherence_to_real"]["town"] == 0.0


def test_without_numbers_there_are_no_boundaries_to_check():
    schema = Schema(columns=SCHEMA.columns[2:])
    frame = table()[list(schema.names)]
    boundary, category = validity(Tables.of(frame, frame, schema))
    assert "no columns of numbers" in boundary.failed and category.value == 1.0
