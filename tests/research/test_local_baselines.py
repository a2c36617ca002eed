"""CALM, LoPub and LoCop: what they learn without noise, what they cost, what they refuse."""

import math

import numpy as np
import pandas as pd
import pytest

from fedsynth.data.clients import clients_from, encode_clients
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.statement import statement
from fedsynth.research.baselines.marginal_network import MarginalNetwork, fitted, on_simplex
from fedsynth.research.baselines.rappor import Rappor
from fedsynth.research.baselines.registry import baseline_named
from fedsynth.rng import Rng

NAMES = ("calm", "lopub", "locop")
YES_NO = ["no", "yes"]


@pytest.fixture(scope="module")
def known():
    """Clients of one row each; b copies a nine times in ten, c follows the label, d has three even values."""
    draw = np.random.default_rng(0)
    rows = 6000
    label = draw.random(rows) < 0.3
    a = draw.random(rows) < 0.4
    b = np.where(draw.random(rows) < 0.9, a, ~a)
    c = draw.random(rows) < np.where(label, 0.8, 0.1)
    values = {"a": a, "b": b, "c": c, "y": label}
    frame = pd.DataFrame({name: np.array(YES_NO)[value.astype(int)] for name, value in values.items()})
    frame["d"] = np.array(["x", "y", "z"])[draw.integers(0, 3, rows)]
    columns = [{"name": n, "type": "categorical", "categories": YES_NO} for n in ("a", "b", "c")]
    columns.append({"name": "d", "type": "categorical", "categories": ["x", "y", "z"]})
    columns.append({"name": "y", "type": "binary", "categories": YES_NO})
    schema = Schema.from_dict({"version": 1, "kind": "table", "label": "y", "columns": columns})
    return encode_clients(clients_from(frame, clients=rows, rng=Rng(1)), schema), schema


def learn(name, known, epsilon, **settings):
    clients, schema = known
    ledger = Ledger(None)
    system = baseline_named(name, settings)
    return system.fit(clients, schema, epsilon, Rng(1), ledger).sample(4000, Rng(2)), ledger, system


def together(rows, first, second):
    return float(((rows[first] == "yes") == (rows[second] == "yes")).mean())


@pytest.mark.parametrize("name", NAMES)
def test_without_noise_the_strong_dependence_is_learned(name, known):
    rows, _, _ = learn(name, known, None)
    assert together(rows, "a", "b") > 0.75
    assert (rows["a"] == "yes").mean() == pytest.approx(0.4, abs=0.05)
    assert (rows["y"] == "yes").mean() == pytest.approx(0.3, abs=0.05)


def test_calm_learns_what_follows_the_label_and_what_follows_a_column_under_privacy(known):
    rows, _, _ = learn("calm", known, 4.0)
    ill = rows["y"] == "yes"
    assert (rows["c"][ill] == "yes").mean() > 0.65 and (rows["c"][~ill] == "yes").mean() < 0.25
    assert together(rows, "a", "b") > 0.8 and abs(together(rows, "a", "c") - 0.5) < 0.15


def test_bits_divided_over_all_columns_tell_less_than_one_view_a_client(known):
    """Why CALM is the fair baseline: the same epsilon, divided, leaves RAPPOR little to tell."""

    def missed(name):
        return abs(together(learn(name, known, 1.0)[0], "a", "b") - 0.9)

    assert missed("calm") < missed("lopub")


@pytest.mark.parametrize("name", NAMES)
def test_every_client_pays_pure_epsilon_once_and_nobody_is_trusted(name, known):
    _, ledger, system = learn(name, known, 2.0)
    lines = ledger.lines()
    assert len(lines) == 6000 and {(line.trust, line.unit) for line in lines} == {("local", "client")}
    told = statement(ledger, delta=1e-9, adjacency=system.adjacency, unit=system.unit, seeded=False)
    assert told.trust == "local" and told.epsilon == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_rows(name, known):
    first, second = (learn(name, known, 2.0)[0] for _ in range(2))
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.parametrize(
    ("name", "settings", "epsilon", "words"),
    [
        ("calm", {}, 0.0, "epsilon=0"),
        ("lopub", {}, math.inf, "epsilon=inf"),
        ("lopub", {"hashes": 0}, 1.0, "hashes=0"),
        ("locop", {"hash": 1}, 1.0, "did you mean 'hashes'"),
    ],
)
def test_bad_settings_are_refused(name, settings, epsilon, words, known):
    with pytest.raises(BadInput, match=words):
        learn(name, known, epsilon, **settings)


def test_images_are_refused(image_schema, ten):
    with pytest.raises(BadInput, match="calm makes tables"):
        baseline_named("calm", {}).fit(ten["image"], image_schema, 1.0, Rng(1), Ledger(None))


@pytest.mark.parametrize("epsilon", [0.5, 4.0, 100.0])
def test_bits_of_any_two_rows_differ_in_chance_by_at_most_exp_epsilon(epsilon):
    """Exact: every bit is 1 with chance 1 - f/2 or f/2; two values differ in at most 2h bits of each column."""
    rappor = Rappor((2, 3, 5), epsilon, hashes=2)
    ratio = math.log((1 - rappor.flip / 2) / (rappor.flip / 2))
    worst = sum(
        max(np.abs(a - b).sum() for a in filters for b in filters) * ratio for filters in rappor.patterns
    )
    assert worst <= epsilon * (1 + 1e-9)
    assert 2 * 2 * 3 * ratio == pytest.approx(epsilon)


def test_bits_are_replaced_as_often_as_stated():
    rappor = Rappor((2,), 1.0, hashes=1)
    told = rappor.report(np.zeros((50_000, 1), dtype=np.int64), Rng(1))
    pattern = rappor.patterns[0][0]
    assert told[:, pattern == 1].mean() == pytest.approx(1 - rappor.flip / 2, abs=0.01)
    assert told[:, pattern == 0].mean() == pytest.approx(rappor.flip / 2, abs=0.01)


def test_the_nearest_distribution_is_found():
    assert on_simplex(np.array([0.2, 0.8])) == pytest.approx([0.2, 0.8])
    assert on_simplex(np.array([[1.5, -1.0], [0.0, 0.0]])) == pytest.approx(
        np.array([[1.0, 0.0], [0.0, 0.0]])
    )


def test_fitting_meets_all_margins():
    truth = np.random.default_rng(0).random((2, 3, 2))
    truth /= truth.sum()
    margins = [(axis, truth.sum(axis)) for axis in range(3)]
    table = fitted(np.full((2, 3, 2), 1 / 12), margins)
    for axis, margin in margins:
        assert table.sum(axis) == pytest.approx(margin, abs=1e-4)


def test_noise_alone_makes_no_edge():
    draw = np.random.default_rng(0)
    worth = np.full((4, 4), 400.0)
    even = {2: np.full((2, 2), 0.25), 1: np.full(2, 0.5)}
    noisy = {}

    def joint(first, second):
        key = (min(first, second), max(first, second))
        if key not in noisy:
            flat = even[1] if first == second else even[2]
            noisy[key] = flat + draw.normal(0, 0.02, flat.shape) * (first != second)
        return noisy[key]

    network = MarginalNetwork((2, 2, 2, 2), joint, worth, np.ones((4, 4)), label=True).fit()
    assert all(len(pair.parents) <= 1 for pair in network.structure)
