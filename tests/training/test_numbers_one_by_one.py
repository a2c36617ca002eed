"""Answers to questions for numbers one by one are no longer than the clip, whatever the rows and the question."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsynth.data.clients import Padded
from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.models.table_question import Question
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng

SCHEMA = Schema(
    columns=(
        Column("count", "integer", min=-50, max=5000, missing=True),
        Column("dose", "continuous", min=0.0, max=100.0, decimals=2, missing=True),
        Column("gain", "continuous", min=0.0, max=1000.0, decimals=1, scale="log"),
        Column("day", "date", min="2000-01-01", max="2020-01-01"),
        Column("ill", "binary", categories=("no", "yes")),
    ),
    label="ill",
)
OFFERS = [("client", "central"), ("client", "local"), ("record", "central"), ("record", "distributed")]


def questions(form, first: Question, draw: np.random.Generator) -> list[Question]:
    """The first question, and what a server that cheats may ask: for any numbers, for one number many times."""
    some = tuple(
        tuple(draw.integers(-1, max(1, grid - 1), most).tolist())
        for grid, most in zip(form.grids, form.spikes, strict=False)
    )
    asked = [
        first,
        replace(first, spikes=some, row_weight=3.0),
        replace(first, spikes=tuple((5,) * len(own) for own in some)),
    ]
    return [form.read(form.write(one)) for one in asked]


def encoded(domain, clients: int, rows: int, draw: np.random.Generator) -> Padded:
    """Rows of any positions in their columns, of one and the same, beyond all bounds, missing, and no numbers."""
    codes = torch.from_numpy(np.stack([draw.integers(0, size, clients * rows) for size in domain.sizes], 1))
    x = domain.rows(codes, Rng(0)).reshape(clients, rows, -1)
    places = [axis.block.place for axis in domain.axes if axis.grid]
    x[1][:, places] = 0.3
    x[2][:, places] *= 40.0
    x[3][:, places] = float("nan")
    x[4][:, places] = float("-inf")
    mask = torch.ones(clients, rows, dtype=torch.bool)
    mask[5] = False
    return Padded(x, codes[:, -1].reshape(clients, rows), mask)


@pytest.mark.parametrize(("unit", "trust"), OFFERS)
def test_no_answer_is_longer_than_the_clip(unit, trust):
    recipe, draw = recipe_named("marginals"), np.random.default_rng(1)
    many = 10**6 if unit == "client" else 40  # under more noise clients are not asked for numbers one by one
    task = recipe.task(SCHEMA, many, unit=unit, trust=trust)
    algorithm = recipe.build(task, recipe.values({"noise_multiplier": 1.0, "rounds": 4}))
    sums = algorithm.record_sums
    first = sums.form.read(algorithm.init(Rng(0)).parts["question"])
    assert first.of_grids and sum(map(bool, sums.form.grids)) == 4
    longest = []
    for rows in (1, 2, 30):
        data = encoded(sums.domain, 8, rows, draw)
        for question in questions(sums.form, first, draw):
            if unit == "client":
                cells, shares = sums._shares(question, data)
                whole = torch.zeros(8, sums.form.most_cells, dtype=torch.float64)
                lengths = whole.scatter_add_(1, cells, shares.double()).norm(dim=1)
                clip = 1 + 2**-20  # shares are float32, and are clipped once more before they leave
            else:
                alone = Padded(*(one.flatten(0, 1)[:, None] for one in (data.x, data.y, data.mask)))
                lengths, clip = sums._counts(question, alone).double().norm(dim=1), sums.steps
            longest.append(float(lengths.max()) / clip)
    assert 0.99 < max(longest) <= 1.0
