"""Numbers of children under noise: what stands for all beyond a bound."""

import numpy as np

from fedsynth.models.graphical import Measured
from fedsynth.models.table_merging import calmed, falling_law, merged_values


def test_the_number_that_stands_for_all_beyond_it_keeps_its_share():
    """Two in a hundred parents have 50 children or more: noise does not spread them over the numbers below."""
    shares = 0.98 * 0.8 ** np.arange(51) / (0.8 ** np.arange(51)).sum()
    shares[-1] += 0.02
    noise = 0.003
    noisy = shares + noise * np.random.default_rng(0).standard_normal(51)
    merged = merged_values(noisy, noise, ordered=51, most=32, count=True)
    masses = np.bincount(merged, noisy)
    law = falling_law(merged, Measured((0,), masses, 1 / noise**2))
    calm = calmed(noisy, merged, noise**2, masses, 51, law)
    assert abs(calm[-1] - shares[-1]) < 3 * noise


def test_noise_of_empty_cells_does_not_hide_the_numbers_above_them():
    """Gains begin in the 86th of 128 cells."""
    noise, shares = 0.004, np.zeros(128)
    shares[[85, 92, 95, 104, 112, 127]] = [0.01, 0.02, 0.02, 0.03, 0.01, 0.01]
    shares = np.append(shares, [1 - shares.sum()])  # and zero, by itself
    found = []
    for seed in range(20):
        noisy = shares + noise * np.random.default_rng(seed).standard_normal(len(shares))
        noisy[:80] -= 0.002  # noise that happens to be low below them
        merged = merged_values(noisy, noise, ordered=128, most=32)
        found.append(len(set(merged[85:112].tolist())))
    assert np.median(found) >= 3


def test_a_run_of_cells_ends_where_its_last_ones_are_seen():
    noisy = np.array([-0.01] * 30 + [0.025] * 6 + [0.9])
    merged = merged_values(noisy, 0.01, ordered=36, most=20)
    assert merged.tolist() == [0] * 33 + [1, 1, 1] + [2]
