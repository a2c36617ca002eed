"""Attacks on a released table: copies of the training rows are found, fresh rows from the population are not."""

import numpy as np
import pandas as pd
import pytest
import torch

from fedsynth.assess.attacks.attack import attack_curves
from fedsynth.assess.attacks.attribute import attribute_attack
from fedsynth.assess.attacks.ceiling import Ceiling
from fedsynth.assess.attacks.density import density_attack
from fedsynth.assess.attacks.distance import Attacked, as_points, nearest_distances, nearest_neighbor_attack
from fedsynth.assess.attacks.table_attacks import Claim, table_attacks
from samples import make_frame

ATTACKS = [nearest_neighbor_attack, density_attack, attribute_attack]
CEILING = Ceiling.of(1.0, 1e-5, swapped=True)


@pytest.fixture(scope="module")
def people():
    rows = make_frame(np.arange(3000), seed=1).drop(columns="owner")
    return rows[:1000], rows[1000:2000], rows[2000:]  # trained on, held out, fresh


def area_of(scores):
    return next(score for score in scores if score.name.endswith("AUC"))


@pytest.mark.parametrize("attack", ATTACKS)
def test_copies_are_found_and_are_above_the_ceiling(attack, people, schema):
    real, holdout, _ = people
    found = area_of(attack(Attacked(real, real, holdout, schema, ceiling=CEILING)))
    assert found.value > 0.85 and found.detail["above_ceiling"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_fresh_rows_of_the_population_tell_nothing(attack, people, schema):
    real, holdout, fresh = people
    found = area_of(attack(Attacked(real, fresh, holdout, schema, ceiling=Ceiling.of(0.2, 0.0))))
    assert 0.42 < found.value < 0.58 and not found.detail["above_ceiling"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_same_seed_gives_the_same_scores(attack, people, schema):
    real, holdout, fresh = people
    assert attack(Attacked(real, fresh, holdout, schema, seed=3)) == attack(
        Attacked(real, fresh, holdout, schema, seed=3)
    )


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda rows: rows.iloc[:0], "no rows"),
        (lambda rows: rows.drop(columns="age"), "age"),
        (lambda rows: rows.assign(sex="X"), "sex"),
    ],
)
def test_a_synthetic_table_that_cannot_be_read_fails_with_its_reason(attack, broken, reason, people, schema):
    real, holdout, fresh = people
    scores = attack(Attacked(real, broken(fresh), holdout, schema))
    assert scores and all(reason in score.failed for score in scores)


@pytest.mark.parametrize("attack", ATTACKS)
def test_too_few_rows_to_judge_on_fail_with_their_reason(attack, people, schema):
    real, holdout, fresh = people
    assert all("at least 20" in score.failed for score in attack(Attacked(real, fresh, holdout[:10], schema)))


def test_distances_are_those_of_all_pairs_whatever_the_pieces(people, schema, monkeypatch):
    points = [as_points(rows[:40], schema) for rows in people[:2]]
    expected = torch.cdist(points[0].double(), points[1].double()).sort(dim=1).values[:, :3]
    monkeypatch.setattr("fedsynth.assess.attacks.distance._AT_ONCE", 280)
    torch.testing.assert_close(nearest_distances(*points, 3), expected, atol=1e-6, rtol=0)


def test_one_changed_column_moves_a_row_by_at_most_one(schema):
    rows = pd.DataFrame(
        {
            "age": [20, 20, 20],
            "bmi": [20.0, np.nan, 20.0],
            "sex": ["F", "F", "M"],
            "grade": "low",
            "ill": "no",
        }
    )
    points = as_points(rows, schema)
    assert float((points[0] - points[2]).norm()) == pytest.approx(1.0)
    assert 0.5 < float((points[0] - points[1]).norm()) < 1.0


def test_attributes_of_copies_are_guessed_better_than_those_of_strangers(people, schema):
    real, holdout, fresh = people
    copied = attribute_attack(Attacked(real, real, holdout, schema, CEILING), secrets=["sex"])[0]
    honest = attribute_attack(Attacked(real, fresh, holdout, schema, CEILING), secrets=["sex"])[0]
    assert (
        copied.value > 0.3 and copied.detail["worst"] == "sex" and list(copied.detail["secrets"]) == ["sex"]
    )
    assert abs(honest.value) < 0.08 and not honest.detail["secrets"]["sex"]["above_ceiling"]


def test_what_holds_for_everybody_is_no_advantage(people, schema):
    """Age tells who is ill in the whole population: guessing that is no harm."""
    real, holdout, fresh = people
    score = attribute_attack(Attacked(real, fresh, holdout, schema), secrets=["ill"])[0]
    assert score.detail["secrets"]["ill"]["others"] > 0.9 and abs(score.value) < 0.05


def test_an_unknown_secret_is_named(people, schema):
    real, holdout, fresh = people
    assert (
        "did you mean 'age'"
        in attribute_attack(Attacked(real, fresh, holdout, schema), secrets=["agee"])[0].failed
    )


def test_all_attacks_come_in_one_list_with_their_curves(people, schema):
    real, holdout, fresh = people
    scores = table_attacks(real, fresh, holdout, schema, claim=Claim(1.0, 1e-5))
    assert len(scores) == 7 and not any(score.failed for score in scores)
    curves = attack_curves(scores)
    assert [curve["name"] for curve in curves] == ["closest record", "density ratio", "attribute inference"]
    assert all(curve["ceiling"]["auc"] == pytest.approx(CEILING.auc) for curve in curves)
