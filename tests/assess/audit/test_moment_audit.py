"""moment_vae for records under a worst-case record: its answer and its training hold what they claim, each alone.

Every run is a client of its own with the same few images, with or without one that is as unlike them as can be. The
attack knows everything but the noise: it looks along the direction in which the image moves the message on average.
"""

import math

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

RUNS, OTHERS = 20_000, 3
CLAIM = claim(GaussianDpEvent(1.0))
ONE_ROUND = {  # half of the budget for each: noise 1 in the answer and in the round
    "rounds": 1,
    "start_share": 0.5,
    "batch_rate": 1.0,
    "usual_records": 1,
    "frequencies": 6,
    "latent": 2,
    "width": 1,
    "learning_rate": 1.0,
    "report": 0.001,
    "clip": 0.01,
}


def algorithm(noise_multiplier: float):
    recipe = recipe_named("moment_vae")
    task = recipe.task(
        Schema.from_dict(IMAGE), RUNS, private=True, unit="record", trust="local", transport=None
    )
    return recipe.build(task, recipe.values({**ONE_ROUND, "noise_multiplier": noise_multiplier}))


def clients(canary: bool) -> Padded:
    images = torch.zeros(OTHERS + 1, 1, 8, 8)
    images[-1, :, :4] = 1.0
    mask = torch.ones(OTHERS + 1, dtype=torch.bool)
    mask[-1] = canary
    labels = torch.zeros(RUNS, OTHERS + 1, dtype=torch.int64)
    return Padded(images.expand(RUNS, -1, -1, -1, -1), labels, mask.expand(RUNS, -1))


def messages(built, job, canary: bool) -> np.ndarray:
    state = built.init(Rng(1))
    sent, _ = job.client_round(state, {}, clients(canary), np.arange(RUNS), Rng())
    return sent.double().numpy()


def bound(built, job) -> float:
    present, absent = messages(built, job, True), messages(built, job, False)
    seen = RUNS // 4  # the direction is learned from other runs than those that are judged
    direction = present[:seen].mean(0) - absent[:seen].mean(0)
    return bound_from_scores(present[seen:] @ direction, absent[seen:] @ direction, DELTA, CONFIDENCE)


def the_answer(built):
    return built.opening


def the_training(built):
    return built


@pytest.mark.parametrize("job", [the_answer, the_training])
def test_the_claim_holds_and_the_audit_has_teeth(job):
    built = algorithm(1.0)
    found = bound(built, job(built))
    assert 0.4 * CLAIM < found < CLAIM


@pytest.mark.parametrize("job", [the_answer, the_training])
def test_half_the_noise_is_found(job):
    built = algorithm(0.5)
    assert bound(built, job(built)) > CLAIM


def test_both_together_cost_what_the_budget_composes():
    built = algorithm(1.0)
    events = [built.opening.release.event, *(charge.event for charge in built.charges())]
    assert claim(ComposedDpEvent(events)) == pytest.approx(claim(GaussianDpEvent(1 / math.sqrt(2))), rel=1e-3)
