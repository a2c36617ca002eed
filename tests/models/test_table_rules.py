import itertools

import numpy as np
import torch

from fedsynth.data.schema import Schema
from fedsynth.data.table import valid_rows
from fedsynth.models.table_domain import TableDomain
from fedsynth.models.table_rules import possible_cells
from fedsynth.rng import Rng

SCHEMA = Schema.from_dict(
    {
        "columns": [
            {"name": "admission", "type": "date", "min": "2020-01-01", "max": "2021-12-31"},
            {"name": "discharge", "type": "date", "min": "2020-01-01", "max": "2022-12-31", "missing": True},
            {"name": "sex", "type": "categorical", "categories": ["M", "F"]},
            {"name": "pregnant", "type": "binary", "categories": ["yes", "no"]},
            {"name": "a", "type": "integer", "min": 0, "max": 9},
            {"name": "b", "type": "integer", "min": 0, "max": 400},
            {"name": "total", "type": "integer", "min": 0, "max": 12},
        ],
        "label": "pregnant",
        "constraints": ["discharge >= admission", "pregnant == 'yes' implies sex == 'F'", "total == a + b"],
    }
)


def test_no_row_that_keeps_the_rules_lies_in_an_impossible_cell():
    domain = TableDomain(SCHEMA)
    encoding, rng = domain.encoding, np.random.default_rng(0)
    codes = np.stack([rng.integers(0, size, 20_000) for size in domain.sizes], axis=1)
    x = domain.rows(torch.from_numpy(codes), Rng(1))
    numbers = encoding.numbers(x, torch.from_numpy(codes[:, -1]))
    kept = valid_rows(SCHEMA, numbers)
    assert kept.sum() > 100
    for one, other in itertools.combinations(range(len(domain.sizes)), 2):
        possible = possible_cells(domain, one, other)
        assert possible.shape == (domain.sizes[one], domain.sizes[other])
        assert possible[codes[kept, one], codes[kept, other]].all()


def test_cells_that_break_a_rule_are_impossible():
    domain = TableDomain(SCHEMA)
    assert possible_cells(domain, 2, domain.label).tolist() == [[False, True], [True, True]]
    stays = possible_cells(domain, 0, 1)  # the second counts days since the first
    assert stays[:, 0].all() and stays[0, :].all() and stays[:, -1].all()
    assert not stays[127, 127] and stays[127, 100]  # a long stay that began late would end after the last day
    sums = possible_cells(domain, 3, 4)
    assert sums[0, 1] and not sums[:, 10:128].any()
    assert possible_cells(domain, 0, 2).all()
