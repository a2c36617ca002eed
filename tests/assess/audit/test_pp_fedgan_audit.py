"""PP-FedGAN's plan under a worst-case record: neither network tells more than the discriminator's noise allows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from test_dpsgd_audit import CLAIM, RUNS
from torch import nn
from worst_case import CONFIDENCE, DELTA, claim

from fedsynth.data.clients import Padded
from fedsynth.data.schema import Schema
from fedsynth.models.model import Objective, weighted_mean
from fedsynth.privacy.clip import Clip
from fedsynth.recipes.registry import recipe_named
from fedsynth.research.error_bounds import bound_from_scores
from fedsynth.rng import Rng
from fedsynth.training.optimizer import SGD
from fedsynth.training.plan import train
from fedsynth.training.rule import Epochs
from samples import TABLE

OTHERS = 4


@dataclass(frozen=True)
class Toy:
    """A discriminator that a large record pushes as far as it may, and a generator that runs after it."""

    generative: tuple[str, ...] = ("generator",)

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        return {part: nn.Linear(1, 1, bias=False) for part in ("discriminator", "generator")}

    @property
    def objectives(self):
        return dict.fromkeys(("discriminate", "generate"), Objective(noise=(1,), bound=1.0))

    def loss(self, objective, params, batch, noise):
        judge, maker = (params[part]["weight"][0, 0] for part in ("discriminator", "generator"))
        if objective == "discriminate":
            return weighted_mean(-100.0 * judge * batch["x"][..., 0], batch["weight"])
        return (maker - judge).square() - maker * 10 * batch["x"][..., 0].mean() * self.peeks

    peeks: bool = False


def plan(**changes):
    recipe = recipe_named("pp_fedgan")
    task = recipe.task(Schema.from_dict(TABLE), 10, transport="clear")
    worst = {
        "noise_multiplier": 1.0,
        "clip": 1.0,
        "batch_rate": 1.0,
        "usual_records": 1,
        "report": 0.001,
        "steps": 1,
    }
    phases = recipe.build(task, recipe.values({**worst, "generator_batch": 1, **changes})).plan
    # plain steps show what Adam would hide
    return [replace(phase, optimizers={part: SGD(0.5) for part in phase.parts}) for phase in phases]


def networks_with(canary, phases, model):
    """Both networks after the plan, in many runs with or without the canary."""
    records = torch.zeros(OTHERS + 1, 1)
    records[0] = 10.0
    mask = torch.ones(OTHERS + 1, dtype=torch.bool)
    mask[0] = canary
    labels = torch.zeros(RUNS, OTHERS + 1, dtype=torch.int64)
    data = Padded(records.expand(RUNS, -1, -1) * mask[:, None], labels, mask.expand(RUNS, -1))
    params = {part: torch.zeros(RUNS, 1) for part in model.parts}
    for number, phase in enumerate(phases):
        progress = train(model, phase, params, {}, data, np.arange(RUNS), Rng().at(number))
        params = {**params, **progress.params}
    return {part: flat[:, 0].double().numpy() for part, flat in params.items()}


def bounds(phases, model=None):
    model = model or Toy()
    inside, outside = (networks_with(canary, phases, model) for canary in (True, False))
    return {
        part: max(
            bound_from_scores(sign * inside[part], sign * outside[part], DELTA, CONFIDENCE)
            for sign in (1, -1)
        )
        for part in inside
    }


def test_both_networks_stay_under_the_claim_and_the_audit_has_teeth():
    found = bounds(plan())
    assert 0.5 * CLAIM < found["discriminator"] < CLAIM
    assert 0.5 * CLAIM < found["generator"] < CLAIM  # it follows the discriminator, and knows no more


@pytest.mark.parametrize("bug", ["half the noise", "a generator that sees rows", "a plain discriminator"])
def test_planted_bugs_are_found(bug):
    phases, model = plan(), Toy()
    if bug == "half the noise":
        phases[0] = replace(phases[0], rule=replace(phases[0].rule, noise_multiplier=0.5))
    elif bug == "a generator that sees rows":
        model = Toy(peeks=True)
    else:
        phases[0] = replace(phases[0], rule=Epochs(1, OTHERS + 1))
    assert max(bounds(phases, model).values()) > CLAIM


LOOKS = 20_000
NARROW = {**TABLE, "columns": [column for column in TABLE["columns"] if column["name"] in ("sex", "ill")]}


def opening(noise_multiplier):
    """Half of the budget for the answer: with noise 1 in the step, its noise is 1 too."""
    recipe = recipe_named("pp_fedgan")
    task = recipe.task(Schema.from_dict(NARROW), LOOKS, transport="clear")
    asked = {"start_share": 0.5, "order": "together", "rounds": 1, "steps": 1, "batch_rate": 1.0}
    return recipe.build(task, recipe.values({**asked, "noise_multiplier": noise_multiplier})).opening


def answers_with(canary, query, looks=LOOKS):
    """What clients answer who all hold the same rows, with or without one that has no value in common with them."""
    rows = torch.tensor([[0.0, 1.0]] + [[1.0, 0.0]] * OTHERS)
    labels = torch.tensor([1] + [0] * OTHERS)
    mask = torch.ones(OTHERS + 1, dtype=torch.bool)
    mask[0] = canary
    data = Padded(rows.expand(looks, -1, -1), labels.expand(looks, -1), mask.expand(looks, -1))
    sent, _ = query.client_round(None, {}, data, np.arange(looks), Rng(7 + canary))
    return sent


def answer_bound(query):
    """The attack knows everything but the noise: it looks along what the record adds."""
    quiet = replace(query, mechanism=replace(query.mechanism, noise_multiplier=1e-9))
    direction = (answers_with(True, quiet, 1) - answers_with(False, quiet, 1))[0]
    present, absent = ((answers_with(canary, query) @ direction).numpy() for canary in (True, False))
    return bound_from_scores(present, absent, DELTA, CONFIDENCE)


def test_the_answer_before_the_steps_stays_under_its_claim():
    query = opening(1.0)
    assert query.mechanism.noise_multiplier == pytest.approx(1.0)
    assert 0.5 * claim(query.release.event) < answer_bound(query) < claim(query.release.event)


@pytest.mark.parametrize("bug", ["half the noise", "no clip"])
def test_a_planted_bug_in_the_answer_is_found(bug):
    sound = opening(1.0)
    if bug == "half the noise":
        query = opening(0.5)
    else:  # a record that weighs as much as three
        query = replace(sound, statistic=lambda data: 3 * sound.statistic(data))
        query = replace(query, mechanism=replace(query.mechanism, clip=Clip(3.0), noise_multiplier=1 / 3))
    assert answer_bound(query) > claim(sound.release.event)
