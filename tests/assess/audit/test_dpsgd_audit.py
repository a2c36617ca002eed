"""DP-SGD under a worst-case record: many runs at once, each a client of its own, with the system's noise.

The toy model has an encoder that decides the direction of every record's decoder gradient: the flaw of training it
without noise (as the published local DPD-fVAE does) is that one record can turn all of them round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent
from torch import nn
from worst_case import CONFIDENCE, DELTA, claim

from fedsynth.data.clients import Padded
from fedsynth.models.model import Objective, weighted_mean
from fedsynth.research.error_bounds import bound_from_scores
from fedsynth.rng import Rng
from fedsynth.training.optimizer import SGD
from fedsynth.training.plan import Phase, train
from fedsynth.training.rule import DPSGD, Epochs

NOISE, CLIP, OTHERS, RUNS = 1.0, 1.0, 8, 20_000
CLAIM = claim(GaussianDpEvent(NOISE))


@dataclass(frozen=True)
class Toy:
    """Loss of a record: (code - x)^2 for the encoder, and weight * sign(code) * 100 for the decoder."""

    generative: tuple[str, ...] = ("decoder",)

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        return {"encoder": nn.Linear(1, 1, bias=False), "decoder": nn.Linear(1, 1, bias=False)}

    @property
    def objectives(self):
        return {"elbo": Objective(noise=(1,), bound=1.0)}

    def loss(self, objective, params, batch, noise):
        code, weight = params["encoder"]["weight"][0, 0], params["decoder"]["weight"][0, 0]
        encoder = (code - batch["x"][..., 0]).square()
        decoder = 100.0 * weight * torch.tanh(1000.0 * code)
        return weighted_mean(encoder + decoder, batch["weight"])


def rule(**changes):
    sound = DPSGD(CLIP, NOISE, rate=1.0, steps=1, expected_batch=1.0, loss_bound=1.0, report=0.001)
    return replace(sound, **changes)


def runs_with(canary: bool, phases) -> np.ndarray:
    """The decoder's noisy gradient in many runs on the same records, with or without the canary."""
    records = torch.full((OTHERS + 1, 1), -0.01)
    records[-1] = 10.0
    mask = torch.ones(OTHERS + 1, dtype=torch.bool)
    mask[-1] = canary
    data = Padded(
        records.expand(RUNS, -1, -1), torch.zeros(RUNS, OTHERS + 1, dtype=torch.int64), mask.expand(RUNS, -1)
    )
    params = {"encoder": torch.full((RUNS, 1), -0.01), "decoder": torch.zeros(RUNS, 1)}
    for number, phase in enumerate(phases):
        progress = train(Toy(), phase, params, {}, data, np.arange(RUNS), Rng().at(number))
        params = {**params, **progress.params}
    return params["decoder"][:, 0].double().numpy()


def bound(phases) -> float:
    scores = runs_with(True, phases), runs_with(False, phases)
    either_way = [bound_from_scores(s * scores[0], s * scores[1], DELTA, CONFIDENCE) for s in (1.0, -1.0)]
    return max(either_way)


def decoder_only(dpsgd):
    return [Phase("elbo", {"decoder": SGD(1.0)}, dpsgd)]


def test_dpsgd_stays_under_its_claim_and_the_audit_has_teeth():
    found = bound(decoder_only(rule()))
    assert 0.5 * CLAIM < found < CLAIM


def test_dpsgd_over_encoder_and_decoder_stays_under_its_claim():
    both = [Phase("elbo", {"encoder": SGD(1.0), "decoder": SGD(1.0)}, rule())]
    assert bound(both) < CLAIM


@pytest.mark.parametrize("bug", [{"noise_multiplier": NOISE / 2}, {"expected_batch": 1.0, "clip": 2 * CLIP}])
def test_half_the_noise_or_twice_the_sum_is_found(bug):
    broken = rule(**bug)
    if "clip" in bug:  # the sum twice as large, the noise that of the claimed clip
        broken = replace(broken, noise_multiplier=NOISE / 2)
    assert bound(decoder_only(broken)) > CLAIM


def test_an_encoder_trained_without_noise_breaks_the_guarantee():
    published = [Phase("elbo", {"encoder": SGD(0.1)}, Epochs(1, OTHERS + 1)), *decoder_only(rule())]
    assert bound(published) > CLAIM
