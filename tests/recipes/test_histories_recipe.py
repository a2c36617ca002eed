"""Histories of few persons: numbers of children that noise hides come out few, not anywhere below their bound."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from fedsynth import Schema, Synthesizer
from fedsynth.data.histories import Histories
from fedsynth.data.linked import LinkedSchema
from fedsynth.data.linked_tables import Linked
from fedsynth.federation.state import ServerState
from fedsynth.privacy.central import CentralGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.recipes.histories import HistoryLearning, form_of, opening_rounds, plans
from fedsynth.recipes.marginals import Asking, Fitting
from fedsynth.rng import Rng
from fedsynth.training.history_sums import HistorySums

PERSONS, SEEDS = 120, 3
TABLES = {
    "person": {"id": "person id", "columns": [{"name": "age", "type": "integer", "min": 18, "max": 90}]},
    "visit": {
        "parent": "person",
        "key": "person id",
        "id": "visit id",
        "most": 50,
        "columns": [{"name": "kind", "type": "categorical", "categories": ["plain", "urgent"]}],
    },
    "measurement": {
        "parent": "visit",
        "key": "visit id",
        "most": 50,
        "columns": [{"name": "test", "type": "categorical", "categories": ["glucose", "pressure"]}],
    },
}
SCHEMA = Schema.from_dict({"version": 2, "tables": TABLES})


def tables(visits: float, measurements: float, seed: int) -> dict[str, pd.DataFrame]:
    """Persons with so many visits and a visit with so many measurements on average, by Poisson's law."""
    draw = np.random.default_rng(seed)
    person = pd.DataFrame({"person id": np.arange(PERSONS), "age": draw.integers(18, 91, PERSONS)})
    of = np.repeat(np.arange(PERSONS), draw.poisson(visits, PERSONS))
    kinds = draw.choice(["plain", "urgent"], len(of))
    visit = pd.DataFrame({"visit id": np.arange(len(of)), "person id": of, "kind": kinds})
    of = np.repeat(np.arange(len(of)), draw.poisson(measurements, len(of)))
    tests = draw.choice(["glucose", "pressure"], len(of))
    return {
        "person": person,
        "visit": visit,
        "measurement": pd.DataFrame({"visit id": of, "test": tests}),
    }


@pytest.mark.parametrize(("visits", "measurements"), [(3.3, 1.5), (9.0, 2.5)])
def test_few_persons_have_about_as_many_children_as_they_should(visits, measurements):
    good = {"visit": 0, "measurement": 0}
    for seed in range(SEEDS):
        frames = tables(visits, measurements, seed)
        trained = Synthesizer("histories", SCHEMA, epsilon=1.0, delta=1e-5, seed=seed, rounds=4)
        drawn = trained.fit(Linked(SCHEMA).owned(frames)).sample(PERSONS)
        for child, parent in (("visit", "person"), ("measurement", "visit")):
            real, synthetic = (len(of[child]) / len(of[parent]) for of in (frames, drawn))
            good[child] += real / 2 < synthetic < real * 2
    assert min(good.values()) > SEEDS / 2, good


def test_the_fewer_persons_the_more_rounds_ask_for_single_columns():
    of_views = plans(Histories(LinkedSchema(SCHEMA.tables)), Asking(), Fitting(), PERSONS)
    rounds = [opening_rounds(Asking(), 13.4 / persons, of_views) for persons in (120, 2000, 4000, 20_000)]
    assert rounds == sorted(rounds, reverse=True)
    assert rounds[0] == 5 and 1 < rounds[2] < 5 and rounds[-1] == 1
    assert opening_rounds(Asking(rounds=2, pair_rounds=1), 1.0, of_views) == 1
    assert opening_rounds(Asking(), 0.0, of_views) == 1


def test_rounds_that_ask_the_same_are_one_answer_with_less_noise():
    linked = Histories(LinkedSchema(SCHEMA.tables))
    of_views = plans(linked, Asking(rounds=4, pair_rounds=1), Fitting(), PERSONS)
    sums = HistorySums(tuple(map(form_of, of_views)), CentralGaussian(Clip(1.0), 1.0))
    learning = HistoryLearning(of_views, sums, 0.2, opening=3)
    first = learning.first({}, Rng(0))["question"]
    state = ServerState(0, {"question": first}, {})
    for number in (1.0, 2.0, 6.0):
        assert torch.equal(state.parts["question"], first)
        state = learning(state, torch.full((sums.cells,), number), Rng(0))
    assert not torch.equal(state.parts["question"], first)
    (answer,) = learning.surveys(state.memory["questions"], state.memory["answers"])[0].answers
    assert np.allclose(answer.values, 3.0) and answer.noise == pytest.approx(0.2 / math.sqrt(3))
    early = learning.surveys(state.memory["questions"][:2], state.memory["answers"][:2])[0].answers
    assert np.allclose(early[0].values, 1.5) and early[0].noise == pytest.approx(0.2 / math.sqrt(2))
