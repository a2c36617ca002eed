"""The language recipe under canary clients: the claim holds, and planted bugs are found."""

from dataclasses import replace
from functools import cache

import pytest

from fedsynth.assess.audit.audit import audit
from fedsynth.assess.audit.audit_setup import EXAMPLE_TEXT, Setup
from fedsynth.privacy.clip import Clip
from fedsynth.recipes.budget import Target
from fedsynth.rng import Rng

SETUPS = {"poisson": (4.0, 5, {"rate": 0.5}), "fixed": (8.0, 2, {"cohort": 500})}
GAME = {"canaries": 500, "runs": 3, "rng": Rng(1)}


@cache  # and not when the file is read: calibrating takes seconds, and every worker reads every file
def setup_of(sampling):
    epsilon, rounds, settings = SETUPS[sampling]
    return Setup.of_recipe(
        "dp_fedavg_lm", Target(epsilon, 1e-5, rounds=rounds), {**settings, "most_batches": 1}
    )


class NoClip(Clip):
    def apply(self, x):
        return x


def halved(algorithm):
    mechanism = algorithm.mechanism
    return replace(algorithm, mechanism=replace(mechanism, noise_multiplier=mechanism.noise_multiplier / 2))


def unclipped(algorithm):
    clip = NoClip(algorithm.mechanism.clip.bound)
    return replace(algorithm, mechanism=replace(algorithm.mechanism, clip=clip))


@pytest.mark.parametrize("sampling", SETUPS)
def test_the_language_recipe_keeps_its_claim(sampling):
    found = audit(setup_of(sampling).algorithm(500), EXAMPLE_TEXT, 1e-5, **GAME)
    assert 0.1 * found.claimed < found.epsilon_lower < found.claimed and not found.exceeds


@pytest.mark.parametrize("bug", [halved, unclipped])
def test_a_bug_planted_in_the_language_recipe_is_found(bug):
    sound = setup_of("poisson").algorithm(500)
    assert audit(bug(sound), EXAMPLE_TEXT, 1e-5, claimed=sound, **GAME).exceeds
