"""Exact draws from words: every word is decided as the exact probabilities say, and on a boundary by further bits."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from fedsynth.privacy.draw import ONE, CumulativeTable, below, client_words, refined, words
from fedsynth.rng import Rng

HIGHEST = 2**64 - 1


def chosen(table, *uniform):
    return table.choose(np.array(uniform, dtype=np.uint64), Rng(1)).tolist()


def test_cumulative_probabilities_are_those_of_the_weights():
    assert CumulativeTable.of([1, 1, 2]).cumulative == (ONE // 4, ONE // 2)
    assert CumulativeTable.of([Decimal("0.3"), Fraction(3, 10), Decimal("0.4")]).cumulative == (
        ONE * 3 // 10,
        ONE * 6 // 10,
    )


@pytest.mark.parametrize("weights", [[1, 2], [5, 1, 3, 7], [Decimal(2).sqrt(), Decimal(1)]])
def test_cumulative_probabilities_are_right_to_the_last_bits(weights):
    exact = [Fraction(weight) for weight in weights]
    for place, bound in enumerate(CumulativeTable.of(weights).cumulative):
        true = sum(exact[: place + 1]) / sum(exact)
        assert 0 <= true - Fraction(bound, ONE) < Fraction(2, ONE)


def test_a_word_is_decided_by_the_interval_that_it_lies_in():
    table = CumulativeTable.of([1, 1, 2])
    assert chosen(table, 0, 2**62 - 1, 2**62 + 1, 2**63 - 1, 2**63 + 1, HIGHEST) == [0, 0, 1, 1, 2, 2]


def test_a_word_on_a_boundary_of_whole_words_belongs_to_the_next_value():
    assert chosen(CumulativeTable.of([1, 1, 2]), 2**62, 2**63) == [1, 2]


def test_a_certain_value_is_always_chosen():
    assert chosen(CumulativeTable.of([7]), 0, 5, HIGHEST) == [0, 0, 0]
    assert chosen(CumulativeTable.of([7, 0]), 0, 5, HIGHEST) == [0, 0, 0]
    assert chosen(CumulativeTable.of([0, 7]), 0, 5, HIGHEST) == [1, 1, 1]


def test_each_word_on_a_boundary_has_further_bits_of_its_own():
    table = CumulativeTable.of([1, 2])
    boundary = [table.cumulative[0] >> 64] * 40
    assert set(chosen(table, *boundary)) == {0, 1}


def test_further_bits_are_the_lower_half_of_a_128_bit_number():
    number = refined(np.uint64(5), Rng(1), 3)
    assert number >> 64 == 5 and number != refined(np.uint64(5), Rng(1), 4)
    assert number & HIGHEST == int.from_bytes(Rng(1).at("refined", 3).bytes(8), "little")


def test_words_use_all_of_their_bits():
    drawn = words(Rng(2), 4000)
    assert drawn.dtype == np.uint64 and len(drawn) == 4000
    ones = ((drawn[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).mean(0)
    assert ones.min() > 0.45 and ones.max() < 0.55


@pytest.mark.parametrize("rng", [Rng(), Rng(4)])
def test_each_client_has_words_of_its_own(rng):
    drawn = client_words(rng, [3, 9, 4], 5)
    assert drawn.shape == (3, 5) and drawn.dtype == np.uint64 and len(np.unique(drawn)) == 15


def test_a_clients_words_do_not_depend_on_who_else_is_asked():
    whole = client_words(Rng(4), np.array([3, 9]), 5)
    assert whole[1].tolist() == client_words(Rng(4), [9], 5)[0].tolist()


def test_a_number_below_a_limit_is_the_remainder_of_its_word():
    drawn = below(np.array([10, 3, 1, 2**62]), np.array([25, 26, 99, 7], dtype=np.uint64), Rng(1))
    assert drawn.tolist() == [5, 2, 0, 7] and drawn.dtype == np.int64


def test_words_that_would_favor_the_first_numbers_are_drawn_again():
    limit = 10
    first_unfair = (
        HIGHEST + 1 - (HIGHEST + 1) % limit
    )  # the words from here on fill no whole turn of the limit
    kept = below(np.array([limit]), np.array([first_unfair - 1], dtype=np.uint64), Rng(1))
    assert kept.tolist() == [9]
    again = [
        int(below(np.full(row + 1, limit), np.full(row + 1, word, dtype=np.uint64), Rng(1))[row])
        for row in range(60)
        for word in (first_unfair, HIGHEST)
    ]
    assert len(set(again)) == limit


def test_a_word_drawn_again_comes_from_a_stream_of_its_row_and_attempt():
    limit = 3 * 2**62  # one word in four is drawn again, and one in four of those once more
    drawn = below(np.full(64, limit), np.full(64, HIGHEST, dtype=np.uint64), Rng(1))
    expected = []
    for row in range(64):
        attempts = (int.from_bytes(Rng(1).at("again", row, turn).bytes(8), "little") for turn in range(99))
        expected.append(next(word for word in attempts if word < limit))
    assert drawn.astype(np.uint64).tolist() == expected and len(set(expected)) == 64


def test_the_words_that_were_given_are_not_changed():
    given = np.array([HIGHEST], dtype=np.uint64)
    below(np.array([10]), given, Rng(1))
    assert given.tolist() == [HIGHEST]


def test_limits_that_divide_all_words_need_no_second_draw():
    assert below(np.array([8]), np.array([HIGHEST], dtype=np.uint64), Rng(1)).tolist() == [7]


def test_weights_may_be_of_any_size():
    for size in ("1e-60", "1e60"):
        assert CumulativeTable.of([Decimal(size), Decimal(size), 2 * Decimal(size)]).cumulative == (
            ONE // 4,
            ONE // 2,
        )


def test_neighbouring_words_around_a_low_boundary_are_told_apart():
    """In floating point 2^62 - 1 would be 2^62."""
    assert chosen(CumulativeTable.of([1, 3]), 2**62 - 1, 2**62, 2**62 + 1) == [0, 1, 1]
