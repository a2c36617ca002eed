"""Noisy tables brought nearer to the true ones: errors become smaller, and what is clear stays as it is."""

import numpy as np
import pytest

from fedsynth.models.graphical import Measured
from fedsynth.models.table_denoise import denoised, raked, shrink_singular_values, soften

NOISE = 0.002


def measured(true: np.ndarray, seed: int) -> Measured:
    noise = np.random.default_rng(seed).normal(0, NOISE, true.shape)
    return Measured((0, 1), true + noise, NOISE**-2)


def error(table: np.ndarray, true: np.ndarray) -> float:
    return float(np.square(table - true).sum())


def tied(strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Two columns of 20 and 14 values that go together by one factor, and as if they did not."""
    alone = np.full((20, 14), 1 / 280)
    factor = np.outer(np.linspace(-1, 1, 20), np.linspace(-1, 1, 14))
    return alone * (1 + strength * factor), alone


@pytest.mark.parametrize("strength", [0.0, 0.3, 0.9])
def test_a_simple_tie_is_seen_through_noise(strength):
    true, guess = tied(strength)
    for seed in range(5):
        noisy = measured(true, seed)
        calm = denoised(noisy, guess)
        assert error(calm.shares, true) < 0.5 * error(noisy.shares, true)
        assert calm.precision > noisy.precision


def test_a_table_with_few_filled_cells_keeps_them_and_loses_the_others():
    true = np.eye(14) / 14
    guess = np.full((14, 14), 1 / 196)
    noisy = measured(true, 0)
    calm = denoised(noisy, guess)
    assert error(calm.shares, true) < 0.3 * error(noisy.shares, true)
    assert np.allclose(calm.shares.sum(axis=0), guess.sum(axis=0), atol=1e-4)


def test_the_stated_error_is_the_error():
    """The estimate of the loss, on average over noise, for both ways."""
    true, guess = tied(0.9)
    losses = [shrink_singular_values(measured(true, seed).shares - guess, NOISE) for seed in range(30)]
    actual = np.mean([error(guess + best, true) for best, _ in losses])
    assert np.mean([risk for _, risk in losses]) == pytest.approx(actual, rel=0.5)
    sparse = np.eye(14) / 14
    losses = [soften(measured(sparse, seed).shares, NOISE) for seed in range(30)]
    actual = np.mean([error(best, sparse) for best, _ in losses])
    assert np.mean([risk for _, risk in losses]) == pytest.approx(actual, rel=0.5)


def test_raking_gives_the_margins_of_the_guess():
    table, guess = np.array([[0.5, 0.0], [0.1, 0.2]]), np.array([[0.3, 0.3], [0.2, 0.2]])
    raked_table = raked(table, guess, sweeps=200)
    assert raked_table[0, 1] == 0
    assert np.allclose(raked_table.sum(axis=1), guess.sum(axis=1), atol=0.2)
    assert np.allclose(raked_table.sum(axis=0), guess.sum(axis=0), atol=0.2)
