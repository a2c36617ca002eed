"""Randomized response on views: the ratio of any two rows' answers, and estimates without bias."""

import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
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


@pytest.mark.parametrize(
    ("messages", "fitting"),
    [
        (torch.tensor([[0, 2, 3], [1, 2, 5]]), True),
        (torch.tensor([[0, 2, 4], [1, 2, 5]]), False),
        (torch.tensor([[0, 2, -1], [1, 2, 5]]), False),
        (torch.tensor([[0, 3, 0], [1, 2, 5]]), False),
        (torch.tensor([[-1, 2, 0], [1, 2, 5]]), False),
        (torch.tensor([[0, 2, 3]]), False),
        (torch.tensor([[0, 2], [1, 2]]), False),
        (torch.tensor([[0.0, 2.0, 3.0], [1.0, 2.0, 5.0]]), False),
    ],
)
def test_a_message_is_a_view_and_a_cell_of_it(messages, fitting):
    assert Views(SIZES, (2,), 1, 1.0).wire(3).fits(messages, 2) is fitting


def test_the_ledger_reads_what_was_released():
    release = Views(SIZES, (2,), 1, 2.0).release
    assert (release.what, release.unit) == ("randomized answer for a few columns", "client")


def test_a_view_needs_a_code_for_each_column():
    wire = Views(SIZES, (2,), 1, 2.0).wire(3)
    assert (wire.sizes, wire.columns, wire.epsilon) == (SIZES, 2, 2.0)
    assert wire.zero().dtype == torch.float64
    assert wire.dim == len(wire.zero()) == 7**2 + 2 * 3**2 and wire.starts.tolist() == [0, 2, 5, 7]
    with pytest.raises(BadInput, match="one code for each of 3 columns"):
        Views(SIZES, (2,), 1, 2.0).wire(4)


def test_a_client_that_lacks_one_code_answers_at_random():
    _, messages = told((0, -1, 1), 50.0, 4000, drawn=2)
    counts = Counter(messages[:, -1].tolist())
    assert len(counts) == 12 and max(counts.values()) < 450


def test_every_view_is_as_likely_as_any_other():
    views = Views((2,) * 5, always=(4,), drawn=2, epsilon=1.0)
    messages = views.privatize(torch.zeros(12_000, 5), {}, Rng(3), np.arange(12_000))
    counts = Counter(tuple(message[:3]) for message in messages.tolist())
    assert set(counts) == {(a, b, 4) for a in range(4) for b in range(a + 1, 4)}
    assert all(abs(count - 2000) < 250 for count in counts.values())


def test_honesty_is_what_randomized_response_adds_to_chance():
    assert honesty(math.log(3), 2) == pytest.approx(0.5) and honesty(math.inf, 8) == 1.0
    assert honesty(2.0, 10) == pytest.approx((math.exp(2) - 1) / (math.exp(2) - 1 + 10))


def test_a_weight_scales_an_answer():
    views, messages = told((1, 2, 0), 2.0, 20)
    wire = views.wire(3)
    doubled = wire.add(wire.zero(), messages, torch.full((20,), 2.0))
    torch.testing.assert_close(doubled, 2 * wire.add(wire.zero(), messages, torch.ones(20)))


def test_a_view_may_have_all_columns_or_those_that_are_always_asked():
    assert Views(SIZES, (2,), 2, 1.0).wire(3).columns == 3 and Views(SIZES, (2,), 0, 1.0).wire(3).columns == 1
    with pytest.raises(BadInput, match="columns=-1"):
        Views(SIZES, (2,), -1, 1.0)
    with pytest.raises(BadInput, match="epsilon=-1"):
        Views(SIZES, (2,), 1, -1.0)


def test_a_column_that_nobody_was_asked_about_is_unknown():
    views, _ = told((1, 2, 0), 2.0, 1)
    wire = views.wire(3)
    assert wire.joint(wire.zero(), 0, 1).tolist() == [[1 / 6] * 3] * 2 and wire.zero().dtype == torch.float64
    assert (wire.answered(wire.zero()) == 0).all() and (wire.honest(wire.zero()) == 1).all()


def test_how_much_the_answers_are_worth_is_told():
    views, messages = told((1, 2, 0), 2.0, 3000, drawn=2)
    wire = views.wire(3)
    total = wire.add(wire.zero(), messages, torch.ones(3000))
    share = honesty(2.0, 12)
    assert wire.honest(total)[0, 1] == pytest.approx(share) and wire.answered(total)[0, 1] == pytest.approx(
        3000 * share**2
    )


def test_all_pairs_at_once_are_the_joint_distributions():
    draw = np.random.default_rng(0)
    rows = torch.from_numpy(np.stack([draw.integers(0, size, 20_000) for size in SIZES], 1)).float()
    views = Views(SIZES, always=(2,), drawn=1, epsilon=4.0)
    wire = views.wire(3)
    total = wire.add(wire.zero(), views.privatize(rows, {}, Rng(1), np.arange(20_000)), torch.ones(20_000))
    own, joint, precision = wire.pairs(total)
    for first, second in ((0, 2), (1, 2)):
        rows_of, columns_of = (slice(*wire.starts[c : c + 2]) for c in (first, second))
        assert np.allclose(joint[rows_of, columns_of], wire.joint(total, first, second), atol=1e-5)
        assert (precision[rows_of, columns_of] > 0).all()
    assert np.allclose(own[:2].sum(), 1.0, atol=1e-5) and np.allclose(
        own[2:5], wire.joint(total, 1, 1), atol=0.02
    )
    assert (precision[:2, 2:5] == 0).all() and (
        precision[:2, :2] == 0
    ).all()  # never asked together, or one column


def test_the_coin_is_exact_far_beyond_the_share_of_epsilon_that_is_kept_back():
    with localcontext(prec=90):
        random = Fraction(6 / (5 + (Decimal(2) * (1 - Decimal(2) ** -40)).exp()))
    assert abs(Fraction(_coin(6, 2.0).cumulative[0], ONE) - random) < Fraction(1, 2**120)


def test_a_few_answers_are_worth_what_they_are():
    for clients in (1, 2):
        views, messages = told((1, 2, 0), math.inf, clients, drawn=2)
        wire = views.wire(3)
        total = wire.add(wire.zero(), messages, torch.ones(clients))
        assert (wire.pairs(total)[2][:2, 2:5] > 0).all() == (
            clients > 1
        )  # one answer alone is no distribution
    views, messages = told((1, 2, 0), 1.0, 1, drawn=2)
    wire = views.wire(3)
    total = wire.add(wire.zero(), messages, torch.ones(1))
    assert wire.honest(total)[0, 1] == pytest.approx(honesty(1.0, 12))


def test_precision_is_the_inverse_variance_of_randomized_response():
    draw = np.random.default_rng(0)
    rows = np.stack(
        [draw.random(30_000) < 0.1, draw.choice(3, 30_000, p=(0.7, 0.2, 0.1)), np.zeros(30_000)], 1
    )
    views = Views(SIZES, always=(), drawn=2, epsilon=1.5)
    wire = views.wire(3)
    messages = views.privatize(torch.from_numpy(rows).float(), {}, Rng(1), np.arange(30_000))
    total = wire.add(wire.zero(), messages, torch.ones(30_000))
    own, _, precision = wire.pairs(total)
    share, worth = wire.honest(total)[0, 1], wire.answered(total)[0, 1]
    assert np.allclose(own[2:5], wire.joint(total, 1, 1) / wire.joint(total, 1, 1).sum(), atol=1e-5)
    reported = share * np.outer(own[:2], own[2:5]) + (1 - share) / 6
    assert np.allclose(precision[:2, 2:5], worth / (reported * (1 - reported)), rtol=1e-4)


def test_without_other_columns_nothing_is_drawn():
    assert best_view([2], [0], 1.0) == 0
