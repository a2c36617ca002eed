import numpy as np
import pytest

from fedsynth.assess.attacks.membership import choose_targets, describe, membership_attack
from fedsynth.assess.attacks.shadow import Shadows
from fedsynth.data.schema import Schema
from fedsynth.recipes.budget import Target
from fedsynth.rng import Rng
from samples import TABLE, make_frame

SCHEMA = Schema.from_dict(TABLE)


@pytest.fixture(scope="module")
def population():
    return make_frame(np.arange(1500), seed=1).drop(columns="owner")


def memorising(tables, rows, rng):
    """Synthetic rows that are training rows drawn again."""
    return [
        table.iloc[rng.at(number).numpy().integers(0, len(table), rows)].reset_index(drop=True)
        for number, table in enumerate(tables)
    ]


def blind(tables, rows, rng):
    """Synthetic rows that have nothing to do with the training rows."""
    return [
        make_frame(np.arange(rows), rng.at(number).integer() % 2**32).drop(columns="owner")
        for number in range(len(tables))
    ]


def test_a_memorising_generator_is_found_out(population):
    area, found = membership_attack(population, SCHEMA, memorising, runs=32, size=200, rows=800, targets=6)
    assert area.value > 0.9 and found.value > 0.5
    assert area.detail["attacker"] == "nearness of the target" and len(area.detail["attackers"]) == 7


def test_a_generator_that_never_saw_the_rows_gives_nothing_away(population):
    area, _ = membership_attack(population, SCHEMA, blind, runs=32, size=50, rows=200, targets=6)
    assert 0.35 < area.value < 0.65


@pytest.mark.recipe
@pytest.mark.parametrize("recipe", ["central_vae", "dpd_fvae"])
def test_private_generators_stay_under_their_ceiling(recipe, population):
    small = {"latent": 2, "hidden": (8,)}
    more = {"records": 100, "batch_size": 50} if recipe == "central_vae" else {"rate": 0.5}
    shadows = Shadows.with_budget(
        recipe,
        SCHEMA,
        Target(1.0, 1e-3, rounds=5),
        clients=1 if recipe == "central_vae" else 10,
        values={**small, **more},
    )
    area, found = membership_attack(
        population, SCHEMA, shadows, runs=24, size=100, targets=6, ceiling=shadows.ceiling
    )
    assert not area.detail["above_ceiling"] and not found.detail["above_ceiling"]
    assert area.value < area.detail["ceiling"]["auc"] < 0.9


def test_the_same_seed_gives_the_same_scores(population):
    settings = {"runs": 16, "size": 30, "targets": 4, "seed": 5}
    assert membership_attack(population, SCHEMA, memorising, **settings) == membership_attack(
        population, SCHEMA, memorising, **settings
    )


def test_half_of_the_targets_lie_far_from_all_others(population):
    odd = population.assign(age=20, bmi=20.0, sex="F", grade="low", ill="no")
    odd.iloc[7, odd.columns.get_loc("age")] = 99
    odd.iloc[9, odd.columns.get_loc("sex")] = "M"
    chosen = choose_targets(odd, SCHEMA, 4, Rng(1))
    assert set(chosen[:2]) == {7, 9} and len(set(chosen)) == 4


def test_features_describe_columns_and_pairs(population):
    told = describe(population, SCHEMA)
    assert told["naive"][0] == pytest.approx(population["age"].mean())
    assert len(told["correlation"]) == 10 and 0.8 < told["correlation"][3] < 1  # age and being ill
    assert told["histogram"][-2:].sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"runs": 4}, "at least 16 runs"), ({"targets": 1}, "2 targets"), ({"size": 5000}, "need at least")],
)
def test_a_game_that_cannot_be_played_fails_with_its_reason(changes, reason, population):
    settings = {"runs": 16, "size": 30, "targets": 4, **changes}
    assert all(reason in s.failed for s in membership_attack(population, SCHEMA, memorising, **settings))
