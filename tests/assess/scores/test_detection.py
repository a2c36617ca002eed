import pytest
from small_tables import SCHEMA, shuffled, table

from fedsynth.assess.scores.detection import detection
from fedsynth.assess.scores.tables import Tables


def areas(synthetic, real=None):
    real = table(1500) if real is None else real
    return [score.value for score in detection(Tables.of(real, synthetic, SCHEMA))]


def test_a_fresh_draw_cannot_be_told_apart():
    assert all(area < 0.57 for area in areas(table(1500, "fresh")))


def test_copies_count_as_not_told_apart():
    assert areas(table(1500)) == [0.5, 0.5]


def test_a_shifted_column_is_seen_by_both():
    assert all(area > 0.95 for area in areas(table(1500, "fresh").assign(weight=lambda f: f["weight"] + 40)))


def test_shuffled_columns_are_seen_by_trees_only():
    linear, trees = areas(shuffled(table(1500)))
    assert linear < 0.6 and trees > 0.85


def test_values_that_do_not_fit_give_it_away():
    assert areas(table(1500, "fresh").assign(town="elsewhere"))[1] > 0.99


def test_few_rows_fail_with_the_reason():
    scores = detection(Tables.of(table(), table(5), SCHEMA))
    assert all("600 real and 5 synthetic rows" in score.failed for score in scores)


def test_equally_many_rows_of_each_are_used_and_said():
    score = detection(Tables.of(table(900), table(300, "fresh"), SCHEMA), rows=200)[0]
    assert score.detail["rows_of_each"] == 200 and score.spread is not None
    assert score.range == (0.5, 1.0) and score.goal == "min"
    assert score.value == pytest.approx(0.5, abs=0.12)
