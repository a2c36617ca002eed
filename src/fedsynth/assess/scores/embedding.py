"""Real and synthetic rows as points of a plane: the two directions in which real rows vary most. Internal."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsynth.assess.scores.detection import as_features
from fedsynth.assess.scores.tables import Tables

_FITTED = 5_000
_SHOWN = 300  # points of each


def embedding(tables: Tables, seed: int = 0) -> dict[str, Any]:
    """Principal components of the real rows, and some real and synthetic rows along the first two.

    `explained` are the shares of the real rows' variance that both directions explain.
    """
    drawn = tables.sampled(_FITTED, seed)
    real, synthetic = (as_features(drawn.columns, side) for side in (drawn.real, drawn.synthetic))
    middle = real.mean(axis=0)
    _, sizes, directions = np.linalg.svd(real - middle, full_matrices=False)
    total = float((sizes**2).sum()) or 1.0
    points = [((side[:_SHOWN] - middle) @ directions[:2].T).round(3) for side in (real, synthetic)]
    return {
        "real": points[0].tolist(),
        "synthetic": points[1].tolist(),
        "explained": [float(size**2 / total) for size in sizes[:2]],
    }
