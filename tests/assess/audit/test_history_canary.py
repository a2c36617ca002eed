"""The audit of histories: it does not contradict the claim, and finds a person that weighs once a row."""

import pytest

from fedsynth.assess.audit.audit import audit
from fedsynth.data.schema import Schema
from fedsynth.recipes.budget import Target, fit_budget
from fedsynth.recipes.registry import recipe_named
from fedsynth.rng import Rng
from samples import LINKED

SCHEMA = Schema.from_dict(LINKED)


def composed(trust, canaries=1000, epsilon=2.0):
    recipe = recipe_named("histories")
    task = recipe.task(SCHEMA, canaries, trust=trust)
    algorithm, _ = fit_budget(recipe, task, recipe.values({"rounds": 2}), Target(epsilon, 1e-5))
    return algorithm


@pytest.mark.parametrize("trust", ["central", "local"])
def test_the_claim_is_not_contradicted(trust):
    result = audit(composed(trust), SCHEMA, 1e-5, canaries=1000, rng=Rng(3))
    assert result.claimed == pytest.approx(2.0, abs=0.02)
    assert 0 < result.white_box.epsilon_lower < 2.0 and result.one_run.epsilon_lower < 2.0


def test_a_person_that_weighs_once_a_row_is_found(monkeypatch):
    monkeypatch.setattr(
        "fedsynth.training.history_sums._up_to", lambda number, rows, steps: number[:, None] * steps
    )
    result = audit(composed("central"), SCHEMA, 1e-5, canaries=1000, rng=Rng(3))
    assert result.white_box.epsilon_lower > 2.0


def test_views_that_forget_each_other_are_found(monkeypatch):
    """A planted bug: each view is scaled to the whole clip, as if a person had rows in one of them alone."""
    from fedsynth.training.history_sums import HistorySums

    monkeypatch.setattr(
        HistorySums, "scales", staticmethod(lambda questions: [one.scale for one in questions])
    )
    game = composed("central")
    result = audit(game, SCHEMA, 1e-5, canaries=1000, runs=4, rng=Rng(3))
    assert result.white_box.epsilon_lower > 2.0
