"""Counts and risks that Anonymeter 1.1.0 gave for the very same tables are written down here as they came out."""

import numpy as np
import pandas as pd
import pytest

from fedsynth.assess.attacks.article29 import NAMES, Risk, article29_risks, inference, linkability, score_name
from fedsynth.assess.attacks.attribute import read_codes
from fedsynth.data.schema import Column, Schema
from fedsynth.rng import Rng

NUMBERS = [Column(name, "continuous", min=0, max=100) for name in "abc"]
SCHEMA = Schema(columns=(*NUMBERS, Column("d", "categorical", categories=("x", "y", "z"))))


def table(draw, rows):
    numbers = draw.uniform(1, 99, (rows, 3)).round(3)
    numbers[:, 1] = (0.8 * numbers[:, 0] + 0.2 * draw.uniform(1, 99, rows)).round(3)
    letters = np.array(list("xyz"))[draw.integers(0, 3, rows)]
    return pd.DataFrame({"a": numbers[:, 0], "b": numbers[:, 1], "c": numbers[:, 2], "d": letters})


def tables(rows=200, seed=7, copied=80):
    """Training rows, control rows, and synthetic ones of which some are copies; the bounds occur in each."""
    draw = np.random.default_rng(seed)
    real, control, synthetic = (table(draw, rows) for _ in range(3))
    synthetic.iloc[:copied] = real.iloc[:copied].to_numpy()
    synthetic = synthetic.astype(dict.fromkeys("abc", float))
    for frame in (real, control, synthetic):
        frame.loc[frame.index[-1], ["a", "b", "c"]] = 0.0
        frame.loc[frame.index[-2], ["a", "b", "c"]] = 100.0
    return real, control, synthetic


@pytest.fixture(scope="module")
def codes():
    return [read_codes(frame, SCHEMA) for frame in tables()]


@pytest.mark.parametrize(
    ("counts", "interval"),
    [
        ((500, 60, 20, 5), (0.083001202, 0.048801529, 0.117200876)),
        ((500, 0, 0, 0), (0.0, 0.0, 0.005411854)),
        ((200, 199, 150, 3), (0.943746372, 0.889342098, 0.998150646)),
    ],
)
def test_the_risk_and_its_interval_are_those_of_anonymeter(counts, interval):
    assert Risk("any", *counts).interval == pytest.approx(interval, abs=1e-8)


def test_as_many_rows_are_linked_as_by_anonymeter(codes):
    real, control, synthetic = codes
    found = linkability(SCHEMA.columns, synthetic, (real, control))
    assert (found.members, found.control) == (81, 5)


def test_as_many_values_are_inferred_as_by_anonymeter(codes):
    real, control, synthetic = codes
    found = inference(SCHEMA.columns, synthetic, (real, control), Rng(0))
    counts = {name: (risk.members, risk.control) for name, risk in found.items()}
    assert counts == {"a": (103, 44), "b": (104, 47), "c": (86, 10), "d": (119, 71)}


def test_copies_are_a_risk_and_strangers_are_none():
    real, control, synthetic = tables()
    copies = article29_risks(real, synthetic, control, SCHEMA)
    assert [score.name for score in copies] == [score_name(name) for name in NAMES]
    assert all(score.detail["at_least"] > 0.05 for score in copies)
    strangers = article29_risks(real, tables(seed=8, copied=0)[2], control, SCHEMA)
    assert all(score.detail["at_least"] == 0 for score in strangers)


def test_missing_values_and_too_few_rows_do_no_harm():
    schema = Schema(
        columns=(*(Column(n, "continuous", min=0, max=100, missing=True) for n in "abc"), SCHEMA.columns[3])
    )
    real, control, synthetic = tables()
    for frame in (real, control, synthetic):
        frame.loc[frame.index[::3], "a"] = np.nan
    assert all(score.failed is None for score in article29_risks(real, synthetic, control, schema))
    few = article29_risks(real.head(5), synthetic, control, schema)
    assert all("at least 20" in score.failed for score in few)
