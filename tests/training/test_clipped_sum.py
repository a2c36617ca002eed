"""The sum over the records of a DP-SGD step: exact on the grid, and one clip a record whatever its loss is."""

import numpy as np
import pytest
import torch

from fedsynth.rng import Rng
from fedsynth.training.rule import DPSGD, LocalStep


def stepped(loss, rows, kind=torch.float32):
    """The gradient and the loss of a step without noise over so many equal records."""
    rule = DPSGD(1.0, 0.0, rate=1.0, steps=1, expected_batch=1.0)
    batch = {
        "x": torch.zeros(1, rows, 1),
        "y": torch.zeros(1, rows, dtype=torch.int64),
        "weight": torch.ones(1, rows),
    }
    step = LocalStep(
        {"all": torch.zeros(1, 1)}, {}, batch, torch.zeros(1, rows, 1, dtype=kind), np.arange(1), Rng(1)
    )
    gradients, losses = rule.gradient(loss, step)
    return gradients["all"], losses


def steep(slope, height=0.0):
    return lambda trained, fixed, batch, noise: (trained["all"] * slope).sum() + height


@pytest.mark.parametrize("at_once", [2**22, 1])
def test_records_add_up_without_rounding_in_pieces_or_at_once(at_once, monkeypatch):
    monkeypatch.setattr("fedsynth.training.rule._AT_ONCE", at_once)
    slope = 0.5 + 2.0**-20  # on the grid of the clip, and more digits than float32 has for the sum
    gradient, _ = stepped(steep(slope), 300, torch.float64)
    assert gradient.tolist() == [[300 * slope]]


def test_a_loss_beyond_all_bounds_is_cut_and_its_record_still_counts():
    gradient, losses = stepped(steep(0.5, float("inf")), 1)
    assert gradient.tolist() == [[0.5]] and float(losses) == pytest.approx(100.0, rel=1e-4)


def test_gradients_and_losses_have_the_precision_of_the_step():
    gradient, losses = stepped(steep(0.5, 1.0), 2)
    assert gradient.dtype == losses.dtype == torch.float32


def test_each_record_is_a_batch_of_one_with_weight_one():
    kinds = []

    def weighed(trained, fixed, batch, noise):
        kinds.append((batch["weight"].dtype, tuple(batch["weight"].shape), tuple(batch["x"].shape)))
        return trained["all"].sum() * batch["weight"].sum()

    gradient, _ = stepped(weighed, 3)
    assert set(kinds) == {(torch.float32, (1,), (1, 1))} and gradient.tolist()[0][0] == pytest.approx(
        3 * 0.995, rel=1e-3
    )
