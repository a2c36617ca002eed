"""One noisy answer: who adds its noise, how much of it is in the sum, and what it leaves to training."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from fedsynth.data.schema import Schema
from fedsynth.recipes.answer import answer_noise, noised_once
from fedsynth.recipes.task import Task
from fedsynth.rng import Rng
from samples import TABLE

SCHEMA = Schema.from_dict(TABLE)
CLIENTS = 25


@pytest.mark.parametrize("unit", ["client", "record"])
@pytest.mark.parametrize("trust", ["central", "local"])
def test_the_sum_has_the_stated_noise(unit, trust):
    mechanism, stated = noised_once(Task(SCHEMA, CLIENTS, unit=unit, trust=trust), 2.0)
    ids, zeros = np.arange(CLIENTS), torch.zeros(CLIENTS, 4000)
    sent = mechanism.privatize(zeros, {}, Rng(1), ids)
    if hasattr(mechanism, "seal"):  # records are summed at the client before it adds its noise
        sent = mechanism.seal(sent, Rng(1), ids)
    total, _ = mechanism.estimate(sent.double().sum(0), 1.0, {}, Rng(2))
    assert stated == (10.0 if trust == "local" else 2.0)
    assert float(total.double().std()) == pytest.approx(stated, rel=0.05)
    assert mechanism.release.trust == trust


def test_without_privacy_there_is_no_noise():
    mechanism, stated = noised_once(Task(SCHEMA, CLIENTS, private=False), 2.0)
    assert mechanism.release is None and stated == 0.0


@given(
    share=some.floats(0.01, 0.99),
    noise=some.floats(5.0, 50.0),
    rate=some.floats(0.01, 1.0),
    releases=some.integers(1, 1000),
)
def test_answer_and_training_divide_the_budget_as_asked(share, noise, rate, releases):
    answer = answer_noise(share, noise, rate, releases)
    worth, training = answer**-2, releases * rate**2 / noise**2
    taken = worth / (worth + training)
    assert taken == pytest.approx(share) or (answer == 0.3 and taken < share)
