"""Class moments from one answer: exact without noise, sane with it, and never longer than the clip."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsynth.data.clients import Padded
from fedsynth.federation.moments import ClientMoments, RecordMoments, Weights, gaussians
from fedsynth.federation.query import Query
from fedsynth.federation.state import ServerState
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.local import LocalRecords
from fedsynth.rng import Rng

NUMBERS, CLASSES = 4, 2


def population(clients: int = 60, rows: int = 40) -> tuple[Padded, torch.Tensor, torch.Tensor]:
    """Two classes with known means and covariances."""
    draw = torch.Generator().manual_seed(0)
    mean = torch.tensor([[1.0, 0.0, 0.0, 0.0], [-1.0, 0.5, 0.0, 0.0]])
    factor = torch.stack([torch.eye(NUMBERS) * 0.3, torch.diag(torch.tensor([0.1, 0.2, 0.3, 0.4]))])
    factor[1, 3, 2] = 0.2
    y = torch.randint(CLASSES, (clients, rows), generator=draw)
    z = torch.randn(clients, rows, NUMBERS, generator=draw)
    x = mean[y] + (factor[y] @ z[..., None])[..., 0]
    return Padded(x, y, torch.ones_like(y, dtype=torch.bool)), mean, factor


def statistic(kind, radius: float = 3.0):
    return kind(lambda x: x, NUMBERS, CLASSES, torch.zeros(NUMBERS), radius)


def by_record(data: Padded) -> Padded:
    return Padded(data.x.flatten(0, 1)[:, None], data.y.reshape(-1, 1), data.mask.reshape(-1, 1))


def answered(kind, data: Padded) -> torch.Tensor:
    asked = statistic(kind)
    return asked(by_record(data) if kind is RecordMoments else data).double().sum(0)


@pytest.mark.parametrize("kind", [RecordMoments, ClientMoments])
def test_without_noise_the_moments_of_each_class_come_back(kind):
    data, mean, factor = population()
    found = gaussians(statistic(kind), answered(kind, data), 0.0, NUMBERS)
    torch.testing.assert_close(found.mean, mean, atol=0.08, rtol=0)
    torch.testing.assert_close(found.factor @ found.factor.mT, factor @ factor.mT, atol=0.05, rtol=0)
    torch.testing.assert_close(found.shares, torch.full((2,), 0.5), atol=0.05, rtol=0)


@pytest.mark.parametrize("kind", [RecordMoments, ClientMoments])
def test_without_noise_the_same_comes_back_whatever_the_parts_weigh(kind):
    data, _, _ = population()
    rows = by_record(data) if kind is RecordMoments else data
    usual = replace(statistic(kind), levels=lambda x: x[..., :1] > 0)
    light = replace(usual, weights=Weights(count=0.1, level=0.05))
    first, second = (gaussians(one, one(rows).double().sum(0), 0.0, NUMBERS) for one in (usual, light))
    # answers of clients are cut to length 1, by another factor then
    room = 1e-5 if kind is RecordMoments else 0.02
    torch.testing.assert_close(second.mean, first.mean, atol=room, rtol=0)
    torch.testing.assert_close(second.factor, first.factor, atol=room, rtol=0)


def test_counts_and_levels_that_weigh_less_leave_a_client_more_for_where_its_pictures_lie():
    data, _, _ = population()
    usual = replace(statistic(ClientMoments), levels=lambda x: torch.ones_like(x[..., :3]))
    light = replace(usual, weights=Weights(count=0.15, level=0.1))
    places = slice(2, 2 + NUMBERS)
    told = [one(data)[:, places].norm(dim=1) for one in (usual, light)]
    assert (told[1] > 1.2 * told[0]).all()
    assert torch.allclose(light(data).norm(dim=1), torch.ones(60), atol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_an_answer_that_is_all_noise_gives_moments_of_a_sane_size(seed):
    asked = statistic(ClientMoments)
    drawn = torch.randn(CLASSES * asked.width, generator=torch.Generator().manual_seed(seed))
    found = gaussians(asked, 1e4 * drawn, 1e4, NUMBERS)
    assert found.mean.abs().max() < 100 * asked.radius and found.factor.abs().max() < 100 * asked.radius


def test_under_much_noise_classes_are_drawn_together():
    data, mean, _ = population()
    clear = answered(ClientMoments, data)
    noise = 300.0
    noisy = clear + noise * torch.randn(clear.shape, generator=torch.Generator().manual_seed(1))
    noisy[:: statistic(ClientMoments).width] = clear[:: statistic(ClientMoments).width]
    found = gaussians(statistic(ClientMoments), noisy, noise, NUMBERS)
    assert (found.mean[0] - found.mean[1]).norm() < 100
    assert torch.isfinite(found.factor).all()


def test_a_clients_answer_has_length_one_whatever_it_holds():
    data, _, _ = population()
    assert torch.allclose(statistic(ClientMoments)(data).norm(dim=1), torch.ones(60), atol=1e-5)
    empty = Padded(data.x, data.y, torch.zeros_like(data.mask))
    assert not statistic(ClientMoments)(empty).any()


def test_one_record_moves_a_clients_sum_by_at_most_the_clip():
    data, _, _ = population(2, 6)
    mechanism = LocalRecords(Clip(1.0), 1.0)
    query = Query(
        "m", statistic(RecordMoments, 0.5), 2 * statistic(RecordMoments).width, mechanism, 2, "record"
    )
    ids = np.arange(2)
    sums = {}
    for rows in (6, 5):
        data.mask[:, rows:] = False
        sums[rows] = query.client_round(ServerState(0, {}), {}, data, ids, Rng(4))[0]
    moved = (sums[6] - sums[5]).norm(dim=1)  # the seeded noise is the same both times
    assert (moved <= 1.0 + 1e-9).all() and (moved > 0.5).all()


def test_records_of_a_client_get_its_noise_once():
    data, _, _ = population(40, 50)
    data.mask[:] = False
    query = Query("m", statistic(RecordMoments), 2 * statistic(RecordMoments).width, LocalRecords(Clip(1.0), 2.0), 40,
                  "record")  # fmt: skip
    sent, _ = query.client_round(ServerState(0, {}), {}, data, np.arange(40), Rng(2))
    assert 1.9 < float(sent.std()) < 2.1
