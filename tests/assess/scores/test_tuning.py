import pytest
from small_tables import SCHEMA, shuffled, table

from fedsynth.assess.scores.tuned_classifier import rank_agreement, tuning
from fedsynth.errors import BadInput


def test_the_same_order_agrees_and_the_reverse_disagrees():
    real = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}
    assert rank_agreement(real, {name: value / 2 for name, value in real.items()}) == (1.0, 1.0)
    assert rank_agreement(real, {name: -value for name, value in real.items()}) == (-1.0, -1.0)


def test_one_swap_of_neighbors_is_the_textbook_value():
    spearman, kendall = rank_agreement({"a": 4, "b": 3, "c": 2, "d": 1}, {"a": 4, "b": 2, "c": 3, "d": 1})
    assert spearman == pytest.approx(0.8) and kendall == pytest.approx(2 / 3)


def test_candidates_that_do_equally_well_have_no_order():
    with pytest.raises(BadInput, match="equally well"):
        rank_agreement({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 2, "c": 3})


def test_good_rows_order_models_rightly_and_choose_well():
    order, regret = tuning(table(), table(key="fresh"), table(key="test"), SCHEMA)
    assert order.value > 0.7 and 0 <= regret.value < 0.03
    assert set(order.detail["on_real"]) == set(order.detail["on_synthetic"])
    assert regret.detail["best"] in order.detail["on_real"]


def test_useless_rows_order_models_at_random():
    order, _ = tuning(table(), shuffled(table()), table(key="test"), SCHEMA)
    assert order.value < 0.7
