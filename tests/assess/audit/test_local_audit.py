"""The audit of local privacy stays under true claims, has teeth, and finds planted bugs."""

import json
from dataclasses import replace

import pytest
import torch

from fedsynth.assess.audit.audit import audit
from fedsynth.assess.audit.local_audit import expected, is_local
from fedsynth.assess.audit.white_box import WHITE_BOX
from fedsynth.cli.main import main
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, Incompatible
from fedsynth.privacy.none import NoPrivacy
from fedsynth.privacy.signds import SignDS
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from samples import TABLE

SCHEMA = Schema.from_dict(TABLE)
MANY = {"canaries": 6000, "confidence": 0.999, "rng": Rng(1)}


def wae(**settings):
    recipe = recipe_named("dp_fed_wae")
    small = {"latent": 2, "hidden": (8,), "group": 5, "epsilon": 2.0, "alpha": 0.3, "pretraining": 5}
    return recipe.build(recipe.task(SCHEMA, 40), recipe.values({**small, **settings}))


def fed_vae(noise):
    recipe = recipe_named("fed_vae")
    task = recipe.task(SCHEMA, 40, private=True, unit=None, trust="local", transport=None)
    small = {"latent": 2, "hidden": (8,), "rounds": 3, "rate": 1.0, "noise_multiplier": noise}
    return recipe.build(task, recipe.values(small))


@pytest.mark.parametrize("turns", [1, 3])
def test_signed_indices_keep_their_claim_over_all_turns(turns):
    found = audit(wae(participations=turns), SCHEMA, 1e-9, **MANY)
    assert found.claimed == pytest.approx(2.0, rel=1e-6) and found.rounds == turns
    assert 0.4 * found.claimed < found.epsilon_lower < found.claimed and not found.exceeds


def test_local_gaussian_noise_keeps_its_claim():
    found = audit(fed_vae(4.0), SCHEMA, 1e-3, **MANY)
    assert 0.3 * found.claimed < found.epsilon_lower < found.claimed
    assert (found.unit, found.white_box.method) == ("client", WHITE_BOX)


@pytest.mark.parametrize(
    ("sound", "broken"),
    [
        (wae(participations=3), lambda mechanism: replace(mechanism, epsilon=2.0)),
        (fed_vae(4.0), lambda mechanism: replace(mechanism, noise_multiplier=1.5)),
    ],
    ids=["all of the budget in each turn", "too little noise"],
)
def test_a_planted_bug_is_found(sound, broken):
    leaky = replace(sound, mechanism=broken(sound.mechanism))
    assert audit(leaky, SCHEMA, 1e-3, claimed=sound, **MANY).exceeds


def test_only_what_clients_hide_by_themselves_is_local(build):
    assert is_local(wae()) and not is_local(build("dpd_fvae")) and not is_local(build("fvae", private=False))


def test_what_the_attacker_expects_of_signed_indices_is_their_favored_ends():
    pattern = expected(SignDS(1.0, top=2), torch.linspace(1, -1, 6))
    assert pattern.tolist() == [1, 1, 0, 0, -1, -1]
    with pytest.raises(Incompatible, match="NoPrivacy"):
        expected(NoPrivacy(), torch.ones(3))


@pytest.mark.parametrize(
    ("changes", "words"), [({"canaries": 10}, "fewer than 200"), ({"confidence": 1.0}, "confidence=1")]
)
def test_bad_settings_are_refused(changes, words):
    with pytest.raises(BadInput, match=words):
        audit(wae(), SCHEMA, 1e-9, **changes)


def test_the_command_audits_a_local_recipe(capsys):
    asked = ["audit", "dp_fed_wae", "--epsilon", "1", "--canaries", "2000", "--seed", "1"]
    with pytest.raises(SystemExit) as stopped:
        main([*asked, "--json", "--quiet"])
    told = json.loads(capsys.readouterr().out)
    assert not stopped.value.code and not told["exceeds_claim"]
    assert (
        told["white_box"]["method"] == WHITE_BOX
        and 0 < told["epsilon_lower"] < told["claimed_epsilon"] <= 1.0
    )
