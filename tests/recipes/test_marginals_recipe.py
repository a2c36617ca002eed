"""Counts of which values go together, end to end: what goes together in the rows does so in the samples."""

import os
import signal
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from fedsynth import Rng, Schema, Synthesizer, clients_from
from fedsynth.assess.attacks.shadow import train_together
from fedsynth.errors import BadInput, FedsynthError, Incompatible
from fedsynth.models.distribution import Distribution
from fedsynth.privacy.ledger import Ledger
from fedsynth.privacy.mechanism import When
from fedsynth.recipes.registry import recipe_named
from fedsynth.synthesis.folder import Folder
from fedsynth.synthesis.payer import Payer
from fedsynth.synthesis.request import Request
from samples import IMAGE

SCHEMA = Schema.from_dict(
    {
        "version": 1,
        "kind": "table",
        "label": "ill",
        "client": "owner",
        "columns": [
            {"name": "age", "type": "integer", "min": 0, "max": 99},
            {"name": "cost", "type": "continuous", "min": 0.0, "max": 1000.0},
            {"name": "region", "type": "categorical", "categories": list("nesw")},
            {"name": "sick_leave", "type": "binary", "categories": ["no", "yes"]},
            {"name": "ill", "type": "binary", "categories": ["no", "yes"]},
        ],
    }
)
PEOPLE = 3000


def rows(owners: np.ndarray, seed: int = 0) -> pd.DataFrame:
    """The old are ill more often, the ill stay at home, most cost nothing; regions are by themselves."""
    draw = np.random.default_rng(seed)
    count = len(owners)
    age = draw.integers(0, 100, count)
    ill = draw.random(count) < 0.1 + 0.7 * (age > 60)
    leave = draw.random(count) < np.where(ill, 0.9, 0.1)
    return pd.DataFrame(
        {
            "owner": owners,
            "age": age,
            "cost": np.where(draw.random(count) < 0.8, 0.0, draw.uniform(1, 1000, count).round(2)),
            "region": draw.choice(list("nesw"), count, p=[0.4, 0.3, 0.2, 0.1]),
            "sick_leave": np.where(leave, "yes", "no"),
            "ill": np.where(ill, "yes", "no"),
        }
    )


def fitted(owners: np.ndarray, schema: Schema = SCHEMA, **settings) -> Synthesizer:
    given = {"epsilon": 1.0, "delta": 1e-5, "seed": 3, **settings}
    return Synthesizer("marginals", schema, **given).fit(clients_from(rows(owners), client_column="owner"))


def agreement(frame: pd.DataFrame) -> tuple[float, float, float]:
    """How often who is ill stays at home and is old, and how often nothing is paid."""
    ill = frame["ill"] == "yes"
    home, old = frame["sick_leave"] == "yes", frame["age"].astype(float) > 60
    return float((ill == home).mean()), float((ill == old).mean()), float((frame["cost"] == 0).mean())


SITES = {"unit": "record", "trust": "distributed"}


@pytest.mark.parametrize(
    ("owners", "settings"),
    [(np.arange(PEOPLE), {}), (np.arange(PEOPLE) % 4, SITES), (np.arange(2 * PEOPLE) // 2, {})],
    ids=["each client a row", "four sites behind masks", "each client two rows"],
)
def test_what_goes_together_survives_at_epsilon_1(owners, settings):
    made = fitted(owners, **settings)
    drawn = made.sample(20_000, seed=1)
    for found, expected in zip(agreement(drawn), agreement(rows(owners)), strict=True):
        assert found == pytest.approx(expected, abs=0.06)
    shares = drawn["region"].value_counts(normalize=True)
    assert np.abs(shares[list("nesw")].to_numpy() - [0.4, 0.3, 0.2, 0.1]).max() < 0.05
    assert made.history[-1]["epsilon"] == pytest.approx(1, rel=0.02)
    assert len(made.history) == 10


def test_rows_of_one_label_are_drawn_as_such():
    drawn = fitted(np.arange(PEOPLE)).sample(2000, condition={"ill": "yes"}, seed=1)
    assert (drawn["ill"] == "yes").all() and (drawn["sick_leave"] == "yes").mean() > 0.8


def test_a_table_without_a_label_works_too():
    schema = Schema.from_dict({**SCHEMA.to_dict(), "label": None})
    drawn = fitted(np.arange(PEOPLE), schema).sample(5000, seed=1)
    assert agreement(drawn)[0] == pytest.approx(agreement(rows(np.arange(PEOPLE)))[0], abs=0.06)


@pytest.mark.parametrize("columns", [["age"], ["ill"], ["age", "ill"]], ids=",".join)
def test_one_or_two_columns_are_enough(columns):
    every = SCHEMA.to_dict()
    kept = [column for column in every["columns"] if column["name"] in columns]
    label = "ill" if len(columns) == 2 else None
    schema = Schema.from_dict({**every, "columns": kept, "label": label})
    raw = clients_from(rows(np.arange(500))[["owner", *columns]], client_column="owner")
    made = Synthesizer("marginals", schema, epsilon=5.0, delta=1e-3, seed=1, rounds=3).fit(raw)
    assert list(made.sample(50, seed=1).columns) == columns


def test_what_was_measured_is_released_where_paid_rounds_were_lost(tmp_path):
    """Without a seed a lost round is not asked for again: the run ends with fewer answers, and still samples."""

    class Stop(Exception):
        pass

    def watch(done, epsilon, rounds):
        if done.version >= 2:
            raise Stop

    raw = clients_from(rows(np.arange(300)), client_column="owner")
    with pytest.raises(Stop):
        Synthesizer("marginals", SCHEMA, epsilon=8.0, delta=1e-3, rounds=4).fit(
            raw, folder=tmp_path / "run", watch=watch
        )
    place = Folder(tmp_path / "run")
    ledger = Ledger(place.ledger)
    (charge,) = recipe_charges(place)
    for number in (3, 4):
        Payer(ledger, "run").pay(When(number), [charge], [0])
    made = Synthesizer.of(Request.from_toml(place.read_recipe()), SCHEMA).resume(raw, tmp_path / "run")
    assert [line["version"] for line in made.history] == [1, 2] and Ledger(place.ledger).epsilon(1e-3) <= 8
    assert len(made.sample(100, seed=1)) == 100


def test_kill_9_between_rounds_goes_on_and_charges_nothing_twice(tmp_path):
    """The seeded run that was killed equals one that was not; without a seed each round is on the ledger once."""
    raw = clients_from(rows(np.arange(300)), client_column="owner")
    whole = {"epsilon": 8.0, "delta": 1e-3, "rounds": 4}
    Synthesizer("marginals", SCHEMA, **whole, seed=5).fit(raw, folder=tmp_path / "straight")
    for name, seed in (("seeded", 5), ("unseeded", None)):
        killed(Synthesizer("marginals", SCHEMA, **whole, seed=seed), raw, tmp_path / name)
        place = Folder(tmp_path / name)
        assert not place.finished and len(place.read_history()) == 2
        Synthesizer.of(Request.from_toml(place.read_recipe()), SCHEMA).resume(raw, tmp_path / name)
        ledger = Ledger(place.ledger)
        assert [line.what.rpartition(" ")[2] for line in ledger.releases()] == ["1", "2", "3", "4"]
        assert ledger.epsilon(1e-3) == pytest.approx(8, rel=0.01)
    files = [(tmp_path / run / "generator.safetensors").read_bytes() for run in ("straight", "seeded")]
    assert files[0] == files[1]


def killed(synthesizer, raw, out) -> None:
    """Fit in a process that is killed once two rounds are done."""

    def watch(done, epsilon, rounds):
        if done.version == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            synthesizer.fit(raw, folder=out, watch=watch)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


def recipe_charges(place: Folder):
    """What one round of the run in this folder costs."""
    recipe = recipe_named("marginals")
    values = recipe.values(Request.from_toml(place.read_recipe()).arguments)
    return recipe.build(recipe.task(SCHEMA, 300), values).charges()


def test_shadow_runs_ask_their_own_questions(build, ten):
    """An attacker trains the recipe on data sets of its own: each run ends with its own distribution."""
    algorithm = build("marginals")
    states = train_together(algorithm, [ten["table"]] * 2, Rng(1))
    fitted = [Distribution.unpack(state.parts["fitted"]) for state in states]
    assert all(one.tree.sizes for one in fitted)
    assert not torch.equal(states[0].memory["answers"], states[1].memory["answers"])


def test_neighbours_are_those_that_the_trust_supports():
    recipe = recipe_named("marginals")
    offers = {offer: recipe.build(recipe.task(SCHEMA, 50, unit=offer[0], trust=offer[1]), {"noise_multiplier": 2.0})
              for offer in recipe.offers}  # fmt: skip
    assert {offer: algorithm.schedule.adjacency for offer, algorithm in offers.items()} == {
        ("client", "central"): "add-remove",
        ("client", "local"): "replace-one",
        ("client", "distributed"): "zero-out",
        ("record", "distributed"): "add-remove",
        ("record", "central"): "add-remove",
        ("record", "local"): "add-remove",
    }


def test_other_kinds_of_data_are_refused():
    recipe = recipe_named("marginals")
    with pytest.raises(Incompatible, match="tables"):
        recipe.build(recipe.task(Schema.from_dict(IMAGE), 50), {})


def test_more_pairs_than_a_record_has_grid_steps_for_are_refused():
    recipe = recipe_named("marginals")
    task = recipe.task(SCHEMA, 4, unit="record", trust="distributed")
    with pytest.raises(FedsynthError, match="most_records"):
        recipe.build(
            task, recipe.values({"noise_multiplier": 10.0, "most_records": 100_000_000, "label_weight": 0.01})
        )
    with pytest.raises(BadInput, match="rounds=1"):
        recipe.build(task, recipe.values({"rounds": 1}))


@pytest.mark.parametrize(
    ("unit", "chosen", "expected"), [("record", 0, 2), ("client", 0, 3), ("record", 5, 5)]
)
def test_tables_with_the_label_weigh_more_above_all_where_clients_are_protected(unit, chosen, expected):
    recipe = recipe_named("marginals")
    task = recipe.task(SCHEMA, 4, unit=unit, trust="central")
    built = recipe.build(task, recipe.values({"noise_multiplier": 10.0, "label_weight": chosen}))
    plan = built.learn.plan
    assert plan.weight((0, plan.label)) == expected * plan.weight((0, 1))


def test_client_ids_have_as_many_rows_as_clients_had(tmp_path):
    lengths = np.random.default_rng(1).choice([1, 2, 5], 600, p=[0.5, 0.3, 0.2])
    owners = np.repeat(np.arange(600), lengths)
    raw = clients_from(rows(owners), client_column="owner")
    Synthesizer("marginals", SCHEMA, private=False, rounds=3, seed=1).fit(raw, folder=tmp_path / "run")
    drawn = Synthesizer.load(tmp_path / "run").sample(5000, seed=1, client_ids=True)
    assert list(drawn.columns) == ["owner", *SCHEMA.names] and len(drawn) == 5000
    counts = drawn["owner"].value_counts().value_counts(normalize=True)
    for length in (1, 2, 5):
        assert counts[length] == pytest.approx((lengths == length).mean(), abs=0.04)


def test_client_ids_are_refused_where_nothing_is_known_of_clients_rows():
    alone = Synthesizer("marginals", SCHEMA, private=False, rounds=3, seed=1)
    alone.fit(clients_from(rows(np.arange(300)), client_column="owner"))
    with pytest.raises(BadInput, match="one row each"):
        alone.sample(10, client_ids=True)
    with pytest.raises(BadInput, match="did not ask"):
        fitted(np.arange(400) % 4, rounds=3, **SITES).sample(10, client_ids=True)


def questions_follow(state, learning) -> bool:
    """Whether each question of a run is the one that the noisy answers before it lead to."""
    asked, answers = state.memory["questions"], state.memory["answers"]
    return all(
        torch.equal(
            learning.form.write(learning.survey(asked[:done], answers[:done]).following()), asked[done]
        )
        for done in range(len(asked))
    )


def test_a_choice_of_tables_that_reads_exact_counts_is_found(build, ten):
    algorithm = build("marginals", noise_multiplier=5.0)
    honest, exact = (
        train_together(one, [ten["table"]], Rng(1))[0]
        for one in (algorithm, build("marginals", noise_multiplier=1e-6))
    )
    learning = algorithm.learn
    assert len(honest.memory["questions"]) > 2 and questions_follow(honest, learning)

    def peeking(plan, answers):
        done = len(answers)
        return learning.survey(exact.memory["questions"][:done], exact.memory["answers"][:done])

    planted = replace(algorithm, learn=replace(learning, surveyed=peeking))
    (state,) = train_together(planted, [ten["table"]], Rng(1))
    assert not questions_follow(state, learning)


def test_numbers_one_by_one_take_no_more_cells_than_are_free():
    areas = {"name": "area", "type": "categorical", "categories": [str(number) for number in range(800)]}
    score = {"name": "score", "type": "integer", "min": 0, "max": 200}
    schema = Schema.from_dict({"version": 1, "kind": "table", "columns": [areas, score]})
    recipe = recipe_named("marginals")
    for most_cells, grids in ((1000, False), (1200, True)):
        values = recipe.values({"noise_multiplier": 1.0, "most_cells": most_cells})
        form = recipe.build(recipe.task(schema, 1000), values).record_sums.form
        assert form.table_cells <= most_cells and any(form.grids) == grids


@pytest.mark.parametrize(("columns", "most_cells"), [(3, 1_000_000), (5, 1500), (9, 4000)])
def test_the_last_question_fits_an_answer_too(columns, most_cells):
    """It asks for columns as they are, each with a partner, and for all of them alone: no round before is lost."""
    draw = np.random.default_rng(0)
    base = draw.integers(0, 1001, 3000)
    near = {f"c{i}": (base + draw.integers(-20, 21, 3000) * (i + 1)).clip(0, 1000) for i in range(columns)}
    frame = pd.DataFrame({**near, "y": draw.choice(["u", "v"], 3000)})
    numbers = [{"name": name, "type": "integer", "min": 0, "max": 1000} for name in near]
    label = {"name": "y", "type": "binary", "categories": ["u", "v"]}
    schema = Schema.from_dict({"version": 1, "kind": "table", "label": "y", "columns": [*numbers, label]})
    known = {"epsilon": 8.0, "delta": 1e-5, "seed": 1, "rounds": 5, "most_cells": most_cells}
    assert len(Synthesizer("marginals", schema, **known).fit(frame).sample(10, seed=1)) == 10
