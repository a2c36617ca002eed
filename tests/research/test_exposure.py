"""Exposure: known answers, and a model that has memorized a canary."""

import math
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsynth.errors import BadInput
from fedsynth.research.exposure import (
    Frame,
    exposure_by_curve,
    exposure_by_rank,
    exposures,
)
from fedsynth.rng import Rng

FRAME = Frame("my code is {} {}", tuple("abcdefgh"))


def lengths(texts):
    """A model without memory: random surprise, the same for the same text."""
    return np.array([10 + np.random.default_rng(zlib.crc32(text.encode())).normal() for text in texts])


def test_the_likeliest_of_all_is_exposed_fully_and_the_last_not_at_all():
    values = np.arange(64.0)
    assert exposure_by_rank(0.0, values) == 6.0 and exposure_by_rank(63.0, values) == 0.0


@given(st.integers(1, 200))
def test_luck_gives_little(count):
    values = np.arange(float(count))
    mean = np.mean([exposure_by_rank(value, values) for value in values])
    assert 0 <= mean <= 1 / math.log(2) + 1e-9


def test_equal_surprise_shares_the_rank():
    assert exposure_by_rank(1.0, np.ones(7)) == pytest.approx(math.log2(7) - math.log2(4))


def test_a_curve_reaches_further_than_its_sample():
    sample = np.random.default_rng(0).normal(10, 1, 2000)
    assert exposure_by_curve(3.0, sample) > 30 > math.log2(len(sample) + 1)
    assert exposure_by_curve(10.0, sample) == pytest.approx(1.0, abs=0.2)


def test_a_memorized_canary_stands_out_and_a_fresh_one_does_not():
    canary, fresh = "my code is c h", "my code is b b"

    def memorized(texts):
        return lengths(texts) - 8 * np.array([text == canary for text in texts])

    found, other = exposures(memorized, FRAME, [canary, fresh], Rng(1), sample=300)
    assert found.by_rank == found.highest == 6.0 and found.by_curve > 15
    assert other.by_rank < 6 and other.by_curve < 8


def test_a_frame_too_large_to_list_still_has_a_curve():
    large = Frame("{} {} {} {}", tuple(map(str, range(40))))
    (found,) = exposures(lengths, large, [large.filled((1, 2, 3, 4))], Rng(1), sample=200)
    assert found.by_rank is None and found.highest == pytest.approx(4 * math.log2(40))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Frame("no gap", ("a", "b")), "has no gap"),
        (lambda: Frame("{}", ("a", "a")), "two different words"),
        (lambda: exposures(lengths, FRAME, ["my code is x y"], Rng(1)), "is no filling"),
        (lambda: exposure_by_curve(1.0, np.ones(50)), "spread of 0"),
        (lambda: Frame("{} {}", tuple(map(str, range(500)))).every(), "too many to list"),
    ],
)
def test_what_has_no_exposure_is_refused(make, problem):
    with pytest.raises(BadInput, match=problem):
        make()
