"""Target epsilon in, noise or rounds out, by the events of the objects that will run."""

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent

from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput, BudgetExhausted
from fedsynth.privacy import account
from fedsynth.privacy.ledger import Entry, Ledger
from fedsynth.privacy.mechanism import When
from fedsynth.recipes.budget import Target, adjacency_of, cost, fit_budget
from fedsynth.recipes.registry import RECIPES, recipe_named
from fedsynth.recipes.task import Task
from fedsynth.synthesis.payer import Payer
from samples import KINDS, MOMENTS
from samples import SMALL as TINY

DELTA = 1e-3
PROMISES = [
    pytest.param(recipe, unit, trust, id=f"{recipe.name}-{unit}-{trust}")
    for recipe in RECIPES.values()
    if recipe.promises
    for unit, trust in recipe.offers
]
SMALL = {"latent": 2, "hidden": (8,)}


def fitted(schema: Schema, name: str, epsilon=8.0, rounds=None, noise=None, planned=100, **settings):
    recipe = recipe_named(name)
    settings = {
        **SMALL,
        "rounds": planned,
        **settings,
        **({"records": 200, "batch_size": 50} if name == "central_vae" else {}),
    }
    target = Target(epsilon, DELTA, rounds, noise)
    algorithm, values = fit_budget(recipe, Task(schema, 40), recipe.values(settings), target)
    return algorithm, values, account.epsilon(cost(algorithm), DELTA, adjacency=adjacency_of(algorithm))


@pytest.mark.parametrize(
    ("name", "settings"),
    [("dpd_fvae", {"rate": 0.3}), ("dpd_fvae", {"cohort": 8}), ("central_vae", {})],
    ids=["poisson", "fixed", "records"],
)
def test_calibrated_noise_spends_the_budget_and_no_more(schema, name, settings):
    algorithm, values, spent = fitted(schema, name, 4.0, rounds=5, **settings)
    assert 4.0 * 0.99 < spent <= 4.0
    assert algorithm.rounds == values["rounds"] == 5 and values["noise_multiplier"] > 0.1


def test_the_budget_covers_the_class_balance(schema):
    algorithm, _, spent = fitted(schema, "dpd_fvae", 4.0, rounds=5)
    training = account.repeat(algorithm.charges()[0].event, 5)
    assert account.epsilon(training, DELTA) < spent


@pytest.mark.parametrize("planned", [10, 1000])
def test_given_noise_gets_as_many_rounds_as_fit_with_the_balance_of_so_many(schema, planned):
    """The class balance is asked more precisely in a longer run; it must be counted for the rounds that run."""
    algorithm, values, spent = fitted(schema, "dpd_fvae", 8.0, noise=1.0, planned=planned)
    assert 8.0 * 0.98 < spent <= 8.0
    more = recipe_named("dpd_fvae").build(
        Task(schema, 40), {**values, "rounds": round(algorithm.rounds * 1.03) + 1}
    )
    assert account.epsilon(cost(more), DELTA) > 8.0


def test_noise_and_rounds_that_do_not_fit_are_refused(schema):
    with pytest.raises(BudgetExhausted, match="allows 0 rounds.*not 50"):
        fitted(schema, "dpd_fvae", 0.5, rounds=50, noise=0.5)


def test_noise_and_rounds_that_fit_are_taken(schema):
    algorithm, values, spent = fitted(schema, "dpd_fvae", 8.0, rounds=2, noise=5.0)
    assert (algorithm.rounds, values["noise_multiplier"]) == (2, 5.0) and spent < 8


def test_noise_that_allows_no_round_is_refused(schema):
    with pytest.raises(BudgetExhausted, match="not even one round"):
        fitted(schema, "dpd_fvae", 0.01, noise=0.3)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_budget_that_no_accountant_can_count_is_refused(epsilon):
    with pytest.raises(BadInput, match="a positive number, at most"):
        Target(epsilon, 1e-5)


@pytest.mark.parametrize("name", ["dpd_fvae", "dp_fed_wae"])
def test_a_schema_that_cost_the_whole_budget_leaves_nothing_and_says_so(schema, name):
    recipe = recipe_named(name)
    with pytest.raises(BudgetExhausted, match="the ledger shows .*including a schema learned under noise"):
        fit_budget(
            recipe,
            recipe.task(schema, 400),
            recipe.values({}),
            Target(0.5, DELTA),
            [Entry(GaussianDpEvent(3.0), "bounds")],
        )


@pytest.mark.parametrize(("recipe", "unit", "trust"), PROMISES)
def test_no_statement_says_more_than_was_asked_for_on_a_paid_schema(recipe, unit, trust):
    """The whole run's ledger, schema included, as the statement reads it: whatever recipe, unit and trust."""
    assert 3.0 * 0.98 < _stated_on_a_paid_schema(recipe, unit, trust, payer=unit) <= 3.0


def test_a_schema_that_clients_paid_for_is_counted_as_the_statement_on_records_counts_it():
    assert _stated_on_a_paid_schema(recipe_named("moment_vae"), "record", "local", payer="client") <= 3.0


def test_a_schema_that_records_paid_for_leaves_no_promise_to_clients():
    with pytest.raises(BudgetExhausted, match="the ledger shows inf"):
        _stated_on_a_paid_schema(recipe_named("fvae"), "client", "central", payer="record")


def _stated_on_a_paid_schema(recipe, unit, trust, payer):
    """Epsilon on the ledger of a whole run that was asked for 3.0, as the statement computes it."""
    ledger = Ledger(None)
    ledger.append(GaussianDpEvent(4.0), what="bounds and categories", unit=payer, run="schema")
    settings = {**TINY, **MOMENTS, "records": 800, "rounds": 4, "group": 40}
    known = {name: value for name, value in settings.items() if name in recipe.arguments()}
    task = recipe.task(Schema.from_dict(KINDS[recipe.kinds[0]]), 400, unit=unit, trust=trust)
    algorithm, _ = fit_budget(recipe, task, recipe.values(known), Target(3.0, DELTA), ledger.lines())
    opening, turns = algorithm.opening, algorithm.schedule.participations(algorithm.rounds)
    apart = opening is not None and opening.apart
    answering, training = (np.array([0]), np.array([1])) if apart else (np.array([0]), np.array([0]))
    payer = Payer(ledger, "run")
    payer.pay(When(), [] if opening is None else opening.charges(), answering)
    for charge in algorithm.charges():
        for number in range(turns if charge.holder == "client" else algorithm.rounds):
            payer.pay(When(number + 1), [charge], training)
    return ledger.epsilon(DELTA, adjacency=adjacency_of(algorithm), unit=unit)
