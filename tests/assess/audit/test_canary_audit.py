"""The audit stays under a true claim, and a planted bug is found through the code that a release runs."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent

from fedsynth.assess.audit.audit import audit
from fedsynth.assess.audit.audit_setup import EXAMPLE, Setup
from fedsynth.assess.audit.canary import (
    CanaryGame,
    CanaryObservations,
    log_likelihood,
    made_up,
    watch_clients,
)
from fedsynth.assess.audit.noise_family import NoiseFamily, with_noise
from fedsynth.assess.audit.one_run import one_run
from fedsynth.assess.audit.white_box import white_box
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.privacy import account
from fedsynth.privacy.clip import Clip
from fedsynth.recipes.budget import Target
from fedsynth.rng import Rng
from samples import TABLE

SCHEMA = Schema.from_dict(TABLE)
SETUPS = {
    "dpd_fvae": (4.0, 10, {"rate": 0.5}),
    "fvae": (8.0, 4, {"cohort": 500}),
    "central_vae": (4.0, 2, {"batch_size": 500, "records": 2000}),
    "fvae_record": (4.0, 4, {"steps": 2}),
    "pp_fedgan": (4.0, 4, {"steps": 4, "batch_rate": 0.25, "start_share": 0}),
}
SMALL = {"canaries": 600, "runs": 4, "rng": Rng(1)}


@cache  # and not when the file is read: calibrating takes seconds, and every worker reads every file
def setup_of(name):
    epsilon, rounds, settings = SETUPS[name]
    return Setup.of_recipe(name, Target(epsilon, 1e-5, rounds=rounds), settings)


@cache
def audit_of(name):
    return audit(setup_of(name).algorithm(600), setup_of(name).schema, 1e-5, **SMALL)


def halved(algorithm):
    mechanism = algorithm.mechanism
    return replace(algorithm, mechanism=replace(mechanism, noise_multiplier=mechanism.noise_multiplier / 2))


def halved_for_records(algorithm):
    noisy = [phase for phase in algorithm.plan if phase.rule.release is not None]
    rules = [replace(phase.rule, noise_multiplier=phase.rule.noise_multiplier / 2) for phase in noisy]
    return replace(
        algorithm, plan=tuple(replace(phase, rule=rule) for phase, rule in zip(noisy, rules, strict=True))
    )


class NoClip(Clip):
    def apply(self, x):
        return x


def unclipped(algorithm):
    clip = NoClip(algorithm.mechanism.clip.bound)
    return replace(algorithm, mechanism=replace(algorithm.mechanism, clip=clip))


@pytest.mark.parametrize("name", SETUPS)
def test_a_true_claim_is_not_contradicted_and_the_audit_has_teeth(name):
    found = audit_of(name)
    assert 0.1 * found.claimed < found.epsilon_lower < found.claimed and not found.exceeds
    assert found.unit == setup_of(name).recipe.unit and found.white_box.detail["canaries"] == 2400
    assert found.claimed <= SETUPS[name][0]


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("dpd_fvae", halved),
        ("dpd_fvae", unclipped),
        ("central_vae", halved_for_records),
        ("fvae_record", halved_for_records),
        ("pp_fedgan", halved_for_records),
    ],
    ids=[
        "noise halved",
        "clip missing",
        "pooled records",
        "records at their sites",
        "in turns with a generator",
    ],
)
def test_a_planted_bug_is_found(name, bug):
    sound = setup_of(name).algorithm(600)
    found = audit(bug(sound), setup_of(name).schema, 1e-5, claimed=sound, **SMALL)
    assert found.exceeds and found.audited()["epsilon_lower"] > found.claimed


def test_fixed_cohorts_are_played_by_replacing_one():
    assert audit_of("fvae").adjacency == "replace-one"


def test_the_same_seed_gives_the_same_audit_and_fresh_noise_another():
    algorithm = setup_of("dpd_fvae").algorithm(200)
    settings = {"canaries": 200, "runs": 1}
    first, second = (audit(algorithm, EXAMPLE, 1e-5, **settings, rng=Rng(5)) for _ in range(2))
    assert first == second
    game = CanaryGame(algorithm, 200, algorithm.charges()[0].event, Rng())
    assert watch_clients(game, EXAMPLE).scores.shape == (200,)


def gaussian_seen(noise, count=20_000, seed=0):
    draw = np.random.default_rng(seed)
    inside = draw.random(count) < 0.5
    return CanaryObservations(inside, draw.standard_normal(count) * noise + inside - 0.5)


GAUSSIAN = NoiseFamily(GaussianDpEvent(1.0), 1, "add-remove")


def test_white_box_bounds_prove_most_of_a_gaussian_and_rarely_more():
    true = account.epsilon(GaussianDpEvent(1.0), 1e-5)
    found = [
        white_box(gaussian_seen(1.0, seed=seed), GAUSSIAN, 1e-5, 0.95).epsilon_lower for seed in range(10)
    ]
    assert 0.85 * true < np.median(found) < true
    assert np.mean(np.array(found) > true) <= 0.2


def test_scores_without_meaning_prove_nothing():
    draw = np.random.default_rng(1)
    nothing = CanaryObservations(draw.random(2000) < 0.5, draw.standard_normal(2000))
    assert white_box(nothing, GAUSSIAN, 1e-5, 0.99).epsilon_lower == 0.0
    assert one_run(nothing, GAUSSIAN, 1e-5, 0.99).epsilon_lower == 0.0


def test_perfect_guesses_prove_a_lot():
    inside = np.random.default_rng(1).random(2000) < 0.5
    perfect = CanaryObservations(inside, inside.astype(float) + np.arange(2000) * 1e-6)
    assert white_box(perfect, GAUSSIAN, 1e-5, 0.99).epsilon_lower > 10
    assert one_run(perfect, GAUSSIAN, 1e-5, 0.99).epsilon_lower > 3


def test_the_attack_is_the_likelihood_ratio():
    x, event = np.array([-0.3, 0.2, 1.4]), PoissonSampledDpEvent(0.3, GaussianDpEvent(0.8))

    def density(value, mean):
        return np.exp(-((value - mean) ** 2) / (2 * 0.8**2))

    def with_canary(sign):
        return 0.7 * density(x, 0) + 0.3 * density(x, sign)

    np.testing.assert_allclose(log_likelihood(x, event, False), np.log(with_canary(1) / density(x, 0)))
    np.testing.assert_allclose(log_likelihood(x, event, True), np.log(with_canary(1) / with_canary(-1)))


@pytest.mark.parametrize("schema", [SCHEMA, EXAMPLE])
def test_made_up_rows_fit_the_schema(schema):
    from fedsynth.data.table import Table

    held = made_up(schema, 5, 3, Rng(1))
    assert held.sizes.tolist() == [0, 0, 0, *[20] * 5]
    frame = Table(schema).decode(held.x, held.y)
    x, y = Table(schema).encode(frame)
    assert len(x) == 100 and (y == held.y).all()


def test_images_are_made_up_too(image_schema):
    setup = Setup.of_recipe("dpd_fvae", Target(8.0, 1e-5, rounds=2), {}, image_schema)
    found = audit(setup.algorithm(300), image_schema, 1e-5, canaries=300, runs=1, rng=Rng(1))
    assert found.one_run.detail["canaries"] == 300 and not found.exceeds
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"canaries": 10, "runs": 1}, "fewer than 200"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"confidence": 0.2}, "confidence=0.2"),
    ],
)
def test_bad_settings_are_refused(changes, words):
    with pytest.raises(BadInput, match=words):
        audit(setup_of("dpd_fvae").algorithm(200), EXAMPLE, 1e-5, **changes)


def test_what_the_audit_does_not_know_is_refused(build):
    with pytest.raises(Incompatible, match="one kind of noisy release"):
        audit(build("fvae", private=False), SCHEMA, 1e-5)
    with pytest.raises(Incompatible, match="LaplaceDpEvent"):
        with_noise(LaplaceDpEvent(1.0), 0.5)
    with pytest.raises(Incompatible, match="covers each of its records"):
        setup_of("dpd_fvae").check_claim("record", None)
    with pytest.raises(Incompatible, match="trust=central"):
        setup_of("dpd_fvae").check_claim(None, "local")
