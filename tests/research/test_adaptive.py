import math

import numpy as np
import pytest
import torch

from fedsynth.errors import BadInput
from fedsynth.privacy.clip import Clip
from fedsynth.research.adaptive import AdaptiveGaussian
from fedsynth.rng import Rng
from noise_scale import fits


def at_clip(bound):
    return {"clip": torch.tensor(bound, dtype=torch.float64)}


def test_update_and_bit_together_have_the_stated_noise_multiplier():
    for share in (0.001, 0.01, 0.5, 0.9):
        m = AdaptiveGaussian(Clip(3.0), noise_multiplier=1.7, bit_share=share)
        both = 1 / m.update_multiplier**2 + (0.5 / m.bit_scale) ** 2
        assert both == pytest.approx(1 / 1.7**2, rel=1e-12)
        assert m.release.event.noise_multiplier == 1.7


@pytest.mark.parametrize("rng", [Rng(), Rng(1)])
def test_noise_on_the_update_follows_the_current_clip(rng):
    mechanism = AdaptiveGaussian(Clip(1.0), noise_multiplier=2.0, bit_share=0.19)
    mean, _ = mechanism.estimate(torch.zeros(60_001, dtype=torch.float64), 1.0, at_clip(0.25), rng)
    scale = 2.0 / 0.9 * 0.25
    assert fits(mean, scale) and not fits(mean, 0.95 * scale) and not fits(mean, 1.05 * scale)


def test_noise_on_the_bits_has_the_stated_scale():
    mechanism = AdaptiveGaussian(Clip(1.0), noise_multiplier=2.0, learning_rate=1.0, bit_share=0.25)
    total, drawn = torch.zeros(2, dtype=torch.float64), []
    for _ in range(6000):
        _, after = mechanism.estimate(total, 100.0, mechanism.init(), Rng())
        drawn.append(-math.log(float(after["clip"])) * 100.0)
    assert fits(drawn, 2.0)
    assert not fits(drawn, 0.9 * 2.0) and not fits(drawn, 1.1 * 2.0)


@pytest.mark.parametrize("seed", range(15))
def test_one_client_moves_update_and_bit_by_at_most_their_bounds(seed):
    mechanism = AdaptiveGaussian(Clip(0.1), noise_multiplier=1.0)
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (seed % 5 - 2)
    x[0, 0], x[1] = float("inf"), 0.0
    sent = mechanism.privatize(x, at_clip(0.3), Rng(seed), np.arange(6)).double()
    assert (sent[:, -1].abs() == 0.5).all()
    assert float(torch.linalg.vector_norm(sent[:, :-1], dim=1).max()) <= 0.3


def test_the_bit_says_whether_the_norm_was_within_the_clip():
    x = torch.tensor([[0.3, 0.4], [0.6, 0.8], [float("nan"), 0.0]])
    sent = AdaptiveGaussian(Clip(1.0), 1.0).privatize(x, at_clip(0.7), Rng(1), np.arange(3))
    assert sent[:, -1].tolist() == [0.5, -0.5, -0.5]


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.8])
def test_the_clip_finds_the_quantile(quantile):
    mechanism = AdaptiveGaussian(Clip(50.0), noise_multiplier=1.0, quantile=quantile)
    norms = torch.rand(500, 1, generator=torch.Generator().manual_seed(1))
    wire, state = mechanism.wire(1), mechanism.init()
    for version in range(150):
        rng = Rng(9).at(version)
        sent = mechanism.privatize(norms, state, rng, np.arange(500))
        _, state = mechanism.estimate(wire.add(wire.zero(), sent, torch.ones(500)), 500.0, state, rng)
    assert float(state["clip"]) == pytest.approx(quantile, abs=0.08)


def test_the_clip_stays_where_a_clip_is_allowed():
    mechanism = AdaptiveGaussian(Clip(2.0**-39), noise_multiplier=1e6, learning_rate=10.0)
    state = mechanism.init()
    for version in range(60):
        _, state = mechanism.estimate(torch.zeros(3, dtype=torch.float64), 1.0, state, Rng(version))
        assert 2.0**-40 <= float(state["clip"]) <= 2.0**40


@pytest.mark.parametrize(
    "wrong", [{"quantile": 1.2}, {"bit_share": 0.0}, {"bit_share": 1.0}, {"learning_rate": 0.0}]
)
def test_values_that_mean_nothing_are_refused_by_name(wrong):
    with pytest.raises(BadInput, match=next(iter(wrong))):
        AdaptiveGaussian(Clip(1.0), 1.0, **wrong)
