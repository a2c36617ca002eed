import warnings
from copy import deepcopy

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent
from scipy.stats import chi2
from torch import nn
from torch.func import functional_call, grad

from fedsynth.errors import BadInput
from fedsynth.rng import Rng
from fedsynth.training.captured import Tapes
from fedsynth.training.rule import DPSGD, Epochs, LocalStep
from noise_scale import fits, independent

ROWS = 12


torch.manual_seed(0)
NETWORK = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def loss(trained, fixed, batch, noise):
    """Cross-entropy of a small network: its per-record gradients are what Opacus computes too."""
    named = list(NETWORK.named_parameters())
    pieces = trained["all"].split([p.numel() for _, p in named])
    params = {name: piece.reshape(p.shape) for (name, p), piece in zip(named, pieces, strict=True)}
    scores = functional_call(NETWORK, params, (batch["x"],))
    chosen = torch.log_softmax(scores, -1).gather(-1, batch["y"][..., None])[..., 0]
    return -(chosen * batch["weight"]).sum() / batch["weight"].sum()


def batch_of(rows=ROWS, clients=1, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return {
        "x": 3 * torch.randn(clients, rows, 3, generator=draw),
        "y": torch.randint(0, 2, (clients, rows), generator=draw),
        "weight": torch.ones(clients, rows),
    }


def summed(rule, batch, clients=1, ids=None):
    """The rule's sum over records of [gradient, loss], without noise and not divided."""
    trained = {"all": flat(NETWORK).expand(clients, -1)}
    noise = torch.zeros(clients, batch["x"].shape[1], 1)
    ids = np.arange(clients) if ids is None else ids
    gradients, losses = rule.gradient(loss, LocalStep(trained, {}, batch, noise, ids, Rng(1)))
    reported = losses.double() * rule.report * rule.clip / rule.loss_bound
    return torch.cat([gradients["all"].double(), reported[:, None]], dim=1) * rule.expected_batch


def noiseless(clip=0.5, **changes):
    return DPSGD(clip, 0.0, rate=0.5, steps=1, expected_batch=7.0, **changes)


def test_clipped_gradients_equal_those_of_opacus():
    from opacus import GradSampleModule  # not for every worker that reads this file: it takes a second
    from opacus.optimizers import DPOptimizer

    batch = batch_of()
    rule = noiseless(clip=1.5)
    bound = 1.5 * (1 - rule.report**2) ** 0.5
    module = GradSampleModule(deepcopy(NETWORK))
    optimizer = DPOptimizer(
        torch.optim.SGD(module.parameters(), 1.0),
        noise_multiplier=0.0,
        max_grad_norm=bound,
        expected_batch_size=7,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        losses = nn.functional.cross_entropy(module(batch["x"][0]), batch["y"][0], reduction="mean")
        losses.backward()
    norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in module.parameters()]).norm(dim=0)
    assert (norms > bound).any() and (norms < bound).any()
    before = flat(NETWORK)
    optimizer.step()
    ours = summed(rule, batch)[0, :-1] / 7.0
    torch.testing.assert_close(ours, (before - flat(module)).double(), rtol=1e-4, atol=2e-6)


def test_nested_vmap_equals_a_loop_over_clients_and_records():
    batch = batch_of(rows=4, clients=3)
    rule = noiseless(clip=0.5)
    expected = torch.zeros(3, 32, dtype=torch.float64)
    for client in range(3):
        for row in range(4):
            single = {name: value[client, row : row + 1] for name, value in batch.items()}
            gradient = grad(loss)({"all": flat(NETWORK)}, {}, single, torch.zeros(1, 1))["all"].double()
            bound = rule.clip * (1 - rule.report**2) ** 0.5
            expected[client] += gradient * min(1.0, bound / gradient.norm())
    torch.testing.assert_close(summed(rule, batch, 3)[:, :-1], expected, rtol=1e-4, atol=1e-5)


def test_removing_any_record_moves_the_sum_by_at_most_the_clip():
    batch = batch_of()
    rule = noiseless(clip=0.5)
    whole = summed(rule, batch)
    moves = []
    for row in range(ROWS):
        weight = batch["weight"].clone()
        weight[0, row] = 0
        moves.append(float((whole - summed(rule, {**batch, "weight": weight})).norm()))
    assert max(moves) <= 0.5 + 1e-5
    assert max(moves) > 0.49  # the bound is met, so the search could have found a breach


def test_the_reported_loss_has_its_own_share_of_the_clip():
    rule = noiseless(clip=0.5, loss_bound=1e-3)  # every loss is above its bound
    assert summed(rule, batch_of())[0, -1] == pytest.approx(ROWS * 0.5 * rule.report, rel=1e-4)
    rule = noiseless(clip=0.5, loss_bound=1e3)
    mean = summed(rule, batch_of())[0, -1] / ROWS / (0.5 * rule.report) * 1e3
    expected = loss(
        {"all": flat(NETWORK)}, {}, {k: v[0] for k, v in batch_of().items()}, torch.zeros(ROWS, 1)
    )
    assert float(mean) == pytest.approx(float(expected), rel=1e-2)


def test_rows_taken_in_pieces_give_the_same_sum(monkeypatch):
    whole = summed(noiseless(), batch_of())
    monkeypatch.setattr("fedsynth.training.rule._AT_ONCE", 100)
    assert torch.equal(summed(noiseless(), batch_of()), whole)


def test_a_record_that_is_not_a_number_counts_as_nothing():
    batch = batch_of()
    batch["x"][0, 3] = float("nan")
    without = batch_of()
    without["weight"][0, 3] = 0
    assert torch.equal(summed(noiseless(), batch), summed(noiseless(), without))


def test_the_sum_is_divided_by_the_expected_batch_whoever_turned_up():
    trained = {"all": flat(NETWORK)[None]}
    batch = batch_of(rows=2)
    both, _ = noiseless().gradient(
        loss, LocalStep(trained, {}, batch, torch.zeros(1, 2, 1), np.array([0]), Rng(1))
    )
    batch["weight"][0, 1] = 0
    one, _ = noiseless().gradient(
        loss, LocalStep(trained, {}, batch, torch.zeros(1, 2, 1), np.array([0]), Rng(1))
    )
    single = {name: value[:, 1:] for name, value in batch_of(rows=2).items()}
    other, _ = noiseless().gradient(
        loss, LocalStep(trained, {}, single, torch.zeros(1, 1, 1), np.array([0]), Rng(1))
    )
    torch.testing.assert_close(both["all"], one["all"] + other["all"], rtol=1e-5, atol=1e-7)


def test_noise_has_the_scale_of_the_clip():
    rule = DPSGD(0.5, 3.0, rate=0.5, steps=1, expected_batch=7.0)
    clients = 400
    batch = {name: value.expand(clients, *value.shape[1:]) for name, value in batch_of(rows=1).items()}
    trained = {"all": flat(NETWORK).expand(clients, -1)}
    drawn, _ = rule.gradient(
        loss, LocalStep(trained, {}, batch, torch.zeros(clients, 1, 1), np.arange(clients), Rng(4))
    )
    spread = float(drawn["all"].std(dim=0).mean()) * 7.0
    assert spread == pytest.approx(1.5, rel=0.02)


def noise_of(rule, rng, clients=4000):
    """What DP-SGD adds to a step that no record is in, in units of its noise: [clients, parameters and the loss]."""
    batch = {name: value.expand(clients, *value.shape[1:]) for name, value in batch_of(rows=1).items()}
    batch["weight"] = torch.zeros_like(batch["weight"])
    step = LocalStep(
        {"all": torch.zeros(clients, 32)}, {}, batch, torch.zeros(clients, 1, 1), np.arange(clients), rng
    )
    gradients, losses = rule.gradient(loss, step)
    reported = losses / rule.loss_bound * rule.report * rule.clip
    drawn = torch.cat([gradients["all"], reported[:, None]], dim=1).double()
    return drawn * rule.expected_batch / (rule.noise_multiplier * rule.clip)


@pytest.mark.parametrize("rng", [Rng(), Rng(4)])
def test_the_reported_loss_has_the_noise_of_the_whole_clip(rng):
    drawn = noise_of(DPSGD(0.5, 3.0, rate=0.5, steps=1, expected_batch=7.0), rng)
    assert fits(drawn[:, -1], 1.0) and not fits(drawn[:, -1], 0.9)


@pytest.mark.parametrize("rng", [Rng(), Rng(4)])
def test_no_two_numbers_of_a_step_share_their_noise(rng):
    drawn = noise_of(DPSGD(0.5, 3.0, rate=0.5, steps=1, expected_batch=7.0), rng)
    assert independent(drawn)


def test_batches_are_poisson_samples():
    rule = DPSGD(1.0, 1.0, rate=0.3, steps=4000, expected_batch=3.0)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1, 3:] = False
    taken = np.zeros((4000, 2, 5))
    for step, rows in enumerate(rule.batches(mask, np.array([3, 8]), Rng(2))):
        for client in range(2):
            taken[step, client, rows.index[client][rows.weight[client]].numpy()] += 1
    assert taken.max() == 1 and taken[:, 1, 3:].sum() == 0
    drawn = np.concatenate([taken[:, 0], taken[:, 1, :3]], axis=1)
    counts = drawn.sum(0)
    assert ((counts - 1200) ** 2 / (4000 * 0.3 * 0.7)).sum() < chi2.ppf(0.999, 8)
    links = np.corrcoef(drawn.T)[np.triu_indices(8, 1)] * 4000**0.5
    assert (links**2).sum() < chi2.ppf(0.999, 28)
    follows = np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]
    assert abs(follows) * (3999 * 8) ** 0.5 < 3.3


def test_the_cost_is_that_of_the_batches():
    rule = DPSGD(1.0, 1.5, rate=0.25, steps=6, expected_batch=3.0, trust="central")
    assert rule.release.event == PoissonSampledDpEvent(0.25, GaussianDpEvent(1.5))
    assert (rule.release.count, rule.release.unit, rule.release.trust) == (6, "record", "central")
    assert isinstance(noiseless().release.event, NonPrivateDpEvent)


def test_an_epoch_visits_each_row_once_in_a_fresh_order():
    mask = torch.arange(9)[None] < torch.tensor([[9], [0], [4]])
    seen = [np.zeros((3, 9)), np.zeros((3, 9))]
    orders = [[], []]
    for rows in Epochs(2, 4).batches(mask, np.array([5, 6, 7]), Rng(1)):
        epoch = rows.step // 1_000_000
        for client in range(3):
            chosen = rows.index[client][rows.weight[client]].numpy()
            seen[epoch][client, chosen] += 1
            orders[epoch] += chosen.tolist()
    assert (seen[0] == mask.numpy()).all() and (seen[1] == mask.numpy()).all()
    assert orders[0] != orders[1]


def test_a_client_without_rows_sits_every_step_out():
    mask = torch.tensor([[True, True], [False, False]])
    assert all(
        rows.active.tolist() == [True, False] for rows in Epochs(2, 1).batches(mask, np.arange(2), Rng(1))
    )


@pytest.mark.parametrize(("count", "size"), [(0, 4), (1, 0)])
def test_epochs_without_work_are_refused(count, size):
    with pytest.raises(BadInput, match="at least 1"):
        Epochs(count, size)


def test_a_part_of_a_step_has_some_rows_of_everything_that_has_rows():
    batch = batch_of(rows=4, clients=2)
    noise = torch.arange(8.0).reshape(2, 4, 1)
    part = LocalStep({"all": torch.zeros(2, 3)}, {}, batch, noise, np.arange(2), Rng(1)).part(slice(1, 3))
    assert torch.equal(part.noise, noise[:, 1:3]) and part.trained["all"].shape == (2, 3)
    assert all(torch.equal(part.batch[name], batch[name][:, 1:3]) for name in batch)


def test_without_protection_gradients_are_those_of_the_mean_loss():
    batch = batch_of(rows=4, clients=3)
    batch["weight"][1, 2:] = 0
    step = LocalStep(
        {"all": flat(NETWORK).expand(3, -1)}, {}, batch, torch.zeros(3, 4, 1), np.arange(3), Rng(1)
    )
    gradients, losses = Epochs(1, 4).gradient(loss, step)
    for client in range(3):
        own = {name: value[client] for name, value in batch.items()}
        expected = loss({"all": flat(NETWORK)}, {}, own, torch.zeros(4, 1))
        assert float(losses[client]) == pytest.approx(float(expected), rel=1e-5) and not losses.requires_grad
        torch.testing.assert_close(
            gradients["all"][client], grad(loss)({"all": flat(NETWORK)}, {}, own, torch.zeros(4, 1))["all"]
        )


def weighted(trained, fixed, batch, noise):
    """A loss with a part that all clients share, [size], or that each has, [clients, size]."""
    return ((trained["all"] * fixed["scale"]).sum() + noise.sum()) * batch["weight"].sum()


@pytest.mark.parametrize("rule", [Epochs(1, 4), DPSGD(100.0, 0.0, rate=1.0, steps=1, expected_batch=1.0)])
def test_parts_that_all_share_and_parts_of_each_client_are_both_used(rule):
    batch = {"x": torch.zeros(2, 1, 1), "y": torch.zeros(2, 1, dtype=torch.int64), "weight": torch.ones(2, 1)}
    scales = {"shared": torch.tensor([1.0, 2.0]), "own": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    found = {}
    for kind, scale in scales.items():
        step = LocalStep(
            {"all": torch.ones(2, 2)}, {"scale": scale}, batch, torch.zeros(2, 1, 1), np.arange(2), Rng(1)
        )
        found[kind] = rule.gradient(weighted, step)[0]["all"]
    torch.testing.assert_close(found["shared"], scales["shared"].expand(2, -1), atol=1e-3, rtol=0)
    torch.testing.assert_close(found["own"], scales["own"], atol=1e-3, rtol=0)


def test_several_parts_come_back_under_their_names():
    def both(trained, fixed, batch, noise):
        return (2 * trained["first"]).sum() + (3 * trained["second"]).sum()

    batch = {"x": torch.zeros(1, 1, 1), "y": torch.zeros(1, 1, dtype=torch.int64), "weight": torch.ones(1, 1)}
    step = LocalStep(
        {"first": torch.zeros(1, 2), "second": torch.zeros(1, 3)},
        {},
        batch,
        torch.zeros(1, 1, 1),
        np.arange(1),
        Rng(1),
    )
    gradients, _ = DPSGD(100.0, 0.0, rate=1.0, steps=1, expected_batch=1.0).gradient(both, step)
    assert gradients["first"].tolist() == [[2.0, 2.0]]
    torch.testing.assert_close(gradients["second"], torch.full((1, 3), 3.0), atol=1e-3, rtol=0)
    assert gradients["first"].dtype == torch.float32


def test_what_has_no_guarantee_says_so_whatever_its_noise():
    unsound = DPSGD(1.0, 5.0, rate=0.1, steps=4, expected_batch=3.0, claimed=False).release
    assert isinstance(unsound.event, NonPrivateDpEvent) and (unsound.count, unsound.unit, unsound.trust) == (
        4,
        "record",
        "local",
    )
    assert unsound.what == "noisy gradients that an unprotected part has shaped"
    assert noiseless().release.what == "gradients without noise"
    assert noiseless().release.unit == "record" and noiseless(trust="central").release.trust == "central"
    assert DPSGD(1.0, 1.5, 0.25, 6, 3.0).release.what == "noisy sum of clipped record gradients"
    assert Epochs(1, 1).release is None


def test_a_loss_below_zero_is_reported_as_zero():
    def negative(trained, fixed, batch, noise):
        return trained["all"].sum() * 0 - 5.0

    batch = batch_of(rows=1)
    step = LocalStep({"all": torch.zeros(1, 2)}, {}, batch, torch.zeros(1, 1, 1), np.arange(1), Rng(1))
    assert noiseless().gradient(negative, step)[1].tolist() == [0.0]


def test_each_client_and_step_draws_a_batch_of_its_own():
    rule = DPSGD(1.0, 1.0, rate=0.5, steps=2, expected_batch=3.0)
    mask = torch.ones(2, 40, dtype=torch.bool)
    first, second = rule.batches(mask, np.array([3, 8]), Rng(2))
    drawn = [
        set(rows.index[client][rows.weight[client]].tolist()) for rows in (first, second) for client in (0, 1)
    ]
    assert len({frozenset(rows) for rows in drawn}) == 4 and (first.step, second.step) == (0, 1)
    again = next(rule.batches(mask[:1], np.array([8]), Rng(2)))
    assert set(again.index[0][again.weight[0]].tolist()) == drawn[1]  # whoever else is there


def test_a_step_that_drew_nobody_has_one_empty_place():
    rows = next(
        DPSGD(1.0, 1.0, 1e-9, 1, 3.0).batches(torch.ones(2, 5, dtype=torch.bool), np.arange(2), Rng(2))
    )
    assert rows.index.shape == (2, 1) and not rows.weight.any()


def test_batches_of_an_epoch_are_as_long_as_asked_and_numbered():
    mask = torch.ones(1, 10, dtype=torch.bool)
    rows = list(Epochs(2, 4).batches(mask, np.array([5]), Rng(1)))
    assert [one.index.shape[1] for one in rows] == [4, 4, 2] * 2
    assert [one.step for one in rows] == [0, 1, 2, 1_000_000, 1_000_001, 1_000_002]
    assert [one.index.shape[1] for one in Epochs(1, 50).batches(mask, np.array([5]), Rng(1))] == [10]


def test_an_epoch_may_be_cut_short_and_ends_with_the_longest_client():
    mask = torch.arange(10)[None] < torch.tensor([[10], [3]])
    assert len(list(Epochs(1, 4, most=2).batches(mask, np.arange(2), Rng(1)))) == 2
    assert len(list(Epochs(1, 4, most=9).batches(mask, np.arange(2), Rng(1)))) == 3
    assert len(list(Epochs(1, 4).batches(mask[1:], np.arange(1), Rng(1)))) == 1
    nobody = torch.zeros(1, 10, dtype=torch.bool)
    assert len(list(Epochs(1, 4).batches(nobody, np.arange(1), Rng(1)))) == 1


def test_an_epochs_order_is_a_clients_own():
    mask = torch.ones(2, 8, dtype=torch.bool)
    both = next(Epochs(1, 8).batches(mask, np.array([3, 8]), Rng(1))).index
    assert both[0].tolist() != both[1].tolist()
    assert next(Epochs(1, 8).batches(mask[:1], np.array([8]), Rng(1))).index[0].tolist() == both[1].tolist()


def test_one_epoch_of_one_row_is_one_step():
    assert len(list(Epochs(1, 1).batches(torch.tensor([[True, False]]), np.arange(1), Rng(1)))) == 1


@pytest.mark.parametrize(("most", "size"), [(200, 96), (70, 64), (40, 32), (5, 5), (1, 1)])
def test_recorded_steps_fall_into_equal_pieces_that_no_row_is_lost_from(most, size):
    batch = batch_of(rows=70, clients=2)
    step = LocalStep({}, {}, batch, torch.rand(2, 70, 1), np.arange(2), Rng(1), Tapes())
    parts = list(step.parts(most))
    assert {part.noise.shape[1] for part in parts} == {size}
    for name in batch:
        whole = torch.cat([part.batch[name] for part in parts], dim=1)
        assert torch.equal(whole[:, :70], batch[name]) and not whole[:, 70:].any()
    assert [part.noise.shape[1] for part in LocalStep(**{**vars(step), "tapes": None}).parts(40)] == [40, 30]
