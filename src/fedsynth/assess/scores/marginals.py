"""Joint distributions of several columns, and the distance of correlation matrices: AVD and CMD.

After Jiang, Zhou and Grossklags (2022), "Privacy-Preserving High-dimensional Data Collection with Federated
Generative Autoencoder" (DP-Fed-WAE), section 4.2.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from fedsynth.assess.scores.overlay import pearson
from fedsynth.assess.scores.score import Score, failure
from fedsynth.assess.scores.tables import COARSE_BINS, Tables, cells, coarse
from fedsynth.rng import Rng

WAYS = (2, 3, 4, 5, 6)
SETS = 100  # of columns, drawn at random for each number of ways
CMD = "correlation matrix distance"
_LARGEST_CODE = 2**40  # beyond it codes of combinations are numbered anew, long before int64 overflows


def marginal_name(ways: int) -> str:
    """The name of the score.

    >>> marginal_name(3)
    '3-way marginals: average variation distance'
    """
    return f"{ways}-way marginals: average variation distance"


def variation_distance(real: np.ndarray, synthetic: np.ndarray) -> float:
    """Total variation distance between the shares of integer codes, equation 8 of the paper.

    >>> variation_distance(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]))
    0.25
    """
    codes, distinct = pd.factorize(np.concatenate([real, synthetic]))
    first, second = (
        np.bincount(part, minlength=len(distinct)) / len(part)
        for part in (codes[: len(real)], codes[len(real) :])
    )
    return float(np.abs(first - second).sum() / 2)


def marginals(tables: Tables, seed: int = 0) -> tuple[list[Score], list[dict[str, Any]]]:
    """A score for each number of ways, and the distance of every set that was drawn, worst first.

    Numbers are cut into ten equal parts of their public range; missing is a value. Even two halves of the same
    table differ, the more the more ways: their distance stands beside each score as `real_halves`. It
    overstates what is unavoidable, because a half has fewer rows.
    """
    columns = tables.fitting
    codes = {
        c.name: coarse(c, np.concatenate([tables.real[c.name], tables.synthetic[c.name]])) for c in columns
    }
    sizes = {c.name: cells(c) for c in columns}
    left_out = {"left_out": dict(tables.problems)} if tables.problems else {}
    scores, worst = [], []
    for ways in WAYS:
        drawn = column_sets([c.name for c in columns], ways, seed)
        if not drawn:
            reason = f"{len(columns)} columns fit the schema; a {ways}-way marginal needs at least {ways}"
            scores.append(failure(marginal_name(ways), reason, goal="min", detail=left_out))
            continue
        parts = [_distances(names, codes, sizes, tables.rows, seed) for names in drawn]
        scores.append(_score(ways, parts, {"rows": list(tables.rows), **left_out}))
        worst += parts
    return scores, sorted(worst, key=lambda part: -part["distance"])


def column_sets(names: Sequence[str], ways: int, seed: int) -> list[tuple[str, ...]]:
    """All sets of `ways` columns if there are at most 100, else 100 different ones drawn at random.

    >>> column_sets(["a", "b", "c"], 2, seed=0)
    [('a', 'b'), ('a', 'c'), ('b', 'c')]
    """
    if comb(len(names), ways) <= SETS:
        return list(combinations(names, ways))
    random = Rng(seed).at("column sets", ways).numpy()
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < SETS:
        drawn[tuple(sorted(random.choice(len(names), ways, replace=False)))] = None
    return [tuple(names[place] for place in places) for places in drawn]


def _distances(
    names: tuple[str, ...],
    codes: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    rows: tuple[int, int],
    seed: int,
) -> dict[str, Any]:
    joined = np.zeros(sum(rows), dtype=np.int64)
    largest = 1
    for name in names:
        joined, largest = joined * sizes[name] + codes[name], largest * sizes[name]
        if largest > _LARGEST_CODE:
            joined, distinct = pd.factorize(joined)
            largest = len(distinct)
    real, synthetic = joined[: rows[0]], joined[rows[0] :]
    shuffled = Rng(seed).at("halves").numpy().permutation(real)
    half = len(real) // 2
    return {
        "columns": list(names),
        "ways": len(names),
        "distance": variation_distance(real, synthetic),
        "halves": variation_distance(shuffled[:half], shuffled[half:]) if half else None,
    }


def _score(ways: int, parts: list[dict[str, Any]], detail: Mapping[str, Any]) -> Score:
    distances = [part["distance"] for part in parts]
    halves = [part["halves"] for part in parts if part["halves"] is not None]
    beside = {
        "sets": len(parts),
        "spread_of": "sets of columns",
        "real_halves": float(np.mean(halves)) if halves else None,
        "bins": COARSE_BINS,
    }
    spread = float(np.std(distances, ddof=1)) if len(parts) > 1 else None
    return Score(
        marginal_name(ways), float(np.mean(distances)), "min", spread=spread, detail={**beside, **detail}
    )


def matrix_distance(real: np.ndarray, synthetic: np.ndarray) -> float:
    """1 minus the cosine between two correlation matrices (Herdin et al. 2005), equation 9 of the paper.

    >>> round(matrix_distance(np.eye(2), np.eye(2)), 9)
    0.0
    >>> matrix_distance(np.ones((2, 2)), np.array([[1.0, -1.0], [-1.0, 1.0]]))
    1.0
    """
    cosine = np.trace(real @ synthetic) / (np.linalg.norm(real) * np.linalg.norm(synthetic))
    return max(0.0, float(1 - cosine))  # rounding must not make it negative


def correlation_matrix_distance(tables: Tables) -> Score:
    """CMD over one number a column: values, or places of categories in the schema's list, as in the paper.

    A constant column is taken as uncorrelated with all others, and named in the detail.
    """
    columns = tables.fitting
    if len(columns) < 2:
        reason = f"{len(columns)} columns fit the schema; correlations need at least 2"
        return failure(CMD, reason, goal="min", detail={"left_out": dict(tables.problems)})
    matrices, constant = [], []
    for what, table in (("real", tables.real), ("synthetic", tables.synthetic)):
        numbers = [table[column.name] for column in columns]
        constant += [
            f"{what}: {column.name}"
            for column, values in zip(columns, numbers, strict=True)
            if _constant(values)
        ]
        matrices.append(_correlations(numbers))
    detail = {"constant": constant, "left_out": dict(tables.problems), "rows": list(tables.rows)}
    return Score(CMD, matrix_distance(*matrices), "min", detail=detail)


def _constant(values: np.ndarray) -> bool:
    there = values[~np.isnan(values)]
    return not len(there) or bool(np.ptp(there) == 0)


def _correlations(numbers: Sequence[np.ndarray]) -> np.ndarray:
    together = np.stack(numbers)
    if not np.isnan(together).any():  # all pairs at once
        centered = together - together.mean(1, keepdims=True)
        length = np.sqrt((centered**2).sum(1))
        varies = np.ptp(together, axis=1) > 0
        scaled = centered * (varies / np.where(varies, length, 1.0))[:, None]
        return np.asarray(scaled @ scaled.T + np.diag(~varies))
    matrix = np.eye(len(numbers))
    for i in range(len(numbers)):
        for j in range(i):
            matrix[i, j] = matrix[j, i] = pearson(numbers[i], numbers[j]) or 0.0
    return matrix
