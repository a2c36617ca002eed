"""Columns of numbers under noise: nearer to the true shares than noisy ones, spikes and smooth shapes alike."""

import numpy as np
import pytest

from fedsynth.models.graphical import Measured
from fedsynth.models.table_merging import on_simplex
from fedsynth.models.table_smoothing import rounds_needed, smooth_cells, smooth_column, whole

CELLS = 128


def distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).sum() / 2)


def bell() -> np.ndarray:
    density = np.exp(-(((np.arange(CELLS) - 50) / 20) ** 2))
    return density / density.sum()


def spikes() -> np.ndarray:
    shares = np.zeros(CELLS)
    shares[[3, 19, 58, 59, 120]] = 0.05, 0.4, 0.25, 0.2, 0.1
    return shares


@pytest.mark.parametrize(("true", "deviation"), [(bell(), 0.02), (spikes(), 0.01)])
def test_smooth_cells_are_nearer_to_the_true_ones_than_noisy_cells(true, deviation):
    draw, errors = np.random.default_rng(0), []
    for _ in range(10):
        noisy = true + deviation * draw.standard_normal(CELLS)
        smooth = smooth_cells(noisy, deviation, 1.0)
        assert smooth.min() >= 0 and smooth.sum() == pytest.approx(1.0, abs=0.03)
        errors.append([distance(smooth, true), distance(on_simplex(noisy), true)])
    by_smoothing, by_projection = np.mean(errors, axis=0)
    assert by_smoothing < 0.75 * by_projection


def test_without_noise_cells_stay_as_they_are():
    true = np.random.default_rng(0).dirichlet(np.ones(CELLS))
    assert distance(smooth_cells(true, 1e-6, 1.0), true) < 1e-3


def test_where_noise_hides_everything_the_mass_is_spread_and_not_lost():
    noisy = 5.0 * np.random.default_rng(1).standard_normal(CELLS)
    smooth = smooth_cells(noisy - noisy.mean() + 1 / CELLS, 5.0, 1.0)
    assert smooth.sum() == pytest.approx(1.0, abs=0.5) and smooth.max() < 0.5


def test_zero_and_missing_are_no_neighbors_of_cells():
    shares = np.append(0.4 * bell(), [0.5, 0.1])
    smooth = smooth_column(Measured((0,), shares, 1e4), ordered=CELLS)
    assert smooth[CELLS:].tolist() == [0.5, 0.1]
    assert smooth[:CELLS].sum() == pytest.approx(0.4, abs=0.02)


def test_a_column_has_all_the_mass():
    assert whole(Measured((0,), np.array([0.3, 0.2, 0.2]), 4.0)).shares == pytest.approx([0.4, 0.3, 0.3])


def test_how_many_rounds_are_needed_depends_on_noise_alone():
    for deviation, expected in ((1e-3, 1), (0.1, 4), (1.0, 400)):
        for shares in (np.full(4, 0.25), np.array([1.0, 0, 0, 0])):
            assert rounds_needed([Measured((0,), shares, deviation**-2)]) == pytest.approx(expected, abs=1)
