"""The terms of a masked sum: thresholds by trying all sets of parties, neighborhoods by exact chances."""

from dataclasses import replace
from fractions import Fraction
from itertools import chain, combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsynth.errors import BadInput, Incompatible
from fedsynth.transport.agreement import (
    Agreement,
    check_threshold,
    dump,
    load,
    party_threshold,
    sparse_degree,
    spot_checks,
)


def terms(count, threshold, colluders=0, **others):
    roster = {party: party.to_bytes(32, "big") for party in range(count)}
    return Agreement("run", 0, 5, 20, threshold, roster, colluders, **others)


@pytest.mark.parametrize("count", range(1, 8))
def test_two_lists_of_survivors_cannot_both_be_confirmed(count):
    for threshold in range(count + 2):
        for colluders in range(count):
            good = 2 <= threshold <= count and 2 * threshold > count + colluders
            if good:
                check_threshold(count, threshold, colluders)
                continue
            with pytest.raises(Incompatible):
                check_threshold(count, threshold, colluders)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(1, 50), st.integers(0, 20))
def test_clients_become_parties_as_trying_all_sets_of_them_says(members, threshold, colluders):
    sets = list(chain.from_iterable(combinations(members, size) for size in range(len(members) + 1)))
    enough = min(len(some) for some in sets if sum(some) >= min(threshold, sum(members)))
    helping = max(len(some) for some in sets if sum(some) <= colluders)
    needed = max(enough, (len(members) + helping) // 2 + 1)
    assert party_threshold(members, threshold, colluders) == (needed, helping)


def test_a_few_large_parties_are_enough_and_all_small_ones_may_help():
    assert party_threshold([1, 1, 9], 5, 0) == (2, 0) and party_threshold([9, 1, 1, 1, 1], 9, 2) == (4, 2)


def tail(total, marked, drawn, least):
    """The chance of `least` or more marked ones among some drawn from a total."""
    ways = sum(
        comb(marked, k) * comb(total - marked, drawn - k) for k in range(least, min(marked, drawn) + 1)
    )
    return Fraction(ways, comb(total, drawn))


@pytest.mark.parametrize(("count", "threshold", "colluders"), [(150, 140, 5), (120, 118, 20), (101, 90, 0)])
def test_neighborhoods_are_the_smallest_that_fail_rarely(count, threshold, colluders):
    missing = count - threshold + colluders

    def rare(degree, needed):
        exposed = tail(count - 1, colluders, degree, needed)
        stuck = 1 - tail(count - 1, threshold - 1, degree, needed)
        parted = Fraction(comb(missing, degree // 2), comb(count, degree // 2))  # a given row of half as many
        secret = max(exposed, parted) * count <= Fraction(1, 2**40)
        return secret and count * stuck <= Fraction(1, 2**20)

    pairs = ((k, n) for k in range(8, count - 1, 2) for n in range(k, 1, -1))
    assert sparse_degree(count, threshold, colluders) == next(pair for pair in pairs if rare(*pair))
    assert terms(count, threshold, colluders).degree == sparse_degree(count, threshold, colluders)


def test_where_no_neighborhood_is_safe_everybody_is_in_it():
    assert sparse_degree(101, 70, 38) == (100, 70)


@pytest.mark.parametrize(
    ("count", "threshold", "colluders"), [(150, 140, 5), (300, 200, 15), (1000, 700, 50)]
)
def test_made_up_signatures_under_one_of_two_lists_are_missed_as_rarely_as_stated(
    count, threshold, colluders
):
    """Half of those that two lists need; by exact chances of drawing none of them."""
    made_up = -(-(2 * threshold - count - colluders) // 2)

    def missed(checks):
        return count * Fraction(comb(count - made_up, checks), comb(count, checks))

    checks = spot_checks(count, threshold, colluders)
    assert missed(checks) <= Fraction(1, 2**40) < missed(checks // 2)


def test_nobody_is_left_unchecked_where_lists_could_share_nearly_all_signatures():
    assert spot_checks(120, 61, 1) == 119 and spot_checks(101, 52, 0) == 100


def test_each_of_the_terms_changes_what_is_signed():
    base = terms(4, 4, members={0: 1, 1: 2, 2: 1, 3: 1}, least=4, noise=0.5)
    changed = [
        replace(base, **change)
        for change in (
            {"run": "other"},
            {"number": 1},
            {"dim": 6},
            {"bits": 21},
            {"threshold": 3},
            {"colluders": 1},
            {"members": {0: 1, 1: 1, 2: 2, 3: 1}},
            {"least": 5},
            {"noise": 0.501},
            {"roster": {**base.roster, 2: bytes(32)}},
            {"roster": {0: base.roster[1], 1: base.roster[0], 2: base.roster[2], 3: base.roster[3]}},
        )
    ]
    assert len({agreement.context for agreement in (base, *changed)}) == 12
    same = replace(base, noise=0.5 + 1e-12, roster=dict(reversed(base.roster.items())))
    assert same.context == base.context


@pytest.mark.parametrize(
    "change",
    [
        {"bits": 0},
        {"bits": 33},
        {"dim": 0},
        {"members": {0: 1, 1: 1, 2: 1}},
        {"members": {0: 0, 1: 1, 2: 1, 3: 1}},
    ],
)
def test_terms_that_mean_nothing_are_refused(change):
    with pytest.raises(BadInput, match="expected"):
        replace(terms(4, 3), **change)


def test_the_smallest_and_largest_terms_are_taken():
    assert replace(terms(4, 3), bits=1, dim=1).bits == 1 and replace(terms(4, 3), bits=32).bits == 32
    assert terms(4, 3).clients([0, 2]) == 2
    assert terms(4, 3, members={0: 5, 1: 1, 2: 7, 3: 1}).clients([0, 2]) == 12


def test_everybody_is_a_neighbor_in_a_small_cohort():
    for present in (range(4), (0, 2, 3)):
        everybody = terms(4, 3).neighbors(present)
        assert everybody == {party: tuple(other for other in present if other != party) for party in present}
        assert terms(4, 3).neighbors(present, of=2) == {2: everybody[2]}


def test_the_circle_is_drawn_anew_for_each_round_and_cohort():
    first = terms(150, 140, 5)
    everybody, degree = first.neighbors(range(150)), first.degree[0]
    assert all(first.neighbors(range(150), of=party) == {party: everybody[party]} for party in (0, 77, 149))
    assert all(len(set(others) - {party}) == degree for party, others in everybody.items())
    again = replace(first, number=1).neighbors(range(150))
    fewer, others = first.neighbors(range(149)), first.neighbors([*range(148), 149])
    near = [sum((other - party) % 150 <= degree for other in everybody[party]) for party in everybody]
    assert again != everybody and fewer[0] != others[0]
    assert sum(near) < 0.5 * degree * 150  # no circle by number
    assert len(set(fewer[0]) & set(everybody[0])) < 0.8 * degree


@given(st.sets(st.integers(0, 2**32 - 1), max_size=9))
def test_a_list_of_parties_comes_back_in_order(parties):
    assert load(dump(list(parties))) == sorted(parties) and len(dump(list(parties))) == 4 * len(parties)
