"""Small clients with dark images, of whom a share may hold negatives, and a classifier that minds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedsynth.data.clients import RawClients
from fedsynth.data.schema import Column, Schema
from fedsynth.inspection.primary import Installed
from fedsynth.inspection.request import Inspection
from fedsynth.inspection.selection import Selection
from fedsynth.inspection.verdict import Simulation
from fedsynth.synthesis.request import Request

CLIENTS, ROWS = 60, 8
SCHEMA = Schema(
    kind="image",
    height=8,
    width=8,
    channels=1,
    columns=(Column("side", "categorical", categories=("left", "right")),),
    label="side",
)
SMALL = {"frequencies": 6, "latent": 4, "width": 2, "rate": 0.5}
WORST = {"by": "user", "criterion": "correct", "below": 0.4}
BEST = {"by": "user", "criterion": "correct", "above": 0.6}


def brighter_side(images: np.ndarray) -> np.ndarray:
    """Scores of left and right: right for dark images with a bright bar, wrong for their negatives."""
    whole = images.astype(float)
    return np.stack([whole[:, :, :4].mean((1, 2)), whole[:, :, 4:].mean((1, 2))], axis=1)


def bars(affected: float, seed: int = 0) -> RawClients:
    """Images with a bright bar at the side that the label names; negatives at the first clients."""
    draw = np.random.default_rng(seed)
    owner = np.repeat(np.arange(CLIENTS), ROWS)
    side = draw.integers(0, 2, len(owner))
    images = draw.integers(0, 40, (len(owner), 8, 8), dtype=np.uint8)
    for image, right in zip(images, side, strict=True):
        image[:, 5 if right else 1] = 220
    at = owner < affected * CLIENTS
    images[at] = 255 - images[at]
    return RawClients(owner, CLIENTS, (), data=(images, np.array(["left", "right"])[side]))


def asked(
    bad: dict[str, Any] | None = WORST,
    good: dict[str, Any] | None = BEST,
    *,
    models: int = 4,
    model: Callable[[np.ndarray], Any] | None = brighter_side,
    epsilon: float = 20.0,
    seed: int | None = 1,
    recipe: str = "moment_vae",
    **changes: Any,
) -> Inspection:
    """An inspection of the bars, changed as a test likes."""
    chosen = {name: Selection.parse(keys) for name, keys in (("bad", bad), ("good", good)) if keys}
    request = Request(
        recipe=recipe,
        epsilon=epsilon,
        delta=1e-2,
        rounds=1,
        seed=seed,
        arguments=SMALL if recipe == "moment_vae" else {},
    )
    installed = None if model is None else Installed(model, SCHEMA)
    plan = Simulation(models=models, rows=ROWS, shown=200)
    return Inspection(request, SCHEMA, chosen, installed, plan, shown=200, **changes)
