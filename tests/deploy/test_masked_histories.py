"""Histories of persons over sites behind masks: the sum of the simulator, one line a round, and whole persons drawn."""

import numpy as np
import pytest
import torch
from masked_federation import NAMES, Federation

from fedsynth.data.clients import encode_clients
from fedsynth.data.linked_tables import Linked
from fedsynth.data.modality import Source
from fedsynth.data.schema import Schema
from fedsynth.privacy.ledger import Ledger
from fedsynth.research.hospital_records import schema, write
from fedsynth.rng import Rng

SCHEMA = Schema.from_dict(schema())


@pytest.fixture(scope="module")
def persons(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hospital") / "data"
    write(folder, 12, seed=4)
    return encode_clients(Linked(SCHEMA).clients(Source(folder, alone=True)), SCHEMA)


def test_sites_that_hold_whole_persons_sum_what_the_simulator_sums(persons, tmp_path):
    federation = Federation(
        "histories", persons, SCHEMA, tmp_path, shares=(3, 3, 3, 3), noise_multiplier=0.5, threshold=9
    )
    state = federation.run(rounds=2)
    simulated = federation.simulated()
    torch.testing.assert_close(state.memory["answers"], simulated.memory["answers"], rtol=0, atol=1e-9)
    for site in NAMES:
        lines = Ledger(tmp_path / site / "ledger.jsonl").lines()
        assert len(lines) == 2 and {(line.unit, line.trust) for line in lines} == {("client", "distributed")}


def test_whole_persons_are_drawn_from_what_sites_summed(persons, tmp_path):
    federation = Federation(
        "histories",
        persons,
        SCHEMA,
        tmp_path,
        seed=None,
        shares=(3, 3, 3, 3),
        noise_multiplier=0.5,
        threshold=9,
    )
    algorithm, _ = federation.begun()
    state = federation.run(rounds=2)
    params = {"fitted": {"values": state.parts["fitted"]}}
    frames = Linked(SCHEMA).decode(
        algorithm.model.sample(params, torch.zeros(300, dtype=torch.int64), Rng(1)), None
    )
    person, visit, measurement = (frames[name] for name in ("person", "visit", "measurement"))
    assert len(person) == 300 and visit["person id"].isin(person["person id"]).all()
    assert measurement["visit id"].isin(visit["visit id"]).all()
    assert (visit["discharge"] >= visit["admission"]).all()
    assert visit.groupby("person id")["admission"].apply(lambda days: days.is_monotonic_increasing).all()
    assert np.isfinite(measurement["value"]).all()
