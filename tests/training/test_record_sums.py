"""Sums over a site's records: each clipped with its loss, drawn by its own coin, and the noise added once."""

import numpy as np
import pytest
import torch
from scipy.stats import binom, chisquare
from torch import nn

from fedsynth.data.clients import Padded
from fedsynth.models.model import Objective
from fedsynth.privacy.clip import Clip
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.rng import Rng
from fedsynth.training.record_sums import RecordSums, _uniforms
from fedsynth.transport.ring import Parties
from noise_scale import fits, independent

CLIP = Clip(1.0, ((2, 0.8), (1, 0.6)))
LEAST, MOST = 1.0, 5.0
PARTS = {"slope": torch.tensor([0.5, -0.25]), "offset": torch.tensor([0.1])}
X = torch.tensor(
    [[[1.0, 2.0], [0.1, 0.2], [3.0, -1.0]], [[0.2, 0.1], [9.0, 9.0], [9.0, 9.0]], [[9.0, 9.0]] * 3]
)
Y = torch.tensor([[0, 1, 2], [1, 0, 0], [0, 0, 0]])
MASK = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])


class Line:
    """y by a straight line, its error squared; with `shake`, each row's error has noise of its own."""

    parts = {"slope": nn.Linear(2, 1, bias=False), "offset": nn.Linear(1, 1, bias=False)}
    generative = ("slope",)

    def __init__(self, shake=0.0, extra=0.0):
        self.shake, self.extra = shake, extra
        self.objectives = {"fit": Objective((2,), MOST, LEAST)}

    def loss(self, objective, params, batch, noise):
        assert objective == "fit" and batch["weight"].dtype == torch.float32
        line = (batch["x"] @ params["slope"]["weight"].T)[..., 0] + params["offset"]["weight"][0, 0]
        errors = (line - batch["y"]) ** 2 + self.shake * noise.mean(-1) + self.extra
        return (errors * batch["weight"]).sum() / batch["weight"].sum()


def sums(noise=0.0, unit="record", coin=1.0, parties=3):
    mechanism = DistributedGaussian(
        CLIP,
        noise,
        3,
        Parties(parties, parties),
        contributions=10,
        bits=28,
        coin=coin,
        rotate=False,
        unit=unit,
    )
    return RecordSums("fit", ("slope",), mechanism, report=0.6)


def sent(rule, model=None, x=X, y=Y, mask=MASK, rng=None, parts=PARTS):
    """What each site sends, in the units of the clip."""
    ids = np.arange(len(x)) + 5
    messages = rule.messages(model or Line(), parts, Padded(x, y, mask), ids, {}, rng or Rng(1))
    ring = rule.mechanism.wire(3)
    return ring.centered(messages.to(torch.int64)) * rule.mechanism.grid


def contribution(x, y, offset=0.1, extra=0.0):
    """One record's clipped direction downhill, and its loss between its bounds as a share of the clip."""
    error = float(x @ PARTS["slope"]) + offset - float(y)
    downhill = -2 * error * x
    loss = (min(max(error**2 + extra, LEAST), MOST) - LEAST) / (MOST - LEAST) * 0.6
    return torch.cat([downhill * min(1.0, 0.8 / float(downhill.norm())), torch.tensor([loss])]).double()


def expected(offset=0.1, extra=0.0):
    total = torch.zeros(3, 3, dtype=torch.float64)
    for site, row in MASK.nonzero().tolist():
        total[site] += contribution(X[site, row], Y[site, row], offset, extra)
    return total


def test_a_site_sends_the_sum_of_its_clipped_records():
    torch.testing.assert_close(sent(sums()), expected(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("extra", [-3.0, 2.0, 9.0])
def test_a_loss_is_cut_to_its_bounds_and_sent_as_a_share_of_them(extra):
    torch.testing.assert_close(sent(sums(), Line(extra=extra)), expected(extra=extra), rtol=0, atol=1e-5)


def test_parts_that_are_not_trained_are_used_as_they_are():
    told = sent(sums(), parts={**PARTS, "offset": torch.tensor([2.0])})
    torch.testing.assert_close(told, expected(offset=2.0), rtol=0, atol=1e-5)


def test_records_taken_in_pieces_give_the_same_sum(monkeypatch):
    monkeypatch.setattr("fedsynth.training.record_sums._AT_ONCE", 6)  # two records of three numbers
    torch.testing.assert_close(sent(sums()), expected(), rtol=0, atol=1e-5)


def test_a_patient_sends_one_clip_for_all_of_its_records():
    told = sent(sums(unit="client"))
    direction, loss = torch.zeros(2), 0.0
    for x, y in zip(X[0], Y[0], strict=True):
        error = float(x @ PARTS["slope"]) + 0.1 - float(y)
        direction, loss = direction - 2 * error * x / 3, loss + error**2 / 3
    share = (min(max(loss, LEAST), MOST) - LEAST) / (MOST - LEAST) * 0.6
    first = torch.cat([direction * min(1.0, 0.8 / float(direction.norm())), torch.tensor([share])]).double()
    torch.testing.assert_close(told[0], first, rtol=0, atol=1e-5)
    torch.testing.assert_close(told[1], contribution(X[1, 0], Y[1, 0]), rtol=0, atol=1e-5)
    assert told[2].tolist() == [0.0, 0.0, 0.0]  # who has no record contributes nothing, not even a loss


@pytest.mark.parametrize("rng", [Rng(), Rng(3)])
@pytest.mark.parametrize("unit", ["record", "client"])
def test_every_number_of_a_message_has_a_share_of_the_noise_also_that_of_an_empty_site(rng, unit):
    sites = 400
    mask = torch.zeros(sites, 1, dtype=torch.bool)
    rule = sums(noise=2.0, unit=unit)
    told = sent(
        rule, x=torch.ones(sites, 1, 2), y=torch.zeros(sites, 1, dtype=torch.int64), mask=mask, rng=rng
    )
    assert independent(told)
    for column in told.T:
        assert fits(column, rule.mechanism.share) and not fits(column, 0.75 * rule.mechanism.share)


@pytest.mark.parametrize("rng", [Rng(), Rng(3)])
def test_noise_is_added_once_however_many_records_a_site_has(rng):
    sites = 300
    rule = sums(noise=2.0)
    x, y = torch.zeros(sites, 3, 2), torch.zeros(sites, 3, dtype=torch.int64)
    told = sent(rule, x=x, y=y, mask=torch.ones(sites, 3, dtype=torch.bool), rng=rng)[:, :2]
    assert fits(told, rule.mechanism.share) and not fits(told, 1.3 * rule.mechanism.share)


def test_each_record_contributes_by_its_own_coin():
    rule, times = sums(coin=0.3), 200
    x = torch.zeros(times, 4, 2)
    mask = torch.tensor([True, False, True, True]).expand(times, -1)
    y = torch.full((times, 4), 9)  # the loss is at its bound: the last number counts the records
    told = sent(rule, x=x, y=y, mask=mask)[:, -1] / 0.6
    torch.testing.assert_close(told, told.round(), rtol=0, atol=1e-4)
    counts = np.bincount(told.round().int().numpy(), minlength=4)
    assert chisquare(counts, binom.pmf(range(4), 3, 0.3) * times).pvalue > 1e-4


def test_the_records_that_are_drawn_are_those_that_count():
    rule = sums(coin=0.5)
    x, y = torch.zeros(200, 4, 2), torch.tensor([0, 0, 9, 0]).expand(200, -1)
    mask = torch.tensor([False, True, False, True]).expand(200, -1)
    assert float(sent(rule, x=x, y=y, mask=mask)[:, -1].max()) == pytest.approx(0.0, abs=1e-5)


def test_every_record_of_every_site_has_noise_of_its_own_in_the_objective():
    x, y = torch.zeros(40, 1, 2), torch.zeros(40, 1, dtype=torch.int64)
    mask = torch.ones(40, 1, dtype=torch.bool)
    model = Line(shake=1.0, extra=3.0)
    for unit in ("record", "client"):
        told = sent(sums(unit=unit), model, x=x, y=y, mask=mask)[:, -1]
        assert len(np.unique(told.numpy().round(6))) > 35
    rows = [
        sent(
            sums(),
            model,
            x=torch.zeros(1, n, 2),
            y=torch.zeros(1, n, dtype=torch.int64),
            mask=torch.ones(1, n) > 0,
        )
        for n in (1, 2)
    ]
    assert abs(float(rows[1][0, -1] - 2 * rows[0][0, -1])) > 1e-4  # the second record is shaken differently


def test_the_contribution_is_rounded_either_way():
    """Rounding is by chance, so that many sites together are not biased."""
    sites = 600
    x = torch.tensor([0.01, 0.02]).expand(sites, 1, 2)
    rule = sums()
    told = (
        sent(rule, x=x, y=torch.zeros(sites, 1, dtype=torch.int64), mask=torch.ones(sites, 1) > 0)
        / rule.mechanism.grid
    )
    exact = float(contribution(torch.tensor([0.01, 0.02]), 0)[0]) / rule.mechanism.grid
    assert len(np.unique(told[:, 0].numpy())) == 2
    assert float(told[:, 0].mean()) == pytest.approx(exact, abs=5 * 0.5 / sites**0.5 + abs(exact) * 1e-6)


def test_a_loss_beyond_all_bounds_is_cut_and_its_record_still_counts():
    told = sent(sums(), Line(extra=float("inf")))
    torch.testing.assert_close(told, expected(extra=1e9), rtol=0, atol=1e-5)


def test_large_sums_keep_their_last_bit():
    """Sums of several records pass what float32 holds exactly."""
    sites = 60
    x = torch.tensor([3.0, 4.0]).expand(sites, 3, 2)
    rule = sums()
    told = sent(rule, x=x, y=torch.full((sites, 3), 9), mask=torch.ones(sites, 3) > 0) / rule.mechanism.grid
    assert float(told.abs().max()) > 2**24 and bool((told.round() % 2 == 1).any())


def test_the_same_seed_rounds_alike_whatever_else_was_drawn():
    torch.manual_seed(1)
    first = sent(sums())
    torch.manual_seed(2)
    assert torch.equal(sent(sums()), first)


def test_each_attempt_to_round_draws_afresh():
    first, second, again = (_uniforms((2, 3), torch.device("cpu"), Rng(1), attempt) for attempt in (0, 1, 0))
    assert torch.equal(first, again) and not torch.equal(first, second)


def test_records_taken_in_pieces_are_each_rounded_by_chance_of_their_own(monkeypatch):
    monkeypatch.setattr("fedsynth.training.record_sums._AT_ONCE", 3)  # one record of three numbers
    sites, rule = 60, sums()
    x = torch.tensor([0.01, 0.02]).expand(sites, 2, 2)
    y, mask = torch.zeros(sites, 2, dtype=torch.int64), torch.ones(sites, 2) > 0
    steps = sent(rule, x=x, y=y, mask=mask) / rule.mechanism.grid
    assert bool((steps[:, 0].round() % 2 == 1).any())  # twice the same rounding would always be even


class Wide(Line):
    """The same with so many numbers that a message is rotated."""

    parts = {"slope": nn.Linear(127, 1, bias=False), "offset": nn.Linear(1, 1, bias=False)}


@pytest.mark.parametrize("unit", ["record", "client"])
def test_records_are_rotated_by_the_turn_of_the_round(unit):
    mechanism = DistributedGaussian(
        Clip(1.0, ((127, 0.8), (1, 0.6))), 0.0, 128, Parties(3, 3), contributions=10, bits=28, unit=unit
    )
    assert mechanism.rotation.block > 1
    rule, x = RecordSums("fit", ("slope",), mechanism, report=0.6), torch.zeros(1, 1, 127)
    x[..., :30] = 0.05
    parts = {"slope": torch.zeros(127), "offset": torch.tensor([0.1])}
    data, state = (
        Padded(x, torch.ones(1, 1, dtype=torch.int64), torch.ones(1, 1) > 0),
        {"turn": torch.tensor([1])},
    )
    messages = rule.messages(Wide(), parts, data, np.array([5]), state, Rng(1))
    wire = mechanism.wire(128)
    total = wire.add(wire.zero(), messages.long(), torch.ones(1))
    mean = mechanism.estimate(total, 1.0, state, Rng(1))[0]
    expected = torch.zeros(128, dtype=torch.float64)
    expected[:30] = 2 * 0.9 * 0.05
    torch.testing.assert_close(mean, expected, rtol=0, atol=1e-4)
