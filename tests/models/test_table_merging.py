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
