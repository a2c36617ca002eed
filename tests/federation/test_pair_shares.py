"""The shares of pairs of values: what a client may add, and what a noisy sum tells."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.data.clients import Padded
from fedsynth.data.encode import Block
from fedsynth.federation.pair_shares import ClientPairs

BLOCKS = (
    Block("a", 0, 3, False, False),
    Block("b", 3, 2, True, True),
)  # the second: 2 bins, missing, a position


def padded(clients, rows, seed=0):
    """Clients whose second column mostly follows the first and whose label mostly follows the second."""
    draw = torch.Generator().manual_seed(seed)
    first = torch.randint(3, (clients, rows), generator=draw)
    stray = torch.rand(2, clients, rows, generator=draw) < 0.2
    second = torch.where(stray[0], torch.randint(3, first.shape, generator=draw), first)
    label = torch.where(stray[1], 1, (second > 0).long())
    x = torch.zeros(clients, rows, 7)
    x[..., :3] = torch.nn.functional.one_hot(first, 3)
    x[..., 3:6] = torch.nn.functional.one_hot(second, 3)
    x[..., 6] = torch.rand(first.shape, generator=draw)
    return Padded(x, label, torch.ones(clients, rows, dtype=torch.bool)), (first, second, label)


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 30), held=st.integers(0, 30), seed=st.integers(0, 99))
def test_no_client_is_longer_than_one_and_one_without_rows_says_nothing(rows, held, seed):
    data, _ = padded(2, rows, seed)
    data.mask[0, held:] = False
    lengths = ClientPairs(BLOCKS, 2)(data).norm(dim=1)
    assert lengths[1] == pytest.approx(1, abs=1e-5)
    assert lengths[0] == pytest.approx(1 if held else 0, abs=1e-5)


def test_padding_adds_nothing():
    data, _ = padded(3, 8)
    data.mask[:, 5:] = False
    short = Padded(data.x[:, :5], data.y[:, :5], data.mask[:, :5])
    assert torch.allclose(ClientPairs(BLOCKS, 2)(data), ClientPairs(BLOCKS, 2)(short), atol=1e-6)


def test_without_noise_the_shares_are_those_of_the_rows():
    data, (first, second, label) = padded(400, 60)
    statistic = ClientPairs(BLOCKS, 2)
    known = statistic.read(statistic(data).sum(0), 0.0)
    hot = [
        torch.nn.functional.one_hot(codes.flatten(), size)
        for codes, size in zip((first, second, label), (3, 3, 2), strict=True)
    ]
    rows = torch.cat(hot, 1).float()
    assert torch.allclose(known.pairs, rows.T @ rows / len(rows), atol=5e-3)
    assert torch.allclose(known.single, rows.mean(0), atol=5e-3)
    assert torch.allclose(torch.stack([part.sum() for part in known.single.split([3, 3, 2])]), torch.ones(3))


def test_the_stated_precision_is_that_of_the_noise():
    data, _ = padded(200, 30)
    statistic, draw = ClientPairs(BLOCKS, 2), torch.Generator().manual_seed(1)
    total = statistic(data).sum(0)
    exact = statistic.read(total, 5.0).pairs
    missed = torch.stack(
        [
            statistic.read(total + 5.0 * torch.randn(len(total), generator=draw), 5.0).pairs - exact
            for _ in range(300)
        ]
    )
    stated = statistic.read(total, 5.0).precision
    found = 1 / missed.square().mean(0)
    apart = stated > 0
    assert (found / stated)[apart].log().abs().max() < 0.6 and (found / stated)[
        apart
    ].log().mean().abs() < 0.15


def test_values_of_one_column_are_never_told_to_go_together():
    statistic = ClientPairs(BLOCKS, 2)
    precision = statistic.read(torch.ones(statistic.width), 1.0).precision
    for start, stop in ((0, 3), (3, 6), (6, 8)):
        assert precision[start:stop, start:stop].abs().max() == 0
    assert precision[:3, 3:].min() > 0


def test_without_a_label_pairs_are_read_too():
    data, _ = padded(200, 30)
    statistic = ClientPairs(BLOCKS, 0)
    known = statistic.read(statistic(data).sum(0), 0.0)
    assert known.pairs.shape == (6, 6) and known.pairs[0, 3] > 2 * known.pairs[0, 4]
