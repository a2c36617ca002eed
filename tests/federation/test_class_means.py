"""Class means from one answer: exact without noise, drawn together under noise, blind to rows that are not there."""

import pytest
import torch

from fedsynth.data.clients import Padded
from fedsynth.federation.class_means import ClientMeans, RecordMeans, class_counts, class_means

NUMBERS, CLASSES = 5, 3
KINDS = [RecordMeans, ClientMeans]


def population(clients=80, rows=30):
    draw = torch.Generator().manual_seed(0)
    mean = 0.2 * torch.randn(CLASSES, NUMBERS, generator=draw)
    spread = torch.tensor([0.02, 0.05, 0.1, 0.15, 0.2])
    y = torch.randint(CLASSES, (clients, rows), generator=draw)
    x = mean[y] + spread * torch.randn(clients, rows, NUMBERS, generator=draw)
    return Padded(x, y, torch.ones_like(y, dtype=torch.bool)), mean, spread


def statistic(kind):
    return kind(lambda x: x, NUMBERS, CLASSES)


def answered(kind, data):
    if kind is RecordMeans:
        data = Padded(data.x.flatten(0, 1)[:, None], data.y.reshape(-1, 1), data.mask.reshape(-1, 1))
    return statistic(kind)(data).double().sum(0)


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_means_and_spread_come_back(kind):
    data, mean, spread = population()
    found = class_means(statistic(kind), answered(kind, data), 0.0)
    torch.testing.assert_close(found.mean, mean, atol=0.03, rtol=0)
    torch.testing.assert_close(found.spread, spread, atol=0.02, rtol=0)
    torch.testing.assert_close(found.shares, torch.full((3,), 1 / 3), atol=0.05, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_has_as_many_numbers_as_it_says(kind):
    assert len(answered(kind, population()[0])) == statistic(kind).width == CLASSES * (1 + NUMBERS) + NUMBERS


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_not_there_say_nothing(kind):
    data, _, _ = population(4, 10)
    mask = torch.arange(10).expand(4, 10) < 6
    padded = Padded(torch.where(mask[..., None], data.x, 1e3), data.y, mask)
    short = Padded(data.x[:, :6], data.y[:, :6], mask[:, :6])
    torch.testing.assert_close(answered(kind, padded), answered(kind, short))


def test_every_client_weighs_the_same():
    data, _, _ = population(4, 10)
    torch.testing.assert_close(statistic(ClientMeans)(data).norm(dim=1), torch.ones(4))


@pytest.mark.parametrize("seed", range(10))
def test_an_answer_that_is_all_noise_gives_means_of_a_sane_size(seed):
    asked = statistic(ClientMeans)
    drawn = torch.randn(asked.width, generator=torch.Generator().manual_seed(seed))
    found = class_means(asked, 1e4 * drawn, 1e4)
    assert found.mean.isfinite().all() and found.spread.isfinite().all()
    assert found.mean.abs().max() < 100 and found.spread.max() < 100


def test_under_much_noise_classes_are_drawn_together():
    data, _, _ = population()
    told = answered(RecordMeans, data)
    noise = 300.0
    noisy = told + noise * torch.randn(len(told), generator=torch.Generator().manual_seed(3)).double()
    plain, loud = (
        class_means(statistic(RecordMeans), answer, level) for answer, level in ((told, 0.0), (noisy, noise))
    )
    apart = [(found.mean - found.mean.mean(0)).norm() for found in (plain, loud)]
    assert apart[1] < 0.7 * apart[0]


def test_counts_are_those_of_the_records():
    data, _, _ = population()
    weights, noise = class_counts(statistic(RecordMeans), answered(RecordMeans, data), 0.6)
    torch.testing.assert_close(weights.float(), torch.bincount(data.y.flatten(), minlength=CLASSES).float())
    assert noise == pytest.approx(2.0)
