"""dp_fedavg_gan under a worst-case client: its opening answer and its rounds hold what they claim, each alone.

The client has images as unlike the others' as can be. The attack knows everything but the noise: all other clients, the
generator and the critic that the round starts from, and the direction in which the client moves the sum.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from dp_accounting import ComposedDpEvent, GaussianDpEvent
from worst_case import CONFIDENCE, DELTA, claim

from fedsynth.data.clients import Padded
from fedsynth.data.schema import Schema
from fedsynth.recipes.registry import recipe_named
from fedsynth.research.error_bounds import bound_from_scores
from fedsynth.rng import Rng
from samples import IMAGE

RUNS, CLIENTS = 20_000, 6
CLAIM = claim(GaussianDpEvent(1.0))
ONE_ROUND = {  # half of the budget for each: noise 1 in the answer and in the round
    "rounds": 1,
    "rate": 1.0,
    "start_share": 0.5,
    "frequencies": 4,
    "directions": 2,
    "width": 1,
    "painter": 4,
    "learning_rate": 1000.0,  # so that the worst client reaches the clip
    "optimizer": "sgd",
    "report": 0.001,
    "noise_multiplier": 1.0,
    "generator_steps": 2,
    "generator_batch": 4,
}


def algorithm(**changes):
    recipe = recipe_named("dp_fedavg_gan")
    task = recipe.task(Schema.from_dict(IMAGE), CLIENTS)
    return recipe.build(task, recipe.values({**ONE_ROUND, **changes}))


def total(built, job, canary: bool) -> torch.Tensor:
    """The sum of all messages, with or without the last client."""
    images = torch.zeros(CLIENTS, 3, 1, 8, 8)
    images[-1, :, :, :4] = 1.0
    mask = torch.ones(CLIENTS, 3, dtype=torch.bool)
    mask[-1] = canary
    data = Padded(images * mask[..., None, None, None], torch.zeros(CLIENTS, 3, dtype=torch.int64), mask)
    sent, _ = job.client_round(built.init(Rng(1)), {}, data, np.arange(CLIENTS), Rng(2))
    present = sent if canary else sent[:-1]
    return present.double().sum(0)


def bound(built, job, scale: float = 1.0) -> float:
    """What many looks at the noisy sum prove; `scale` lengthens what the worst client adds."""
    mechanism = job.mechanism
    without = total(built, job, False)
    moved = (total(built, job, True) - without) * scale
    direction = moved / moved.norm()
    scores = []
    for shift in (moved, 0 * moved):
        many = (without + shift).expand(RUNS, -1).reshape(-1)
        noisy, _ = mechanism.estimate(many, 1.0, mechanism.init(), Rng())
        scores.append((noisy.double().reshape(RUNS, -1) @ direction).numpy())
    return bound_from_scores(*scores, DELTA, CONFIDENCE)


def the_answer(built):
    return built.opening


def the_round(built):
    return built


def halved(built):
    quiet = replace(built.mechanism, noise_multiplier=0.5)
    answer = replace(built.opening.mechanism, noise_multiplier=0.5)
    return replace(built, mechanism=quiet, opening=replace(built.opening, mechanism=answer))


@pytest.mark.parametrize("job", [the_answer, the_round])
def test_the_claim_holds_and_the_audit_has_teeth(job):
    built = algorithm()
    assert 0.4 * CLAIM < bound(built, job(built)) < CLAIM


@pytest.mark.parametrize("job", [the_answer, the_round])
def test_half_the_noise_is_found(job):
    built = halved(algorithm())
    assert bound(built, job(built)) > CLAIM


@pytest.mark.parametrize("job", [the_answer, the_round])
def test_a_client_that_is_counted_twice_is_found(job):
    built = algorithm()
    assert bound(built, job(built), scale=2.0) > CLAIM


def test_answer_and_round_together_cost_what_the_budget_composes():
    built = algorithm()
    events = [built.opening.release.event, *(charge.event for charge in built.charges())]
    assert claim(ComposedDpEvent(events)) == pytest.approx(claim(GaussianDpEvent(1 / math.sqrt(2))), rel=1e-3)


def test_the_generator_follows_from_the_opened_sum_alone():
    built, state = algorithm(), algorithm().init(Rng(1))
    opened = total(built, built, True)
    first, second = (built.server_round(state, opened, Rng(3))[0] for _ in range(2))
    other = built.server_round(state, total(built, built, False), Rng(3))[0]
    assert torch.equal(first.parts["generator"], second.parts["generator"])
    assert not torch.equal(first.parts["generator"], other.parts["generator"])
