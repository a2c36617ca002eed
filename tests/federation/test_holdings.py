"""What one unit can show or move in the sums that a schema is learned from."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from fedsynth.data.clients import Clients, Padded
from fedsynth.federation.loop import ask
from fedsynth.federation.query import Query
from fedsynth.federation.state import ServerState
from fedsynth.federation.statistics import CellShares, Holdings
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.rng import Rng
from fedsynth.simulator.inprocess import InProcess

DELTA, MOST = 1e-3, 8


def one_unit(*columns):
    """A unit whose rows hold these codes."""
    codes = torch.tensor(columns, dtype=torch.float32).T[None]
    return Padded(codes, torch.zeros(codes.shape[:2], dtype=torch.int64), torch.ones(codes.shape[:2]).bool())


def chance_of_showing(holdings, unit, sigma):
    """The exact chance that noise lifts any value that only this unit holds over the threshold."""
    weights = holdings(unit)[0].numpy().astype(np.float64)
    hidden = norm.cdf((holdings.threshold(sigma, DELTA) - weights[weights > 0]) / sigma)
    return 1 - np.prod(hidden)


@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0, 10.0])
@pytest.mark.parametrize("values", [1, 3, MOST, 10 * MOST])
@pytest.mark.parametrize("columns", [1, 2, 12])
def test_a_lone_value_shows_with_at_most_delta_over_all_columns_and_values(columns, values, sigma):
    holdings = Holdings((100,) * columns, MOST)
    unit = one_unit(*[list(range(values))] * columns)
    assert chance_of_showing(holdings, unit, sigma) <= DELTA * (1 + 1e-6)


def test_the_bound_on_a_lone_value_is_tight():
    """Fewer columns or values than the threshold counts on would be found by the test above."""
    holdings = Holdings((100,) * 12, MOST)
    unit = one_unit(*[list(range(MOST))] * 12)
    assert chance_of_showing(holdings, unit, 10.0) > 0.99 * DELTA
    shared_out_over_one = Holdings((100,), MOST).threshold(10.0, DELTA)
    assert shared_out_over_one < holdings.threshold(10.0, DELTA)


def test_lone_values_are_drawn_as_rarely_as_was_calculated():
    draws, sigma, columns = 20_000, 2.0, 3
    holdings = Holdings((MOST,) * columns, MOST)
    weights = holdings(one_unit(*[list(range(MOST))] * columns))
    mechanism = CentralGaussian(Clip(1.0), sigma)
    sums = mechanism.privatize(weights, {}, Rng(), np.arange(1)).repeat(draws, 1)
    noisy, _ = mechanism.estimate(sums.flatten(), 1.0, {}, Rng())
    delta = 0.05
    shown = (noisy.reshape(draws, -1) > holdings.threshold(sigma, delta)).any(1).double().mean()
    assert 0.04 < float(shown) < delta + 4 * (delta / draws) ** 0.5


def test_a_unit_names_its_most_frequent_values_and_no_more():
    rows = [5, 5, 5, 2, 2, 7, 1, 0, 9]
    named = Holdings((10,), 3)(one_unit(rows))[0]
    assert named.nonzero().flatten().tolist() == [0, 2, 5]  # of those held once the first by code
    assert float(named.norm()) == pytest.approx(1)


@pytest.mark.parametrize("rows", [1, 5, 400])
def test_no_unit_moves_a_sum_by_more_than_one(rows):
    draw = np.random.default_rng(rows)
    unit = one_unit(*draw.integers(0, 7, (4, rows)).tolist())
    for asked in (Holdings((7,) * 4, 3), CellShares(4, 7)):
        assert float(asked(unit).norm()) <= 1 + 1e-6


def test_shares_are_one_vote_a_column_however_many_rows():
    few, many = one_unit([0, 1], [2, 2]), one_unit([0, 1] * 50, [2, 2] * 50)
    shares = CellShares(2, 3)(few)
    torch.testing.assert_close(shares, CellShares(2, 3)(many))
    torch.testing.assert_close(shares[0], torch.tensor([0.5, 0.5, 0, 0, 0, 1.0]) / 2**0.5)


def test_records_asked_a_few_at_a_time_give_the_same_sum():
    draw = np.random.default_rng(0)
    codes = np.stack([draw.integers(-1, 9000, 1000), draw.integers(-1, 3, 1000)], axis=1)
    clients = Clients(
        torch.from_numpy(codes.astype(np.float32)),
        torch.zeros(1000, dtype=torch.int64),
        np.array([0, 400, 1000]),
    )
    holdings = Holdings((9000, 3), 1)
    query = Query("held", holdings, 9003, CentralGaussian(Clip(1.0), 0.0), 2, "record")
    got = ask(query, InProcess(clients, Rng(1)), ServerState(0, {}), Rng(1), lambda *_: None)
    expected = np.zeros(9003)
    for column, start in ((0, 0), (1, 9000)):
        held = codes[codes[:, column] >= 0, column]
        np.add.at(expected, start + held, 2**-0.5)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-2)
