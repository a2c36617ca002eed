"""Poisson samples: each member by its own coin, whatever the population, and never more work than the sample."""

import math

import numpy as np
import pytest
from scipy.stats import binom, chisquare, poisson

from fedsynth.errors import BadInput
from fedsynth.privacy.sampling import most_drawn, poisson_sample
from fedsynth.rng import Rng


@pytest.mark.parametrize(("population", "rate"), [(1, 0.5), (3, 0.9), (7, 0.2)])
def test_every_subset_has_the_probability_of_independent_coins(population, rate):
    times = 6_000
    counts = np.zeros(2**population)
    for turn in range(times):
        members = poisson_sample(population, rate, Rng(3).at(turn))
        counts[int((2 ** members.astype(int)).sum())] += 1
    sizes = np.array([bin(subset).count("1") for subset in range(2**population)])
    chances = rate**sizes * (1 - rate) ** (population - sizes)
    likely = chances * times >= 10
    rest = times - counts[likely].sum(), times * (1 - chances[likely].sum())
    observed, expected = np.append(counts[likely], rest[0]), np.append(chances[likely] * times, rest[1])
    assert chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-4
    assert observed[expected == 0].sum() == 0


def test_the_size_of_a_sample_is_binomial():
    sizes = [len(poisson_sample(500, 0.1, Rng(4).at(turn))) for turn in range(4000)]
    edges = binom.ppf(np.linspace(0, 1, 9)[1:-1], 500, 0.1)
    cells = np.bincount(np.searchsorted(edges, sizes), minlength=8)
    chances = np.diff(np.concatenate([[0], binom.cdf(edges, 500, 0.1), [1]]))
    assert chisquare(cells, chances * 4000).pvalue > 1e-4


def test_members_ascend_and_are_whole_numbers():
    members = poisson_sample(10_000, 0.3, Rng(5))
    assert members.dtype == np.int64 and (np.diff(members) > 0).all()
    assert members[0] >= 0 and members[-1] < 10_000


def test_nobody_is_drawn_from_nobody():
    assert len(poisson_sample(0, 0.5, Rng(1))) == 0 and len(poisson_sample(0, 1.0, Rng(1))) == 0


def test_gaps_of_one_take_everybody_and_the_blocks_join_up(monkeypatch):
    """However many draws a block has, the next one goes on behind the last member."""
    monkeypatch.setattr(Rng, "uniforms", lambda rng, count: np.full(min(count, 3), 0.95))
    assert poisson_sample(20, 0.1, Rng(2)).tolist() == list(range(20))


def test_each_block_of_gaps_has_a_stream_of_its_own(monkeypatch):
    streams = []
    draw = Rng.uniforms

    def few(rng, count):
        streams.append(rng.path)
        return draw(rng, 2)

    monkeypatch.setattr(Rng, "uniforms", few)
    poisson_sample(100, 0.1, Rng(2))
    assert len(streams) > 2 and len(set(streams)) == len(streams)


def test_one_block_is_nearly_always_enough_and_not_much_too_long(monkeypatch):
    drawn = []
    draw = Rng.uniforms
    monkeypatch.setattr(Rng, "uniforms", lambda rng, count: drawn.append(count) or draw(rng, count))
    for turn in range(200):
        poisson_sample(10_000, 0.04, Rng(6).at(turn))
    assert len(drawn) <= 202 and max(drawn) == int(400.04 + 4 * math.sqrt(401.04)) + 8


@pytest.mark.parametrize("expected", [0.0, 1.0, 30.0, 1024.0, 1e6])
def test_more_than_the_most_is_less_likely_than_one_in_a_billion(expected):
    most = most_drawn(expected)
    assert poisson.sf(most, expected) < 1e-9 and most <= expected + 8 * math.sqrt(expected) + 8
    assert most == math.ceil(expected + 7 * math.sqrt(expected) + 7)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0001, float("nan")])
def test_a_rate_that_is_no_chance_is_refused(rate):
    with pytest.raises(BadInput, match="rate="):
        poisson_sample(5, rate, Rng(1))
