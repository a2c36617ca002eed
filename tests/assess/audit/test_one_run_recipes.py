"""One training with many canaries, through the code that a release runs: halved noise is seen at epsilon 8 and at 1."""

from dataclasses import replace

import numpy as np
import pytest

from fedsynth.assess.audit.audit import audit
from fedsynth.assess.audit.audit_setup import EXAMPLES, Setup
from fedsynth.assess.audit.canary import Directions
from fedsynth.privacy.distributed import DistributedGaussian
from fedsynth.recipes.budget import Target
from fedsynth.recipes.registry import RECIPES
from fedsynth.rng import Rng

ALL_OFFERS = [(recipe, *offer) for recipe in RECIPES.values() if recipe.promises for offer in recipe.offers]
# the first offer of every recipe, and each other kind of offer once: recipes share the mechanisms behind them
OFFERS = [
    (recipe, unit, trust)
    for recipe, unit, trust in ALL_OFFERS
    if (unit, trust) == recipe.offers[0] or recipe.name in ("dpd_fvae", "moment_vae", "site_vae", "marginals")
]
UNSAMPLED = {"noise_multiplier": 0.8, "rounds": 2, "rate": 1.0, "batch_rate": 1.0, "batch_size": 10_000}


def quieter(algorithm):
    """The algorithm with half of its noise, wherever it is added."""

    def half(noisy):
        return replace(noisy, noise_multiplier=noisy.noise_multiplier / 2)

    if algorithm.mechanism.release is None:
        plan = [
            replace(phase, rule=half(phase.rule)) if phase.rule.release is not None else phase
            for phase in algorithm.plan
        ]
        return replace(algorithm, plan=tuple(plan))
    sums = algorithm.record_sums and replace(
        algorithm.record_sums, mechanism=half(algorithm.record_sums.mechanism)
    )
    return replace(algorithm, mechanism=half(algorithm.mechanism), record_sums=sums)


@pytest.mark.parametrize(("recipe", "unit", "trust"), OFFERS, ids=lambda value: getattr(value, "name", value))
def test_every_promise_of_every_recipe_is_audited_in_one_run(recipe, unit, trust):
    known = recipe.arguments()
    given = {**UNSAMPLED, "epsilon": 4.0, "records": 10_000, "steps": 1, "pretraining": 1}
    if recipe.name == "dp_fed_wae":
        del given["rounds"]
    values = recipe.values({name: value for name, value in given.items() if name in known})
    setup = Setup(recipe, EXAMPLES[recipe.kinds[0]], values, 1e-5, 1 if recipe.pooled else 40, unit, trust)
    found = audit(setup.algorithm(200), setup.schema, 1e-5, canaries=200, rng=Rng(1))
    assert (found.unit, found.trust, found.exceeds) == (unit, trust, False)
    seen = found.one_run.detail
    assert found.claimed > 1 and seen["correct"] > 0.55 * seen["guesses"]  # the attack sees the canaries
    assert found.to_dict()["one_run"]["canaries"] == 200


SERVER = ("dpd_fvae", None, "central", {"rate": 0.5}, 3)
CLIENT = ("dpd_fvae", None, "local", {"rate": 1.0}, 2)
RECORDS = ("central_vae", None, None, {"batch_size": 5000}, 2)
SITES = ("site_vae", "record", None, {"batch_size": 5000}, 3)
GAMES = {
    "noise at the server, 8": (SERVER, 8.0),
    "noise at the server, 1": (SERVER, 1.0),
    "noise at each client, 8": (CLIENT, 8.0),
    "noise at each client, 1": (CLIENT, 1.0),
    "noisy gradients of records, 1": (RECORDS, 1.0),
    "masked sums over sites, 1": (SITES, 1.0),
    "counts of clients at the server, 1": (("marginals", None, None, {}, 3), 1.0),
    "masked counts of records over sites, 1": (("marginals", "record", None, {}, 3), 1.0),
}


@pytest.mark.parametrize(("game", "epsilon"), GAMES.values(), ids=GAMES.keys())
def test_one_run_sees_halved_noise_and_accuses_no_true_claim(game, epsilon):
    name, unit, trust, settings, rounds = game
    setup = Setup.of_recipe(name, Target(epsilon, 1e-5, rounds=rounds), settings, unit=unit, trust=trust)
    sound = setup.algorithm(5000)
    asked = {"canaries": 5000, "rng": Rng(2), "claimed": sound}
    true, bug = (audit(which, setup.schema, 1e-5, **asked) for which in (sound, quieter(sound)))
    assert 0.15 * true.claimed < true.one_run.epsilon_lower < true.claimed
    assert 0.3 * true.claimed < true.white_box.epsilon_lower < true.claimed
    assert bug.claimed == true.claimed < min(bug.one_run.epsilon_lower, bug.white_box.epsilon_lower)


def test_a_canary_fills_every_block_that_is_clipped_by_itself():
    directions = Directions.of(((300, 0.6), (300, 0.6), (1, 0.5)), 601, 250)
    assert directions == Directions((0, 300), (0.6, 0.6))
    assert (
        Directions.of((), 601, 250)
        == Directions.of(((100, 0.8), (501, 0.6)), 601, 550)
        == Directions((0,), (1.0,))
    )
    vectors = directions.vectors(np.array([3]), 601, 2.0)
    assert vectors.nonzero().tolist() == [[0, 3], [0, 303]]


def test_shared_out_noise_is_audited_with_all_parties_there():
    setup = Setup.of_recipe("fvae", Target(8.0, 1e-5, rounds=2), {"rate": 0.5}, trust="distributed")
    mechanism = setup.algorithm(200).mechanism
    assert (
        isinstance(mechanism, DistributedGaussian) and mechanism.parties.threshold == mechanism.parties.count
    )
