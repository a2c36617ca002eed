"""What a unit answers has norm at most 1 whatever it holds, and noisy answers are read as what they say."""

import math

import pytest
import torch

from fedsynth.data.clients import Padded
from fedsynth.errors import BadInput
from fedsynth.federation.statistics import (
    Holdings,
    LabelShares,
    RecordCount,
    as_probabilities,
    quantiles,
)

LABELS = torch.tensor([[0, 1, 1], [2, 0, 0], [1, 1, 1]])
PRESENT = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])


def data(codes, mask=PRESENT, labels=LABELS):
    return Padded(codes, labels, mask)


def test_shares_of_labels_are_those_of_the_rows_that_are_there():
    shares = LabelShares(3)(data(torch.zeros(3, 3, 1)))
    torch.testing.assert_close(shares, torch.tensor([[1 / 3, 2 / 3, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))


def test_records_that_are_there_are_counted():
    counted = RecordCount()(data(torch.zeros(3, 3, 1)))
    assert counted.tolist() == [[3.0], [1.0], [0.0]] and counted.dtype == torch.float32


def test_a_unit_holds_each_of_its_codes_once_and_columns_share_the_norm():
    codes = torch.tensor([[[0, 1], [0, 2], [1, -1]], [[1, 0], [0, 1], [0, 2]], [[0, 0], [1, 1], [1, 2]]])
    told = Holdings((2, 3), most=3)(data(codes))
    first = [2**-0.5, 2**-0.5, 0.0, 2**-0.5, 2**-0.5]
    expected = torch.tensor([first, [0.0, 1.0, 1.0, 0.0, 0.0], [0.0] * 5]) / math.sqrt(2)
    torch.testing.assert_close(told, expected)
    assert float(told.norm(dim=1).max()) <= 1 + 1e-6


def test_a_code_beyond_its_column_does_not_lengthen_the_answer():
    codes = torch.tensor([[[9, 9], [0, 0], [1, 1]]])
    told = Holdings((2, 2), most=3)(Padded(codes, LABELS[:1], PRESENT[:1]))
    assert told.shape == (1, 4) and float(told.norm()) <= 1 + 1e-6


def test_noisy_counts_below_zero_are_no_probabilities():
    torch.testing.assert_close(
        as_probabilities(torch.tensor([30.0, -2.0, 70.0])), torch.tensor([0.3, 0.001, 0.7]) / 1.001
    )
    assert as_probabilities(torch.tensor([3.0, 1.0], dtype=torch.float64)).dtype == torch.float32


def test_without_any_count_all_classes_are_alike():
    assert as_probabilities(torch.tensor([-3.0, 0.0])).tolist() == [0.5, 0.5]


def test_small_counts_are_probabilities_too():
    assert as_probabilities(torch.tensor([1e-6, 3e-6])).tolist() == pytest.approx([0.25, 0.75])


def test_the_floor_is_what_is_asked_for():
    assert as_probabilities(torch.tensor([1.0, 0.0]), floor=0.5).tolist() == pytest.approx([2 / 3, 1 / 3])


def test_quantiles_lie_on_straight_lines_within_a_bin():
    noisy = torch.tensor([10.0, 30.0, -5.0, 60.0])
    edges = [0.0, 10.0, 20.0, 30.0, 50.0]
    assert quantiles(noisy, edges, [0.0, 0.05, 0.1, 0.25, 0.4, 0.7, 1.0]) == pytest.approx(
        [0, 5, 10, 15, 30, 40, 50]
    )


def test_quantiles_need_one_edge_more_than_bins():
    for edges in ([0.0, 1.0], [0.0, 1.0, 2.0, 3.0]):
        with pytest.raises(BadInput, match="one more edge than bins"):
            quantiles(torch.tensor([1.0, 1.0]), edges, [0.5])


def test_quantiles_of_small_counts_are_scaled():
    assert quantiles(torch.tensor([1e-3, 1e-3]), [0, 1, 2], [0.5]) == pytest.approx([1.0])
    assert all(math.isfinite(value) for value in quantiles(torch.tensor([-1.0, -1.0]), [0, 1, 2], [0.1, 0.9]))


def test_codes_may_come_as_floats_and_a_column_may_have_one_value():
    codes = torch.tensor([[[0.0, 0.0], [0.0, 7.0], [0.0, -1.0]]])
    told = Holdings((1, 1), most=1)(Padded(codes, LABELS[:1], PRESENT[:1]))
    torch.testing.assert_close(told, torch.tensor([[1.0, 1.0]]) / math.sqrt(2))


def test_small_bins_beside_large_ones_are_not_rounded_away():
    noisy = torch.tensor([2.0**24, 1.0, 1.0])
    assert quantiles(noisy, [0, 10, 20, 30], [1 - 0.5 / (2**24 + 2)])[0] == pytest.approx(25, abs=0.1)
