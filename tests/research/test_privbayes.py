"""Federated PrivBayes: known structures are found, noise has its scale, a record moves little, errors speak."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

from fedsynth.data.clients import clients_from, encode_clients
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.statement import statement
from fedsynth.research.baselines.bayes_network import (
    AttributeParents,
    BayesNetwork,
    counts,
    information,
    pairwise_information,
    side_by_side,
)
from fedsynth.research.baselines.codes import Codes
from fedsynth.research.baselines.privbayes import PrivBayes, discrete_laplace, information_sensitivity
from fedsynth.rng import Rng

SCHEMA = Schema.from_dict(
    {
        "version": 1,
        "kind": "table",
        "label": "y",
        "columns": [
            {"name": "a", "type": "categorical", "categories": ["0", "1", "2"]},
            {"name": "b", "type": "categorical", "categories": ["0", "1", "2"]},
            {"name": "age", "type": "integer", "min": 0, "max": 99, "missing": True},
            {"name": "y", "type": "binary", "categories": ["no", "yes"]},
        ],
    }
)


def frame(rows: int, seed: int = 0) -> pd.DataFrame:
    """y -> a -> b, and y -> age."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, rows)
    a = np.where(draw.random(rows) < 0.9, 2 * y, 1)
    b = np.where(draw.random(rows) < 0.95, (a + 1) % 3, draw.integers(0, 3, rows))
    age = np.clip(draw.normal(20 + 50 * y, 8), 0, 99).round()
    return pd.DataFrame(
        {
            "a": a.astype(str),
            "b": b.astype(str),
            "age": np.where(draw.random(rows) < 0.1, np.nan, age),
            "y": np.where(y == 1, "yes", "no"),
        }
    )


def clients(rows: int = 3000, count: int = 5):
    return encode_clients(clients_from(frame(rows), clients=count, split="uniform", rng=Rng(0)), SCHEMA)


def fitted(epsilon, **settings):
    return PrivBayes(**settings).fit(clients(), SCHEMA, epsilon, Rng(1), Ledger(None))


def agreement(made: pd.DataFrame) -> float:
    return float(((made.a.astype(int) + 1) % 3 == made.b.astype(int)).mean())


@pytest.mark.parametrize("way", ["statistics", "voting", "model"])
@pytest.mark.parametrize("degree", [1, 2])
def test_without_noise_the_dependence_is_learned(way, degree):
    made = fitted(None, way=way, degree=degree).sample(4000, Rng(2))
    assert agreement(made) == pytest.approx(agreement(frame(3000)), abs=0.03)
    ages = made.groupby("y").age.mean()
    assert ages["no"] == pytest.approx(20.5, abs=4) and ages["yes"] == pytest.approx(70, abs=4)
    assert made.age.isna().mean() == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("way", ["statistics", "voting", "model"])
def test_a_generous_epsilon_keeps_the_dependence_and_a_tiny_one_loses_it(way):
    assert agreement(fitted(200.0, way=way).sample(4000, Rng(2))) > 0.85
    assert agreement(fitted(0.001, way=way).sample(4000, Rng(2))) < 0.75


def test_the_label_can_be_a_parent_of_every_column():
    network = fitted(None, with_label=True).networks[0]
    assert all(3 in pair.parents for pair in network.structure[1:])
    assert max(len(pair.parents) for pair in network.structure) == 2


def test_each_client_pays_for_its_records_once():
    ledger = Ledger(None)
    PrivBayes().fit(clients(), SCHEMA, 2.5, Rng(), ledger)
    lines = ledger.lines()
    assert sorted(line.holder for line in lines) == ["0", "1", "2", "3", "4"]
    told = statement(ledger, delta=1e-6, adjacency="replace-one", unit="record")
    assert told.epsilon == pytest.approx(2.5) and told.trust == "local" and told.private


def test_without_noise_nothing_is_claimed():
    ledger = Ledger(None)
    PrivBayes().fit(clients(), SCHEMA, None, Rng(), ledger)
    assert not statement(ledger, delta=1e-6, adjacency="replace-one", unit="record").private


def test_the_noise_is_discrete_laplace_of_its_scale():
    drawn = discrete_laplace(40_000, 10.0, Rng(3))
    assert np.array_equal(drawn, drawn.round())
    smooth = drawn + np.random.default_rng(0).random(40_000) - 0.5
    assert kstest(smooth, "laplace", args=(0, 10.0)).pvalue > 1e-3
    assert kstest(smooth, "laplace", args=(0, 9.0)).pvalue < 1e-3
    assert kstest(smooth, "laplace", args=(0, 11.0)).pvalue < 1e-3


@pytest.mark.parametrize("way", ["statistics", "voting"])
def test_tables_are_as_noisy_as_one_replaced_record_asks_for(way):
    """All that a client sends together moves by 2 in each table, so the scale is 2 x tables / epsilon."""
    empty = clients_from(frame(0).astype({"age": float}), clients=1, split="uniform", rng=Rng(0))
    held = encode_clients(empty, SCHEMA)
    settings = PrivBayes(way=way, bins=40)
    made = [settings.fit(held, SCHEMA, 4.0, Rng(seed), Ledger(None)).networks[0] for seed in range(30)]
    drawn = np.concatenate([table.ravel() for network in made for table in network.tables[1:]])
    scale = 2 * 6 / 4.0 if way == "statistics" else 2 * 4 / (0.7 * 4.0)
    spread = np.abs(drawn).mean()
    assert spread == pytest.approx(scale, rel=0.06)


def test_mutual_information_of_all_pairs_is_that_of_each():
    rows = frame(500)
    codes = Codes(SCHEMA).encode(*_encoded(rows))
    sizes = Codes(SCHEMA).sizes
    found = pairwise_information([side_by_side(codes, sizes)], sizes)
    for first, second in ((0, 1), (2, 3), (1, 2)):
        expected = information(counts(codes, sizes, (first, second)))
        assert found[first, second] == pytest.approx(expected, abs=1e-9)
    by_class = [side_by_side(codes[codes[:, 3] == label], sizes) for label in range(2)]
    joint = pairwise_information(by_class, sizes)
    assert joint[1, 2] == pytest.approx(information(counts(codes, sizes, (3, 2, 1))), abs=1e-9)


def test_the_sensitivity_of_mutual_information_holds_for_every_replaced_row():
    draw = np.random.default_rng(0)
    worst = 0.0
    for _ in range(200):
        rows = draw.integers(0, 3, (12, 2))
        other = rows.copy()
        other[draw.integers(12)] = draw.integers(0, 3, 2)
        change = information(counts(rows, (3, 3), (0, 1))) - information(counts(other, (3, 3), (0, 1)))
        worst = max(worst, abs(change))
    assert 0.3 * information_sensitivity(12) < worst <= information_sensitivity(12)


def test_codes_come_back_as_they_were():
    x, y = _encoded(frame(200))
    for codes in (Codes(SCHEMA), Codes(SCHEMA, bins=5, typical=0.2)):
        made = codes.encode(x, y)
        again = codes.encode(*codes.decode(made, Rng(0)))
        assert np.array_equal(made, again) and (made.max(0) < codes.sizes).all()


def test_rows_follow_the_tables_of_the_network():
    tables = (np.array([30.0, 70.0]), np.array([[1.0, 3.0], [-5.0, 2.0]]))
    network = BayesNetwork((2, 2), (AttributeParents(0, ()), AttributeParents(1, (0,))), tables)
    made = network.sample(20_000, Rng(0))
    assert made[:, 0].mean() == pytest.approx(0.7, abs=0.02)
    assert made[made[:, 0] == 0, 1].mean() == pytest.approx(0.75, abs=0.02)
    assert made[made[:, 0] == 1, 1].min() == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"degree": 4}, "degree=4.*4 columns has degree 1 to 3"),
        ({"degree": 0}, "degree=0"),
        ({"way": "vote"}, "way='vote': unknown.*voting"),
        ({"structure_share": 1.0}, "structure_share=1.0"),
        ({"bins": 1}, "bins=1"),
        ({"with_label": True, "degree": 2}, "set degree=1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(BadInput, match=message):
        PrivBayes(**settings).fit(clients(), SCHEMA, 1.0, Rng(1), Ledger(None))


def test_an_epsilon_that_is_no_budget_is_refused():
    for epsilon in (0.0, -1.0, math.inf):
        with pytest.raises(BadInput, match="epsilon="):
            fitted(epsilon)


def _encoded(rows: pd.DataFrame):
    held = encode_clients(clients_from(rows, clients=1, split="uniform", rng=Rng(0)), SCHEMA)
    return held.x, held.y
