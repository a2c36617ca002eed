"""A participant knows its own share of the noise: the asked epsilon holds against it too."""

import math
from dataclasses import replace

import pytest

from fedsynth.errors import BadInput
from fedsynth.privacy.account import epsilon
from fedsynth.recipes.budget import Target, cost, fit_budget
from fedsynth.recipes.registry import recipe_named

DELTA = 1e-6
SETTINGS = {"hidden": (8,), "latent": 2, "records": 30_000}
RECIPE = recipe_named("site_vae")


def calibrated(schema, sites, largest):
    """site_vae at epsilon 3 over so many sites, calibrated as if the largest knew so many shares."""
    task = replace(RECIPE.task(schema, sites), largest=largest)
    return fit_budget(RECIPE, task, RECIPE.values(SETTINGS), Target(3.0, DELTA))[0]


def to_who_knows(algorithm, shares):
    """Epsilon to somebody who takes away the noise of so many shares, from the size of a share."""

    def unknown(mechanism):
        parties = mechanism.parties
        left = math.sqrt((parties.threshold - shares) / parties.honest)
        return replace(mechanism, noise_multiplier=mechanism.noise_multiplier * left)

    opening = replace(algorithm.opening, mechanism=unknown(algorithm.opening.mechanism))
    return epsilon(cost(replace(algorithm, mechanism=unknown(algorithm.mechanism), opening=opening)), DELTA)


@pytest.mark.parametrize(("sites", "stated"), [(2, 5.25), (3, 4.09), (5, 3.54)])
def test_three_was_more_against_a_fellow_site_and_now_is_not(sites, stated, schema):
    before, now = (calibrated(schema, sites, largest) for largest in (0, 1))
    assert to_who_knows(before, 1) == pytest.approx(stated, abs=0.01)
    assert to_who_knows(before, 0) == pytest.approx(3.0, abs=0.01)
    assert to_who_knows(now, 1) == pytest.approx(3.0, abs=0.01)
    charge = now.charges()[0]
    assert charge.public.event.noise_multiplier == pytest.approx(
        charge.event.event.noise_multiplier * math.sqrt(sites / (sites - 1))
    )
    assert now.mechanism.share == pytest.approx(
        before.mechanism.share * now.mechanism.parties.surplus, rel=0.02
    )


def test_with_two_sites_the_statement_says_what_it_costs(schema):
    task = RECIPE.task(schema, 2)
    words = " ".join(RECIPE.build(task, RECIPE.values(SETTINGS)).transport.caveats)
    assert "1.41 times as large" in words and "at least 1 honest ones" in words


def test_a_site_knows_the_shares_of_all_its_clients(schema):
    parties = RECIPE.build(
        replace(RECIPE.task(schema, 30), largest=10), RECIPE.values(SETTINGS)
    ).mechanism.parties
    assert (parties.threshold, parties.known, parties.honest) == (30, 10, 20)
    words = " ".join(
        RECIPE.build(replace(RECIPE.task(schema, 30), largest=10), RECIPE.values(SETTINGS)).transport.caveats
    )
    assert "the shares of its own clients, 10 at most" in words and "at least 20 honest" in words


def test_who_helps_the_server_and_a_participant_are_not_counted_twice(schema):
    values = RECIPE.values({**SETTINGS, "threshold": 9, "colluders": 2})
    algorithm = RECIPE.build(RECIPE.task(schema, 10), values)
    assert algorithm.mechanism.parties.honest == 7
    assert algorithm.charges()[0].public == algorithm.charges()[0].event


def test_a_participant_that_would_know_all_noise_is_refused(schema):
    task = replace(RECIPE.task(schema, 30), largest=25)
    with pytest.raises(BadInput, match="largest=25: a participant with so many of the 20 shares"):
        RECIPE.build(task, RECIPE.values({**SETTINGS, "threshold": 20}))
