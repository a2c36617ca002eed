"""Plans are read off the objects that would run, and nothing in them contradicts itself."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.privacy import account
from fedsynth.recipes.budget import Target, adjacency_of, cost, fit_budget
from fedsynth.recipes.measured import expectation, measurements, near
from fedsynth.recipes.planned import PlanPopulation, plan_run
from fedsynth.recipes.registry import RECIPES, recipe_named
from fedsynth.recipes.usefulness import LEAST_SIGNAL, doubt, noise_in_mean
from samples import TABLE

SCHEMA = Schema.from_dict(TABLE)
PEOPLE = PlanPopulation(2000, 20_000, 2.0, 1e-5)


@pytest.mark.parametrize("name", ["fvae", "marginals", "site_vae", "dpd_fvae_record", "calm"])
def test_a_plan_has_the_noise_and_rounds_of_the_run_itself(name):
    recipe = recipe_named(name)
    plan = plan_run(recipe, SCHEMA, PEOPLE)
    task = replace(recipe.task(SCHEMA, 2000), records=20_000)
    target, changes = Target(2.0, 1e-5), recipe.with_role("records", 20_000)
    algorithm, values = fit_budget(recipe, task, recipe.values(changes), target)
    assert (
        plan.run.noise_multiplier == recipe.value_of("noise", values) and plan.run.rounds == algorithm.rounds
    )
    spent = account.epsilon(cost(algorithm, (), 1e-5), 1e-5, adjacency=adjacency_of(algorithm))
    assert plan.run.epsilon == spent <= 2.0
    assert plan.run.noise_in_mean == noise_in_mean(algorithm, task)


def test_noise_in_the_mean_follows_from_who_adds_it():
    runs = {
        (unit, trust): plan_run(recipe_named("marginals"), SCHEMA, PEOPLE, unit, trust).run
        for unit, trust in RECIPES["marginals"].offers
    }
    central = runs["client", "central"]
    assert central.noise_in_mean == pytest.approx(central.noise_multiplier / 2000)
    assert runs["client", "local"].noise_in_mean > 50 * central.noise_in_mean
    assert 1 < runs["client", "distributed"].noise_in_mean / central.noise_in_mean < 1.2
    assert runs["record", "central"].noise_in_mean == pytest.approx(central.noise_in_mean / 10)


@pytest.mark.parametrize("name", ["fvae", "marginals"])
def test_more_clients_cost_less_and_never_nothing_and_the_same_clients_the_same(name):
    plan = plan_run(recipe_named(name), SCHEMA, PEOPLE)
    here, more, most = (plan.projected(clients) for clients in (2000, 50_000, 1_000_000))
    assert here.epsilon == pytest.approx(plan.run.epsilon) and here.projection
    assert plan.run.epsilon > more.epsilon > most.epsilon > 0
    assert most.delta == pytest.approx(1e-5 * 2000 / 1_000_000)
    assert most.noise_in_mean == pytest.approx(plan.run.noise_in_mean, rel=0.01)


def test_what_has_no_noise_of_its_own_is_not_projected():
    assert plan_run(recipe_named("calm"), SCHEMA, PEOPLE).projected(10_000) is None
    assert plan_run(recipe_named("dpd_fvae_local_published"), SCHEMA, PEOPLE).problem


def test_a_plan_needs_people_and_a_budget():
    with pytest.raises(BadInput, match="at least one record"):
        PlanPopulation(100, 10, 1.0, 1e-5)
    with pytest.raises(BadInput, match="epsilon is above 0"):
        PlanPopulation(10, 100, 0.0, 1e-5)


def test_what_was_measured_is_what_the_results_say():
    made = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "measured.py"))
    assert json.loads(made["PLACE"].read_text()) == json.loads(made["collected"]())
    assert {one.recipe for one in measurements()} <= set(RECIPES)


def test_expectations_are_a_range_of_what_is_near_and_silent_far_away():
    chosen = near("marginals", 10_000, 1.0)
    assert 2 <= len(chosen) <= 4
    assert all(0.1 <= one.units * one.epsilon / 10_000 <= 10 for one in chosen)
    assert "of what real rows teach" in expectation("marginals", 10_000, 1.0)
    assert "not known" in expectation("marginals", 10, 0.1) and "not known" in expectation(
        "dpd_fvae", 200, 1.0
    )


def test_a_run_that_noise_drowns_says_so_and_proposes_what_auto_takes():
    recipe = recipe_named("dpd_fvae")

    def said(clients):
        task = recipe.task(SCHEMA, clients)
        algorithm, _ = fit_budget(recipe, task, recipe.values({}), Target(1.0, 1e-5))
        return doubt(algorithm, task)

    few = said(300)
    assert "hardly be useful" in few and "--recipe marginals" in few and "more clients" in few
    assert "hardly be useful" not in said(100_000) and LEAST_SIGNAL > 1


def test_noisy_counts_that_hide_a_column_say_so():
    recipe = recipe_named("marginals")

    def said(clients, trust, private=True):
        task = recipe.task(SCHEMA, clients, trust=trust, private=private)
        return doubt(recipe.build(task, {"noise_multiplier": 10.0}), task)

    assert "of all rows" in said(100, "central") and "--recipe" not in said(100, "central")
    assert said(5000, "central") is None and said(5000, "local")
    assert said(100, "central", private=False) is None


def test_so_many_columns_that_noise_hides_every_pair_are_named():
    def said(columns, clients):
        numbers = [
            {"name": f"number {place}", "type": "integer", "min": 0, "max": 99} for place in range(columns)
        ]
        schema = Schema.from_dict({"version": 1, "kind": "table", "columns": numbers})
        return plan_run(recipe_named("marginals"), schema, PlanPopulation(clients, clients, 1.0, 1e-6)).doubt

    assert "for 57 columns; use fewer columns" in said(57, 2500)
    assert said(57, 50_000) == "" and said(8, 2500) == ""


def test_encoders_that_fill_a_disk_are_named_and_shared_ones_are_not():
    few, many = (PlanPopulation(clients, clients, 2.0, 1e-7) for clients in (2000, 1_000_000))
    assert plan_run(recipe_named("dpd_fvae"), SCHEMA, few).doubt == ""
    doubted = plan_run(recipe_named("dpd_fvae"), SCHEMA, many).doubt
    assert (
        "at each of 1,000,000 clients, trained on 1 row(s) on average" in doubted
        and "--recipe fvae" in doubted
    )
    assert plan_run(recipe_named("fvae"), SCHEMA, many).doubt == ""
