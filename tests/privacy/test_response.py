"""Randomized response on views: the ratio of any two rows' answers, and estimates without bias."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch

from fedsynth.errors import BadInput
from fedsynth.privacy.draw import ONE
from fedsynth.privacy.response import Views, _coin, best_view, honesty, ravel, unravel
from fedsynth.rng import Rng

SIZES = (2, 3, 2)


def told(row, epsilon, clients, seed=1, drawn=1):
    views = Views(SIZES, always=(2,), drawn=drawn, epsilon=epsilon)
    codes = torch.tensor([row], dtype=torch.float32).expand(clients, -1)
    return views, views.privatize(codes, {}, Rng(seed), np.arange(clients))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("cells", [2, 6, 512])
def test_the_truth_is_at_most_exp_epsilon_times_as_likely_as_any_other_cell(epsilon, cells):
    """Exact, by the table that is drawn from: the truth is kept, or one of all cells is drawn evenly."""
    random = _coin(cells, epsilon).cumulative[0]  # of 2^128
    truth, other = (ONE - random) + random / cells, random / cells
    assert 0.999999 * epsilon < math.log(truth / other) <= epsilon
    assert (ONE - random) / ONE == pytest.approx(honesty(epsilon, cells), rel=1e-6)


def test_the_chances_of_every_answer_of_every_row_are_as_stated():
    """Which columns are asked does not depend on the row; the cell follows randomized response."""
    epsilon, clients = 1.5, 20_000
    for row in ((0, 2, 1), (1, 0, 0)):
        _, messages = told(row, epsilon, clients)
        seen = Counter(map(tuple, messages.tolist()))
        asked = Counter(tuple(message[:2]) for message in messages.tolist())
        assert asked[(0, 2)] / clients == pytest.approx(0.5, abs=0.02)
        for view in ((0, 2), (1, 2)):
            cells = math.prod(SIZES[c] for c in view)
            keep = honesty(epsilon, cells)
            for codes in product(*(range(SIZES[c]) for c in view)):
                cell = int(ravel(np.array([codes]), np.array([[SIZES[c] for c in view]]))[0])
                true = all(code == row[c] for code, c in zip(codes, view, strict=True))
                expected = keep * true + (1 - keep) / cells
                assert seen[(*view, cell)] / asked[view] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("epsilon", [2.0, 4.0, math.inf])
def test_joint_distributions_are_estimated_without_bias(epsilon):
    draw = np.random.default_rng(0)
    clients = 40_000
    label = draw.integers(0, 2, clients)
    rows = np.stack([(draw.random(clients) < 0.2 + 0.6 * label), draw.integers(0, 3, clients), label], 1)
    views = Views(SIZES, always=(2,), drawn=2, epsilon=epsilon)
    wire = views.wire(3)
    messages = views.privatize(torch.from_numpy(rows).float(), {}, Rng(1), np.arange(clients))
    total = wire.add(wire.zero(), messages, torch.ones(clients))
    expected = np.array([[0.4, 0.1], [0.1, 0.4]])
    assert np.abs(wire.joint(total, 0, 2) - expected).max() < 0.03
    assert np.abs(wire.joint(total, 1, 1) - 1 / 3).max() < 0.03
    assert np.abs(wire.joint(total, 0, 1) - 1 / 6).max() < 0.03
    assert wire.joint(total, 0, 1).sum() == pytest.approx(1.0)


def test_adding_in_pieces_is_adding_at_once():
    views, messages = told((1, 2, 0), 2.0, 50)
    wire = views.wire(3)
    whole = wire.add(wire.zero(), messages, torch.ones(50))
    pieces = wire.zero()
    for part in messages.split(7):
        pieces = wire.add(pieces, part, torch.ones(len(part)))
    torch.testing.assert_close(pieces, whole)


def test_clients_answer_the_same_however_they_are_chunked():
    views = Views(SIZES, (2,), 1, 1.0)
    codes = torch.tensor([[0.0, 1.0, 1.0]]).expand(9, -1)
    ids = np.arange(9)
    whole = views.privatize(codes, {}, Rng(5), ids)
    pieces = [views.privatize(codes[i : i + 2], {}, Rng(5), ids[i : i + 2]) for i in range(0, 9, 2)]
    assert torch.equal(torch.cat(pieces), whole)


def test_a_client_without_rows_answers_evenly():
    _, messages = told((-1, -1, -1), 50.0, 6000, drawn=0)
    assert messages[:, -1].float().mean() == pytest.approx(0.5, abs=0.03)


def test_cells_are_numbered_and_named_back():
    sizes = np.array([[2, 3, 4]] * 24)
    codes = np.array(list(product(range(2), range(3), range(4))))
    cells = ravel(codes, sizes)
    assert sorted(cells) == list(range(24)) and np.array_equal(unravel(cells, sizes), codes)


def test_without_privacy_there_is_no_release_and_with_it_pure_epsilon():
    assert Views(SIZES, (2,), 1, math.inf).release is None
    release = Views(SIZES, (2,), 1, 2.0).release
    assert (release.event.epsilon, release.event.delta, release.trust) == (2.0, 0.0, "local")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"drawn": 3}, "columns=3"),
        ({"drawn": 0, "always": ()}, "columns=0"),
        ({"epsilon": 0.0}, "epsilon=0"),
        ({"sizes": (2**20,) * 4, "drawn": 2}, "2\\^40"),
    ],
)
def test_impossible_views_are_refused(settings, words):
    with pytest.raises(BadInput, match=words):
        Views(**{"sizes": SIZES, "always": (2,), "drawn": 1, "epsilon": 1.0, **settings})


def test_small_budgets_ask_for_few_columns_and_large_ones_for_more():
    asked = [best_view([2] * 124, [123], epsilon) for epsilon in (0.5, 2.0, 4.0, 8.0)]
    assert asked == sorted(asked) and asked[0] == 1 and asked[-1] == 7


def test_the_best_view_is_one_that_can_be_asked_for():
    sizes = (32, 2, 4, 33, 33, 3, 4, 33, 3, 33, 4, 5, 4, 2)
    Views(sizes, always=(13,), drawn=best_view(sizes, (13,), math.inf), epsilon=math.inf)
