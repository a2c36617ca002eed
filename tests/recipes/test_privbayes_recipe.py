"""PrivBayes over noisy sums: the known network is found from noisy tables alone, for every unit and trust."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from fedsynth import Rng, Schema, Synthesizer, clients_from
from fedsynth.assess.audit.audit import audit
from fedsynth.data.clients import encode_clients
from fedsynth.errors import Incompatible
from fedsynth.federation.loop import run
from fedsynth.models.table_answer import Answer
from fedsynth.recipes.privbayes import Network, NetworkPlan, NetworkSurvey, every_pair
from fedsynth.recipes.registry import recipe_named
from fedsynth.simulator.inprocess import InProcess

ROWS = 6000
SCHEMA = Schema.from_dict(
    {
        "version": 1,
        "kind": "table",
        "label": "y",
        "columns": [
            {"name": "a", "type": "categorical", "categories": ["0", "1", "2"]},
            {"name": "b", "type": "categorical", "categories": ["0", "1", "2"]},
            {"name": "age", "type": "integer", "min": 0, "max": 99, "missing": True},
            {"name": "y", "type": "binary", "categories": ["no", "yes"]},
        ],
    }
)


@pytest.fixture(scope="module")
def frame():
    """y -> a -> b, and y -> age."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, ROWS)
    a = np.where(draw.random(ROWS) < 0.9, 2 * y, 1)
    b = np.where(draw.random(ROWS) < 0.95, (a + 1) % 3, draw.integers(0, 3, ROWS))
    age = np.clip(draw.normal(20 + 50 * y, 8), 0, 99).round()
    missing = draw.random(ROWS) < 0.1
    return pd.DataFrame(
        {
            "a": a.astype(str),
            "b": b.astype(str),
            "age": np.where(missing, np.nan, age),
            "y": np.where(y, "yes", "no"),
        }
    )


@pytest.mark.parametrize(("unit", "trust"), recipe_named("privbayes").offers)
def test_what_goes_together_does_so_in_the_sample_for_every_unit_and_trust(unit, trust, frame):
    clients = ROWS if unit == "client" and trust != "distributed" else 300 if unit == "client" else 4
    synthesizer = Synthesizer("privbayes", SCHEMA, epsilon=8.0, delta=1e-6, unit=unit, trust=trust)
    rows = synthesizer.fit(clients_from(frame, clients=clients, rng=Rng(1))).sample(2000, seed=1)
    follows = (rows["b"].astype(int) == (rows["a"].astype(int) + 1) % 3).mean()
    ages = rows["age"].astype(float).groupby(rows["y"]).mean()
    if (unit, trust) != ("client", "local"):  # whose noise drowns what so few people say
        assert follows > 0.8 and ages["yes"] - ages["no"] > 35
        assert rows["age"].isna().mean() == pytest.approx(0.1, abs=0.06)
    stated = synthesizer.privacy
    assert (stated.unit, stated.trust) == (unit, trust) and 7 < stated.epsilon <= 8
    assert any("noisy tables alone" in caveat for caveat in stated.caveats)


def survey(counts, noise, seed=0, **settings):
    """The first answer about three columns, of which the second copies the first."""
    sizes = (3, 3, 2)
    plan = NetworkPlan(sizes, 2, Network(**settings), 10_000, 10_000, 1.0)
    question = plan.question(every_pair(3))
    exact = np.concatenate([table.ravel() for table in counts]) * question.scale[0]
    noisy = exact + np.random.default_rng(seed).normal(0, noise, len(exact))
    return NetworkSurvey(plan, (Answer(question, noisy, max(noise, 1e-9), question.scale),))


COUNTS = [np.eye(3) / 3, np.full((3, 2), 1 / 6), np.full((3, 2), 1 / 6)]  # a and b, a and y, b and y


def test_the_network_follows_dependence_and_noise_alone_makes_no_edge():
    assert set(map(frozenset, survey(COUNTS, 0.005).network)) == {
        frozenset({2}),
        frozenset({0}),
        frozenset({0, 1}),
    }
    nothing = [np.full((3, 3), 1 / 9), *COUNTS[1:]]
    alone = [len(survey(nothing, 0.01, seed).network[-1]) for seed in range(20)]
    assert np.mean([size == 1 for size in alone]) > 0.5


def test_a_table_whose_noise_would_drown_it_is_not_asked_for():
    assert all(len(table) == 1 for table in survey(COUNTS, 0.05).network)
    assert any(len(table) == 2 for table in survey(COUNTS, 0.05, usefulness=1.0).network)


def test_a_resumed_training_ends_as_the_uninterrupted_one(frame):
    recipe = recipe_named("privbayes")
    algorithm = recipe.build(recipe.task(SCHEMA, 50), {"noise_multiplier": 2.0})
    data = encode_clients(clients_from(frame[:500], clients=50, rng=Rng(1)), SCHEMA)

    def trained(state, rounds):
        return run(
            algorithm, InProcess(data, Rng(1)), state, Rng(1), lambda *_: None, lambda *_: None, rounds
        )

    start = algorithm.init(Rng(2))
    halfway = trained(start, 2)
    again = trained(type(start).from_tensors(halfway.to_tensors()), 3)
    assert torch.equal(trained(start, 3).parts["fitted"], again.parts["fitted"])


@pytest.mark.parametrize(
    ("unit", "trust"), [("client", "central"), ("record", "central"), ("record", "local")]
)
def test_the_audit_finds_halved_noise(unit, trust):
    recipe = recipe_named("privbayes")

    def built(noise):
        task = recipe.task(SCHEMA, 4, unit=unit, trust=trust)
        return recipe.build(task, {"noise_multiplier": noise, "rounds": 2})

    honest = audit(built(1.0), SCHEMA, 1e-5, canaries=1000, rng=Rng(1))
    assert 0.3 * honest.claimed < honest.epsilon_lower <= honest.claimed
    assert audit(built(0.4), SCHEMA, 1e-5, canaries=1000, rng=Rng(1), claimed=built(1.0)).exceeds


def test_a_record_adds_no_more_than_the_clip_to_a_site_s_sum(frame):
    recipe = recipe_named("privbayes")
    data = encode_clients(clients_from(frame[:1], clients=1, rng=Rng(1)), SCHEMA).gather([0])
    algorithm = recipe.build(
        recipe.task(SCHEMA, 1, unit="record", trust="central"), {"noise_multiplier": 1.0}
    )
    sent, _ = algorithm.client_round(algorithm.init(Rng(2)), {}, data, np.arange(1), Rng(1))
    assert 0.999 < math.sqrt(float(sent.square().sum())) <= 1.0


def test_too_many_cells_and_columns_are_refused_with_what_to_do():
    recipe = recipe_named("privbayes")
    with pytest.raises(Incompatible, match="most_cells=100: set fewer bins or more cells, or use marginals"):
        recipe.build(recipe.task(SCHEMA, 10), {"noise_multiplier": 1.0, "most_cells": 100})
