import numpy as np
import pytest
import torch

from fedsynth.data.clients import Padded
from fedsynth.rng import Rng, expand_normal, subkeys
from fedsynth.training.optimizer import SGD, Adam
from fedsynth.training.plan import Phase, draw_noise, train
from fedsynth.training.rule import DPSGD, Epochs, Rows


@pytest.fixture
def setting(build, ten):
    model = build("fvae", private=False).model
    draw = torch.Generator().manual_seed(0)
    parts = {
        name: torch.randn(sum(p.numel() for p in module.parameters()), generator=draw)
        for name, module in model.parts.items()
    }
    return model, parts, ten["table"]


def rounds(setting, rule, ids, optimizer=None):
    model, parts, clients = setting
    optimizer = optimizer or Adam(0.01, stability=1e-3)  # smaller would make steps of rounding errors
    phase = Phase("elbo", dict.fromkeys(parts, optimizer), rule)
    stacked = {name: flat.expand(len(ids), -1) for name, flat in parts.items()}
    return train(model, phase, stacked, {}, clients.gather(ids), np.array(ids), Rng(1))


RULES = [Epochs(2, 3), DPSGD(1.0, 1.0, rate=0.5, steps=3, expected_batch=2.0)]


@pytest.mark.parametrize("rule", RULES, ids=["epochs", "dpsgd"])
def test_a_client_learns_the_same_alone_as_in_a_padded_chunk(setting, rule):
    ids = list(range(10))
    together = rounds(setting, rule, ids)
    for client in ids:
        alone = rounds(setting, rule, [client])
        for part in together.params:
            torch.testing.assert_close(
                together.params[part][client], alone.params[part][0], rtol=1e-4, atol=2e-6
            )
            steps = together.slots[part]["steps"][client], alone.slots[part]["steps"][0]
            assert torch.equal(*steps)
        torch.testing.assert_close(together.loss[client], alone.loss[0], rtol=1e-4, atol=1e-4)


def test_a_client_without_rows_keeps_its_parameters_and_its_optimizer_state(setting):
    done = rounds(setting, Epochs(2, 3), [0, 8])
    for part, start in setting[1].items():
        assert torch.equal(done.params[part][0], start)
        assert not torch.equal(done.params[part][1], start)
        assert done.slots[part]["steps"].flatten().tolist() == [0, 6]
    assert done.loss[0] == 0 and done.steps.tolist() == [0, 6]


def test_only_the_parts_of_the_phase_are_trained(setting):
    model, parts, clients = setting
    phase = Phase("elbo", {"decoder": SGD(0.1)}, Epochs(1, 4))
    params = {"decoder": parts["decoder"].expand(2, -1), "encoder": parts["encoder"]}
    done = train(model, phase, params, {}, clients.gather([3, 4]), np.array([3, 4]), Rng(1))
    assert set(done.params) == {"decoder"}


def test_plain_training_is_gradient_descent_on_the_clients_mean_loss(setting):
    model, parts, clients = setting
    done = rounds(setting, Epochs(1, 100), [8], SGD(0.05))
    data = clients.gather([8])
    stream = Rng(1)
    order = next(Epochs(1, 100).batches(data.mask, np.array([8]), stream)).index[0]
    noise = expand_normal(subkeys(stream.at("train").keys(np.array([8])), 0), (9, 2))[0]
    leaves = {name: flat.clone().requires_grad_() for name, flat in parts.items()}
    named = {name: _named(model, name, flat) for name, flat in leaves.items()}
    batch = {"x": data.x[0][order], "y": data.y[0][order], "weight": torch.ones(9)}
    model.loss("elbo", named, batch, noise).backward()
    for name, flat in leaves.items():
        torch.testing.assert_close(done.params[name][0], parts[name] - 0.05 * flat.grad, rtol=1e-4, atol=1e-6)


def _named(model, part, flat):
    named = list(model.parts[part].named_parameters())
    pieces = flat.split([value.numel() for _, value in named])
    return {name: piece.reshape(value.shape) for (name, value), piece in zip(named, pieces, strict=True)}


def test_noise_drawn_for_many_steps_at_once_is_that_of_each_step(monkeypatch):
    keys = Rng(2).keys(np.arange(3))
    widths = (4, 4, 4, 2, 4)
    empty = [torch.zeros(3, width, dtype=torch.int64) for width in widths]
    rows = [Rows(index, index.bool(), step) for step, index in enumerate(empty)]
    drawn = list(draw_noise(keys, rows, (2,)))
    for step, noise in enumerate(drawn):
        assert torch.equal(noise, expand_normal(subkeys(keys, step), (widths[step], 2)))
    monkeypatch.setattr("fedsynth.training.plan._NOISE_AT_ONCE", 1)
    assert all(torch.equal(a, b) for a, b in zip(drawn, draw_noise(keys, rows, (2,)), strict=True))


def test_one_clients_values_never_reach_another(setting):
    model, parts, clients = setting
    data = clients.gather([4, 8])
    x = data.x.clone()
    x[0] = float("nan")
    phase = Phase("elbo", dict.fromkeys(parts, Adam(0.01)), Epochs(1, 4))
    stacked = {name: flat.expand(2, -1) for name, flat in parts.items()}
    clean = train(model, phase, stacked, {}, data, np.array([4, 8]), Rng(1))
    poisoned = train(model, phase, stacked, {}, Padded(x, data.y, data.mask), np.array([4, 8]), Rng(1))
    for part in parts:
        assert not torch.isfinite(poisoned.params[part][0]).all()
        assert torch.equal(poisoned.params[part][1], clean.params[part][1])
