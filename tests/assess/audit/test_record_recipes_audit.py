"""The training plans of record-level recipes under a worst-case record: sound ones hold, the published one fails."""

import pytest
from test_dpsgd_audit import CLAIM, bound

from fedsynth.data.schema import Schema
from fedsynth.recipes.registry import recipe_named
from samples import TABLE

WORST = {"noise_multiplier": 1.0, "clip": 1.0, "batch_rate": 1.0, "usual_records": 1, "report": 0.001}


def plan(name: str, private: bool, **settings):
    recipe = recipe_named(name)
    task = recipe.task(Schema.from_dict(TABLE), 10, private=private, unit=None, trust=None, transport=None)
    asked = {**WORST, "decoder_noise": 1.0, "learning_rate": 1.0, **settings}
    known = recipe.arguments()
    return recipe.build(
        task, recipe.values({key: value for key, value in asked.items() if key in known})
    ).plan


@pytest.mark.parametrize("name", ["fvae_record", "dpd_fvae_record"])
def test_dpsgd_over_all_trained_parts_stays_under_the_claim(name):
    assert bound(plan(name, True)) < CLAIM


def test_the_published_local_dpd_fvae_breaks_the_claim_it_would_make():
    assert bound(plan("dpd_fvae_local_published", False, learning_rate=0.1)) > CLAIM
