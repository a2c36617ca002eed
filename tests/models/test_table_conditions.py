"""Rows drawn given conditions: they meet them, and are otherwise as the model has them."""

import numpy as np
import torch

from fedsynth.data.conditions import read_conditions
from fedsynth.data.schema import Schema
from fedsynth.models.distribution import Distribution
from fedsynth.models.graphical import JunctionTree
from fedsynth.models.marginals import MarginalModel
from fedsynth.models.table_conditions import chances
from fedsynth.models.table_domain import TableDomain
from fedsynth.models.table_question import QuestionForm
from fedsynth.rng import Rng

SCHEMA = Schema.from_dict(
    {
        "columns": [
            {"name": "cost", "type": "continuous", "min": 0.5, "max": 128.5, "missing": True},
            {"name": "sex", "type": "categorical", "categories": ["M", "F"]},
            {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
        ],
        "label": "ill",
    }
)
DOMAIN = TableDomain(SCHEMA)
MODEL = MarginalModel(DOMAIN, QuestionForm(DOMAIN.sizes, 3, 1000))


def fitted() -> Distribution:
    """Cost and sex go together, sex and illness go together."""
    sizes = DOMAIN.sizes
    tree = JunctionTree.over([(0, 1), (1, 2)], sizes)
    cost = np.outer(np.linspace(1, 3, sizes[0]), [1.0, 0.0]) + np.outer(
        np.linspace(3, 1, sizes[0]), [0.0, 1.0]
    )
    ill = np.array([[0.4, 0.1], [0.1, 0.4]])
    tables = {(0, 1): cost / cost.sum(axis=0) / 2, (1, 2): ill}
    shares = [np.full(size, 1 / size) for size in sizes]
    ordered = [tables[clique] for clique in tree.cliques]
    return Distribution(tree, ordered, [np.arange(size) for size in sizes], shares, (-1, -1, -1))


def test_a_bound_that_cuts_a_cell_has_the_chance_of_its_part():
    likely = chances(DOMAIN, read_conditions(["cost>=100.25", "cost<120.5", "ill=yes"], SCHEMA))
    assert likely[2].tolist() == [0, 1]
    assert (
        abs(likely[0].sum() - 20.25) < 0.01 and likely[0][-1] == 0
    )  # cells are one wide; missing meets nothing


def test_rows_meet_conditions_on_any_columns_and_have_the_shares_given_them():
    conditions = read_conditions(["cost>=100.25", "sex=F"], SCHEMA)
    params = {"fitted": {"values": fitted().pack()}}
    x, y = MODEL.sample_where(params, 4000, conditions, Rng(0))
    numbers = DOMAIN.encoding.numbers(x, y)
    assert (numbers["cost"] >= 100.25).all() and (numbers["sex"] == 1).all()
    assert abs(y.double().mean() - 0.8) < 0.03  # as women are
    x, y = MODEL.sample_where(params, 4000, read_conditions(["ill=no"], SCHEMA), Rng(0))
    assert int(y.max()) == 0
    assert abs(float(np.mean(DOMAIN.encoding.numbers(x, y)["sex"] == 0)) - 0.8) < 0.03
    assert torch.isfinite(x).all()
