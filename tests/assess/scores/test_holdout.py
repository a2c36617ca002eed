"""Clients with several rows: nobody is asked about twice, and nobody stands on two sides."""

import numpy as np
import pandas as pd
import pytest

from fedsynth.assess.attacks.density import density_attack
from fedsynth.assess.attacks.distance import Attacked
from fedsynth.assess.attacks.table_attacks import table_attacks
from fedsynth.assess.scores.holdout import check_apart, one_each, owners, parted
from fedsynth.assess.suite import evaluate
from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

NAMES = tuple(f"x{number}" for number in range(4))
SCHEMA = Schema(
    columns=tuple(Column(name, "continuous", min=-8.0, max=8.0) for name in NAMES), client="person"
)
BY_ROW = SCHEMA.with_client(None)


def visits(people, key, each=5):
    """Rows that say more about who is meant than about what people are like: the visits of one are alike."""
    random = Rng(1).at(key).numpy()
    kinds = np.repeat(random.normal(0, 1, (people, len(NAMES))), each, axis=0)
    frame = pd.DataFrame((kinds + random.normal(0, 0.02, kinds.shape)).clip(-8, 8), columns=list(NAMES))
    return frame.assign(person=[f"{key}{number}" for number in np.repeat(np.arange(people), each)])


@pytest.fixture(scope="module")
def people():
    return visits(300, "member"), visits(300, "stranger"), visits(300, "synthetic").drop(columns="person")


def area(scores, name):
    return next(score for score in scores if score.name == f"{name}: AUC")


def test_a_hold_out_split_by_rows_seems_to_find_members_and_one_split_by_client_does_not(people):
    real, holdout, synthetic = people
    by_row = [frame.drop(columns="person") for frame in (real, holdout)]
    confounded = area(density_attack(Attacked(by_row[0], synthetic, by_row[1], BY_ROW)), "density ratio")
    honest = area(density_attack(Attacked(real, synthetic, holdout, SCHEMA)), "density ratio")
    assert confounded.value > 0.7  # nothing leaked: the synthetic people are others altogether
    assert 0.4 < honest.value < 0.6


def test_copies_are_found_all_the_same(people):
    real, holdout, _ = people
    scores = table_attacks(real, real.drop(columns="person"), holdout, SCHEMA)
    assert area(scores, "closest record").value > 0.9 and area(scores, "density ratio").value > 0.9


def test_each_client_is_asked_about_once(people):
    real, holdout, synthetic = people
    scores = table_attacks(real, synthetic, holdout, SCHEMA)
    assert area(scores, "closest record").detail["members"] == 300
    drawn = one_each(real, SCHEMA, Rng(1))
    assert drawn["person"].is_unique and len(drawn) == 300
    assert len(one_each(real, BY_ROW, Rng(1))) == len(real)


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_no_client_is_in_both_parts(people, share):
    first, second = parted(people[0], SCHEMA, share, Rng(2))
    assert first["person"].nunique() == share * 300 and len(first) + len(second) == 1500
    assert not set(first["person"]) & set(second["person"])


def test_rows_without_an_owner_are_one_owner(people):
    frame = people[0].assign(person=None)
    assert len(set(owners(frame, SCHEMA))) == 1


def test_clients_on_both_sides_are_refused_with_the_reason(people):
    real, holdout, synthetic = people
    both = pd.concat([holdout, real.iloc[:10]])
    with pytest.raises(BadInput, match="2 of the clients in column 'person'"):
        check_apart(real, both, SCHEMA)
    scores = table_attacks(real, synthetic, both, SCHEMA)
    assert all("hold out whole clients" in score.failed for score in scores)


def test_classifiers_are_tested_on_other_clients_than_they_learned_from(people):
    """The label is who one is: only rows of the same person could tell it."""
    real = people[0].iloc[:600]
    label = Column("luck", "binary", categories=("no", "yes"))
    schema = Schema(columns=(*SCHEMA.columns, label), label="luck", client="person")
    lucky = np.repeat(Rng(5).numpy().random(120) > 0.5, 5)
    told = real.assign(luck=np.where(lucky, "yes", "no"))
    found = evaluate(told, told.drop(columns="person"), schema, classifiers=["random forest"])
    assert found["random forest: auc"].detail["train_on_real"] < 0.7
