"""The values that a table's columns are counted in: read off rows, written back, and the same again."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.models.table_domain import FINEST, TableDomain
from fedsynth.rng import Rng

COLUMNS = (
    Column("age", "integer", min=17, max=90),
    Column("visits", "integer", min=0, max=50, scale="log", missing=True),
    Column("gain", "integer", min=0, max=100_000, scale="log"),
    Column("bmi", "continuous", min=10.0, max=60.0, missing=True),
    Column("change", "continuous", min=-5.0, max=5.0, missing=True),
    Column("sex", "categorical", categories=("F", "M"), missing=True),
    Column("grade", "ordinal", categories=("low", "middle", "high"), missing=True),
    Column("ill", "binary", categories=("no", "yes")),
)
LABELED = TableDomain(Schema(columns=COLUMNS, label="ill"))
PLAIN = TableDomain(Schema(columns=COLUMNS[:-1]))
SCHOOL = Column("school", "ordinal", categories=tuple(f"year {year}" for year in range(16)))
COARSE = TableDomain(Schema(columns=(SCHOOL, *COLUMNS), label="ill"), finest=8)  # categories share cells


def test_every_column_has_its_values_then_zero_then_missing():
    assert LABELED.sizes == (74, 51 + 1, FINEST + 1, FINEST + 1, FINEST + 2, 2 + 1, 3 + 1, 2)
    assert LABELED.ordered == (74, 51, FINEST, FINEST, FINEST, 0, 3, 0)
    assert (LABELED.label, PLAIN.label) == (7, None) and PLAIN.sizes == LABELED.sizes[:-1]


@pytest.mark.parametrize("domain", [LABELED, PLAIN, COARSE], ids=["label", "no label", "coarse"])
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_values_written_into_rows_are_read_off_them_again(domain, seed):
    draw = np.random.default_rng(seed)
    codes = torch.from_numpy(np.stack([draw.integers(0, size, 50) for size in domain.sizes], axis=1))
    labels = codes[:, -1] if domain.label is not None else torch.zeros(50, dtype=torch.int64)
    rows = domain.rows(codes, Rng(seed))
    again = domain.codes(rows, labels)
    zeros = torch.zeros_like(codes, dtype=torch.bool)  # a number anywhere in a cell may happen to be 0
    for place, axis in enumerate(domain.axes):
        zeros[:, place] = (again[:, place] == axis.cells) & (axis.zero is not None)
    assert bool(((again == codes) | zeros).all())


@pytest.mark.parametrize("domain", [LABELED, PLAIN, COARSE], ids=["label", "no label", "coarse"])
def test_numbers_are_those_that_encoded_rows_are_decoded_to(domain):
    draw = np.random.default_rng(0)
    codes = np.stack([draw.integers(0, size, 5000) for size in domain.sizes], axis=1)
    rows = domain.rows(torch.from_numpy(codes), Rng(1))
    decoded = domain.encoding.numbers(rows, torch.from_numpy(codes[:, -1]))
    numbers = domain.numbers(codes, Rng(1))
    assert list(numbers) == list(decoded)
    for name in decoded:
        np.testing.assert_array_equal(numbers[name], decoded[name])


def test_rows_that_went_through_their_values_are_the_same_table():
    """Whatever has few values comes back as it was, on a logarithmic scale too, and nothing else becomes missing."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": np.arange(17, 91),
            "visits": np.where(draw.random(74) < 0.2, np.nan, draw.integers(0, 51, 74)),
            "gain": np.where(draw.random(74) < 0.5, 0, draw.integers(1, 100_000, 74)),
            "bmi": np.where(draw.random(74) < 0.2, np.nan, draw.uniform(10, 60, 74)),
            "change": np.where(draw.random(74) < 0.3, 0.0, draw.uniform(-5, 5, 74)),
            "sex": pd.Series(draw.choice(["F", "M"], 74)).mask(draw.random(74) < 0.2),
            "grade": draw.choice(["low", "middle", "high"], 74),
            "ill": draw.choice(["no", "yes"], 74),
        }
    )
    encoding = Table(LABELED.schema)
    x, y = encoding.encode(frame)
    back = encoding.decode(LABELED.rows(LABELED.codes(x, y), Rng(0)), y)
    first = encoding.decode(x, y)
    for name in ("age", "visits", "sex", "grade", "ill"):
        assert back[name].equals(first[name]), name
    assert back["bmi"].isna().equals(first["bmi"].isna())
    assert ((back["change"] == 0) == (first["change"] == 0)).all()
    assert ((back["gain"] == 0) >= (first["gain"] == 0)).all()
    assert (back["bmi"] - first["bmi"]).abs().max() <= 50 / FINEST


def test_zero_and_missing_are_apart_from_the_cells_around_them():
    rows = pd.DataFrame({"age": 20, "change": [0.0, 0.001, np.nan], "gain": [0, 1, 2]}).assign(
        visits=3, bmi=20.0, sex="F", grade="low"
    )
    x, y = Table(PLAIN.schema).encode(rows)
    change = PLAIN.codes(x, y)[:, 4].tolist()
    assert change == [FINEST, FINEST // 2, FINEST + 1]
    assert PLAIN.codes(x, y)[0, 2] == FINEST != PLAIN.codes(x, y)[1, 2]
