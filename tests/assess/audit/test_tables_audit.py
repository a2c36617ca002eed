"""Planted bugs in the counting of tables: what the claim leaves out is seen in the noisy sums."""

import numpy as np
import pytest

from fedsynth.assess.audit.audit import audit
from fedsynth.assess.audit.audit_setup import Setup
from fedsynth.assess.audit.table_canary import canary_codes, counting
from fedsynth.models.table_question import Question
from fedsynth.recipes.budget import Target
from fedsynth.rng import Rng
from fedsynth.training.table_sums import TableSums


def audited(unit: str, trust: str, canaries: int = 2000):
    setup = Setup.of_recipe("marginals", Target(1.0, 1e-5, rounds=3), {}, unit=unit, trust=trust)
    return audit(setup.algorithm(canaries), setup.schema, 1e-5, canaries=canaries, rng=Rng(2))


def test_tables_left_out_of_the_sensitivity_are_found(monkeypatch):
    """As if the first table were the only one that costs: each record moves the sum three times as far."""
    sound = audited("record", "distributed")
    monkeypatch.setattr(Question, "scale", property(lambda one: np.asarray(one.weights) / one.weights[0]))
    broken = audited("record", "distributed")
    assert not sound.exceeds and broken.exceeds and broken.claimed == sound.claimed


def test_a_client_that_is_not_clipped_and_counted_by_its_rows_is_found(monkeypatch):
    """Three rows alike, added up instead of averaged: only the clip still holds such a client back."""
    shares = TableSums._shares

    def by_rows(self, question, data):
        cells, mean = shares(self, question, data)
        return cells, mean * data.mask.sum(1, keepdim=True)

    monkeypatch.setattr(TableSums, "_shares", by_rows)
    assert not audited("client", "central").exceeds
    monkeypatch.setattr("fedsynth.privacy.central.CentralGaussian.privatize", lambda self, x, *_: x.double())
    assert audited("client", "central").exceeds


@pytest.mark.parametrize(("unit", "trust"), [("client", "central"), ("record", "distributed")])
def test_every_canary_is_alone_in_its_cells(unit, trust):
    setup = Setup.of_recipe("marginals", Target(1.0, 1e-5, rounds=3), {}, unit=unit, trust=trust)
    game, _, question = counting(setup.algorithm(50), 50)
    assert game.rounds == 3 and game.charges()[0].event == setup.algorithm(50).charges()[0].event
    assert np.isclose(np.square(question.scale).sum(), 1.0)
    places = question.places(canary_codes(np.arange(50), question.sizes[0]))
    assert len(places.unique()) == places.numel() == 150 and question.cells == 3 * 8**2
