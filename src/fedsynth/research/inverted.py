"""Rows or images that a server reads off single updates of a recipe on a public data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsynth.assess.scores.score import Score
from fedsynth.data.clients import Clients, encode_clients, image_clients_from
from fedsynth.data.table import Table
from fedsynth.errors import BadInput, nearest
from fedsynth.recipes.budget import Target, fit_budget
from fedsynth.recipes.registry import recipe_named
from fedsynth.research.experiment_data import DATA
from fedsynth.research.image_experiment import IMAGE_DATA
from fedsynth.research.image_inversion import MOST_CLIENTS, STEPS, image_inversion
from fedsynth.research.inversion import inversion_attack
from fedsynth.rng import Rng


def inverted(
    recipe: str,
    data: str,
    target: Target | None,
    clients: int,
    settings: Mapping[str, Any],
    *,
    seed: int = 0,
    steps: int = STEPS,
) -> list[Score]:
    """Attack clients of one test row or image each, of so many that take part; the noise is that of the target.

    Without a target nothing is noised. Tables are read in closed form (inversion.py), images by a search of so many
    steps (image_inversion.py).
    """
    known, built, rng = [*DATA, *IMAGE_DATA], recipe_named(recipe), Rng(seed)
    if data not in known:
        raise BadInput(f"data={data!r}: unknown; {nearest(data, known)}")
    if data in IMAGE_DATA:
        images, labels, schema = IMAGE_DATA[data]("test")
        chosen = rng.at("asked").numpy().permutation(len(images))[:MOST_CLIENTS]
        owners = np.arange(len(chosen))
        rows = encode_clients(image_clients_from(images[chosen], labels[chosen], owners=owners), schema)
    else:
        _, frame, schema = DATA[data]()
        chosen = rng.at("asked").numpy().permutation(len(frame))
        x, y = Table(schema).encode(frame.iloc[chosen].reset_index(drop=True))
        rows = Clients(x, y, np.array([0, len(y)]))
    task = built.task(schema, clients, private=target is not None)
    values = built.values(settings)
    algorithm = fit_budget(built, task, values, target)[0] if target else built.build(task, values)
    if data in IMAGE_DATA:
        return image_inversion(algorithm, rows, rng, steps)
    return inversion_attack(algorithm, rows, Table(schema).blocks, rng)
