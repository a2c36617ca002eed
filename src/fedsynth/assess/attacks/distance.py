"""Is the generator closer to its training rows than to others: distance to the closest synthetic row.

A generator that copies puts synthetic rows on top of training rows. Real rows that it never saw (a hold-out from
the same population) show how close a synthetic row comes to a stranger by chance; only the difference counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedsynth.assess.attacks.attack import attack_failures, attack_scores
from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.assess.scores.holdout import check_apart, one_each
from fedsynth.assess.scores.score import Score
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

MOST_ASKED = 2_000  # members, and as many others
LEAST_ASKED = 20
MOST_SYNTHETIC = 100_000
_MOST_KNOWN = 20_000  # training rows that distances are measured to
_DISTANCE_BINS = 30
_EQUAL = 1e-5  # a distance up to which rounding makes rows differ
_AT_ONCE = 2**23  # distances held in memory


def as_points(frame: pd.DataFrame, schema: Schema) -> Tensor:
    """Rows as points [rows, width]: two categories are 1 apart, numbers as far as their share of the public range.

    >>> from fedsynth.data.column import Column
    >>> schema = Schema(columns=(Column("age", "integer", min=0, max=99), Column("ill", "binary")))
    >>> points = as_points(pd.DataFrame({"age": [0, 99], "ill": ["0", "1"]}), schema)
    >>> round(float((points[0] - points[1]).square().sum()), 2)
    1.98
    """
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise BadInput(f"column {missing[0]!r} is missing; expected the columns of the schema")
    if not len(frame):
        raise BadInput("there are no rows; expected at least one")
    unlabelled = schema.with_label(None)
    encoding = Table(unlabelled)
    x, _ = encoding.encode(frame[list(schema.names)])
    pieces = []
    for block in encoding.blocks:
        choices = x[:, block.start : block.place] * 0.5**0.5
        if block.ordered:  # of the bins only the one that says that the value is missing
            pieces += [x[:, block.place : block.place + 1], choices[:, block.bins :]]
        else:
            pieces.append(choices)
    return torch.cat(pieces, dim=1)


def squared_distances(points: Tensor, others: Tensor) -> Iterator[Tensor]:
    """Squared distances of all points to pieces of `others`, [points, piece] each: memory stays bounded.

    In float64: the difference of large squares must not take a stranger close by for a copy.
    """
    points = points.double()
    squares = points.square().sum(1, keepdim=True)
    for part in others.split(max(1, _AT_ONCE // max(1, len(points)))):
        piece = part.double()
        yield (squares + piece.square().sum(1) - 2.0 * (points @ piece.T)).clamp_(min=0.0)


def nearest_distances(points: Tensor, others: Tensor, count: int = 1) -> Tensor:
    """The distances of each point to its `count` nearest among `others`, ascending, [points, count]."""
    best = torch.full((len(points), 0), torch.inf, dtype=torch.float64)
    for distances in squared_distances(points, others):
        joined = torch.cat([best, distances], dim=1)
        best = joined.topk(min(count, joined.shape[1]), dim=1, largest=False, sorted=True).values
    return best.sqrt()


@dataclass(frozen=True)
class Attacked:
    """A released table that is attacked, the rows that it was made from, and real rows that no generator saw.

    `ceiling` is the most that an attack could find if the release keeps its claim.
    """

    real: pd.DataFrame
    synthetic: pd.DataFrame
    holdout: pd.DataFrame
    schema: Schema
    ceiling: Ceiling | None = None
    seed: int = 0


@dataclass(frozen=True)
class AttackedPoints:
    """Whom an attack on a released table asks about: members, as many others, and the table, all as points."""

    members: Tensor
    others: Tensor
    synthetic: Tensor

    @classmethod
    def of(
        cls,
        real: pd.DataFrame,
        synthetic: pd.DataFrame,
        holdout: pd.DataFrame,
        schema: Schema,
        rng: Rng,
        most: int = MOST_ASKED,
    ) -> AttackedPoints:
        """Draw equally many training and hold-out rows, and at most 100,000 synthetic ones."""
        members, others = asked_rows(real, holdout, schema, rng, most)
        return cls(
            as_points(members, schema),
            as_points(others, schema),
            as_points(drawn(synthetic, min(len(synthetic), MOST_SYNTHETIC), rng.at("synthetic")), schema),
        )


def asked_rows(
    real: pd.DataFrame, holdout: pd.DataFrame, schema: Schema, rng: Rng, most: int = MOST_ASKED
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Equally many training and hold-out rows, of each client at most one."""
    check_apart(real, holdout, schema)
    members, others = one_each(real, schema, rng.at("members")), one_each(holdout, schema, rng.at("others"))
    count = min(len(members), len(others), most)
    if count < LEAST_ASKED:
        raise BadInput(
            f"{len(members)} training and {len(others)} hold-out rows of different clients: an attack is judged on "
            f"at least {LEAST_ASKED} of each"
        )
    return members.iloc[:count], others.iloc[:count]


def drawn(frame: pd.DataFrame, count: int, rng: Rng) -> pd.DataFrame:
    """`count` rows in random order."""
    return frame.iloc[rng.numpy().permutation(len(frame))[:count]]


def nearest_neighbor_attack(table: Attacked) -> list[Score]:
    """Guess that a row was trained on where a synthetic row is near.

    The detail has the median distances of both, and the share of training rows that are nearer than the median
    hold-out row (0.5 if the generator treats both alike).
    """
    name = "closest record"
    try:
        rows = AttackedPoints.of(table.real, table.synthetic, table.holdout, table.schema, Rng(table.seed))
    except BadInput as error:
        return attack_failures(name, str(error))
    near, far = (
        nearest_distances(points, rows.synthetic)[:, 0].double().numpy()
        for points in (rows.members, rows.others)
    )
    ties = (near < np.median(far)).mean() + (near == np.median(far)).mean() / 2
    detail = {
        "median_distance_members": float(np.median(near)),
        "median_distance_others": float(np.median(far)),
        "share_nearer_than_others": float(ties),
    }
    return attack_scores(name, -near, -far, table.ceiling, detail)


def closest_records(
    real: pd.DataFrame, synthetic: pd.DataFrame, holdout: pd.DataFrame, schema: Schema, *, seed: int = 0
) -> dict[str, Any]:
    """How near synthetic rows, and real ones that no generator saw, come to their closest training row: histograms.

    Both are equally many. Synthetic rows that lie nearer than strangers do are too much like somebody in particular.
    """
    rng = Rng(seed)
    check_apart(real, holdout, schema)
    strangers = one_each(holdout, schema, rng.at("others"))
    count = min(len(strangers), len(synthetic), MOST_ASKED)
    known = as_points(drawn(real, min(len(real), _MOST_KNOWN), rng.at("known")), schema)
    near = {
        "synthetic": nearest_distances(
            as_points(drawn(synthetic, count, rng.at("synthetic")), schema), known
        ),
        "holdout": nearest_distances(as_points(strangers.iloc[:count], schema), known),
    }
    highest = max(float(torch.quantile(each, 0.99)) for each in near.values()) or 1.0
    edges = np.linspace(0.0, highest, _DISTANCE_BINS + 1)
    shares = {
        name: (np.histogram(np.minimum(each.numpy(), highest), edges)[0] / count).tolist()
        for name, each in near.items()
    }
    copies = {f"{name}_copies": float((each < _EQUAL).double().mean()) for name, each in near.items()}
    medians = {f"{name}_median": float(each.median()) for name, each in near.items()}
    return {"edges": edges.tolist(), **shares, **copies, **medians, "rows": count}
