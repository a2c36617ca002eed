"""Does the generator put more rows where its training rows lie than the population does: a DOMIAS-like attack.

A row in a crowded place is near to synthetic rows whether it was trained on or not. The attack of van Breugel et al.
(2023) therefore divides the density of the synthetic rows by that of the population, of which the attacker is given
some rows: what is left is what the generator knows beyond the population.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedsynth.assess.attacks.attack import area, attack_failures, attack_scores
from fedsynth.assess.attacks.distance import (
    MOST_ASKED,
    Attacked,
    AttackedPoints,
    as_points,
    drawn,
    nearest_distances,
    squared_distances,
)
from fedsynth.assess.scores.holdout import check_apart, parted
from fedsynth.assess.scores.score import Score
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

_MOST_ROWS = 20_000  # of the population and of the synthetic table: more cost time and find little
_LEAST_WIDTH = 0.002
_SHARES = (0.3, 1.0)  # of the usual distance between neighbors: kernel widths
_NEIGHBORS = (1, 5)


def log_density(points: Tensor, rows: Tensor, width: float) -> Tensor:
    """The logarithm of a Gaussian kernel density of `rows` at `points`, up to a constant of `width` alone.

    >>> rows = torch.tensor([[0.0], [0.0]])
    >>> [round(float(x), 3) for x in log_density(torch.tensor([[1.0], [2.0]]), rows, 1.0)]
    [-0.5, -2.0]
    """
    total = torch.full((len(points),), -torch.inf, dtype=torch.float64)
    for distances in squared_distances(points, rows):
        total = torch.logaddexp(total, torch.logsumexp(distances / (-2.0 * width**2), dim=1).double())
    return total - float(np.log(len(rows)))


def density_attack(table: Attacked) -> list[Score]:
    """Guess that a row was trained on where synthetic rows are denser than the population.

    Half of the hold-out, split by client, is the attacker's sample of the population, the other half are the rows
    that were not trained on. How densities are estimated (kernels of several widths, distances to near
    neighbors) is chosen on one half of the rows that are asked about and judged on the other.
    """
    name, rng, schema = "density ratio", Rng(table.seed), table.schema
    try:
        check_apart(table.real, table.holdout, schema)
        reference, others = parted(table.holdout, schema, 0.5, rng.at("halves"))
        few = drawn(table.synthetic, min(len(table.synthetic), _MOST_ROWS), rng.at("few"))
        points = AttackedPoints.of(table.real, few, others, schema, rng, MOST_ASKED)
        known = as_points(reference.iloc[:_MOST_ROWS], schema)
    except BadInput as error:
        return attack_failures(name, str(error))
    half = len(points.members) // 2
    ratios = density_ratios(points, known)
    chosen = max(ratios, key=lambda kind: area(*(side[:half] for side in ratios[kind])))
    inside, outside = (side[half:] for side in ratios[chosen])
    return attack_scores(
        name, inside, outside, table.ceiling, {"estimator": chosen, "reference_rows": len(known)}
    )


def density_ratios(points: AttackedPoints, known: Tensor) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The logarithm of the density ratio of members and of others, by each way of estimating a density."""
    usual = float(nearest_distances(known[:MOST_ASKED], known, 2)[:, -1].median())
    widths = sorted({max(_LEAST_WIDTH, share * usual) for share in _SHARES})
    kernels = {f"kernel of width {width:.3g}": partial(log_density, width=width) for width in widths}
    neighbors = {f"distance to neighbor {count}": partial(_neighbor, count=count) for count in _NEIGHBORS}
    return {
        kind: (
            (estimate(points.members, points.synthetic) - estimate(points.members, known)).numpy(),
            (estimate(points.others, points.synthetic) - estimate(points.others, known)).numpy(),
        )
        for kind, estimate in {**kernels, **neighbors}.items()
    }


def _neighbor(points: Tensor, rows: Tensor, count: int) -> Tensor:
    """A density from the distance to the neighbor of this number, up to a power that a ratio does not care about."""
    distance = nearest_distances(points, rows, min(count, len(rows)))[:, -1].double()
    return -torch.log(distance + _LEAST_WIDTH)
