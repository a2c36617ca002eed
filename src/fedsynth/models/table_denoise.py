"""Noisy tables brought nearer to the true ones: what a guess leaves over is kept as far as it stands out of noise."""

from __future__ import annotations

import math

import numpy as np

from fedsynth.models.graphical import Measured

_THRESHOLDS = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)  # in standard deviations of noise


def denoised(noisy: Measured, guess: np.ndarray) -> Measured:
    """The table that lies nearest to the true one, as far as can be told, with the precision that it then has.

    Two ways are tried: the singular values of what the guess leaves over are shrunk (Gavish and Donoho 2017), or small
    cells are set to zero; the one with the smaller estimated error is taken.
    """
    variance = 1 / float(np.mean(noisy.precision))
    left = (noisy.shares - guess).reshape(guess.shape[0], -1)
    left = left - left.mean(axis=0) - left.mean(axis=1, keepdims=True) + left.mean()
    shrunk, risk = shrink_singular_values(left, math.sqrt(variance))
    shares = guess + shrunk.reshape(guess.shape)
    sparse, sparse_risk = soften(noisy.shares, math.sqrt(variance))
    if sparse_risk < risk:
        shares, risk = raked(sparse, guess), sparse_risk
    error = min(max(risk / shares.size, variance / shares.size), variance)
    return Measured(noisy.columns, shares, 1 / error)


def shrink_singular_values(noisy: np.ndarray, deviation: float) -> tuple[np.ndarray, float]:
    """The matrix with the singular values that lose least in squared error, and an estimate of that loss."""
    flat = noisy if noisy.shape[0] <= noisy.shape[1] else noisy.T
    rows, columns = flat.shape
    left, values, right = np.linalg.svd(flat, full_matrices=False)
    unit = deviation * math.sqrt(columns)
    y, ratio = values / unit, rows / columns
    square = np.maximum(y * y - ratio - 1, 0.0)
    root = np.sqrt(np.maximum(square**2 - 4 * ratio, 0.0))
    above_noise = y > 1 + math.sqrt(ratio)
    kept = np.where(above_noise, root / np.maximum(y, 1e-300), 0.0)
    true = np.where(above_noise, (square + root) / 2, 0.0)  # squared
    loss = float(np.sum(true - kept**2)) * unit**2
    energy = float(np.sum(flat * flat)) - deviation**2 * flat.size
    hidden = max(0.0, energy - float(true.sum()) * unit**2)
    best = (left * (kept * unit)) @ right
    return (best if flat is noisy else best.T), loss + hidden


def soften(noisy: np.ndarray, deviation: float) -> tuple[np.ndarray, float]:
    """All cells less a threshold, none below zero, and Stein's estimate of the squared error; the best threshold."""
    best, least = noisy, deviation**2 * noisy.size
    for times in _THRESHOLDS:
        threshold = times * deviation
        kept = np.maximum(noisy - threshold, 0.0)
        visible = noisy > threshold
        risk = float(np.sum((kept - noisy) ** 2)) + deviation**2 * (2 * int(visible.sum()) - noisy.size)
        if risk < least:
            best, least = kept, risk
    return best, max(least, 0.0)


def raked(table: np.ndarray, guess: np.ndarray, sweeps: int = 5) -> np.ndarray:
    """The table scaled until it has the margins of the guess."""
    for _ in range(sweeps):
        for axis in range(table.ndim):
            others = tuple(one for one in range(table.ndim) if one != axis)
            wanted, now = guess.sum(axis=others, keepdims=True), table.sum(axis=others, keepdims=True)
            table = np.where(now > 0, table * wanted / np.where(now > 0, now, 1.0), table)
    return table
