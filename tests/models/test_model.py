import pytest
import torch
from torch import nn

from fedsynth.models.model import Layout, initialise, weighted_mean
from fedsynth.rng import Rng


def test_split_and_join_are_inverse():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    layout = Layout.of(module)
    flat = torch.randn(layout.size)
    named = layout.split(flat)
    assert {name: tuple(value.shape) for name, value in named.items()} == {
        name: tuple(value.shape) for name, value in module.named_parameters()
    }
    assert torch.equal(layout.join(named), flat)


def test_split_keeps_leading_axes():
    layout = Layout.of(nn.Linear(3, 4))
    assert layout.split(torch.zeros(5, 2, layout.size))["weight"].shape == (5, 2, 4, 3)


def test_a_module_with_buffers_is_not_shared():
    with pytest.raises(AssertionError, match="buffers"):
        Layout.of(nn.BatchNorm1d(3))


def test_a_layer_that_mixes_records_is_not_shared():
    inside = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, track_running_stats=False))
    with pytest.raises(AssertionError, match="batch statistics in \\['1'\\]"):
        Layout.of(inside)
    assert Layout.of(nn.GroupNorm(1, 3)).size == 6


def test_initial_parameters_follow_from_the_stream_and_leave_the_global_one_alone(build):
    model = build("fvae").model
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, second, other = initialise(model, Rng(1)), initialise(model, Rng(1)), initialise(model, Rng(2))
    assert torch.equal(torch.rand(3), expected)
    for part in ("encoder", "decoder"):
        assert torch.equal(first[part], second[part]) and not torch.equal(first[part], other[part])


def test_rows_of_weight_zero_do_not_count():
    values = torch.tensor([1.0, 5.0, 99.0])
    assert weighted_mean(values, torch.tensor([1.0, 1.0, 0.0])) == 3
    assert weighted_mean(values, torch.zeros(3)) == 0
