"""One run, many canaries: Steinke, Nasr and Jagielski (2023) against the noisy sum of a cohort."""

from dataclasses import replace

import numpy as np
import torch
from worst_case import claim

from fedsynth.assess.attacks.audit_bound import bound_from_one_run
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.rng import Rng

CANARIES, GUESSES = 400_000, 4_000
DELTA, CONFIDENCE = 1e-6, 0.99
MECHANISM = CentralGaussian(Clip(1.0), noise_multiplier=2.0)


def one_run(mechanism, height=1.0):
    """Each canary is a client with a coordinate of its own, in or out by a coin; the most certain guesses count."""
    coins = Rng().numpy().integers(0, 2, CANARIES).astype(bool)
    sent = mechanism.privatize(torch.ones(1, 1) * 5, {}, Rng(), np.zeros(1, dtype=np.int64))[0, 0] * height
    total = torch.from_numpy(coins).double() * float(sent)
    scores = mechanism.estimate(total, 1.0, {}, Rng())[0].numpy()
    ranked = np.argsort(scores)
    certain = GUESSES // 2
    correct = int(coins[ranked[-certain:]].sum() + (~coins[ranked[:certain]]).sum())
    return bound_from_one_run(correct, GUESSES, CANARIES, DELTA, CONFIDENCE)


def test_one_run_proves_something_and_no_more_than_the_claim():
    assert 1.0 < one_run(MECHANISM) < claim(MECHANISM.release.event, DELTA)


def test_one_run_finds_halved_noise():
    halved = replace(MECHANISM, noise_multiplier=1.0)
    assert one_run(halved) > claim(MECHANISM.release.event, DELTA)


def test_one_run_finds_a_client_counted_twice():
    assert one_run(MECHANISM, height=2.0) > claim(MECHANISM.release.event, DELTA)


def test_one_run_finds_a_missing_clip():
    assert one_run(MECHANISM, height=5.0) > claim(MECHANISM.release.event, DELTA)
