"""Counts of records over sites behind masks: really masked, with the system's noise, and what a lying server gets."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from masked_federation import NAMES, Federation

from fedsynth.data.clients import Clients, RawClients, encode_clients
from fedsynth.data.schema import Schema
from fedsynth.deploy.link.messages import Result
from fedsynth.errors import FedsynthError
from fedsynth.federation.loop import run
from fedsynth.models.distribution import Distribution
from fedsynth.privacy.ledger import Ledger
from fedsynth.rng import Rng
from samples import TABLE, make_frame

SCHEMA = Schema.from_dict(TABLE)
ROWS = 2000


@pytest.fixture(scope="module")
def four_sites() -> Clients:
    """Two thousand rows at four sites."""
    owner = np.sort(np.arange(ROWS) % 4)
    return encode_clients(RawClients(owner, 4, (), data=make_frame(owner).drop(columns="owner")), SCHEMA)


def nothing(*_):
    pass


def test_counts_behind_masks_with_the_systems_noise_find_what_goes_together(four_sites, tmp_path):
    federation = Federation(
        "marginals",
        four_sites,
        SCHEMA,
        tmp_path,
        seed=None,
        rounds=4,
        noise_multiplier=3.0,
        most_records=10_000,
    )
    state = federation.run(rounds=4)
    fitted = Distribution.unpack(state.parts["fitted"])
    assert (
        fitted.tree.home((0, 4)) is not None
    )  # in the rows the ill are older by 40 years, four standard deviations
    drawn = fitted.draw(20_000, np.random.default_rng(0))
    old, ill = drawn[:, 0] >= 50, drawn[:, 4] == 1
    assert (old == ill).mean() > 0.85
    assert abs(float(state.balance[1]) - float(four_sites.y.double().mean())) < 0.1
    for site in NAMES:
        lines = Ledger(tmp_path / site / "ledger.jsonl").lines()
        assert len(lines) == 4 and {(line.unit, line.trust) for line in lines} == {("record", "distributed")}


def test_patients_of_sites_are_protected_as_clients_too(ten, tmp_path):
    federation = Federation(
        "marginals", ten["table"], SCHEMA, tmp_path, shares=(1, 2, 3, 4), threshold=6, unit="client"
    )
    together = federation.run()
    for part, expected in federation.simulated().parts.items():
        torch.testing.assert_close(together.parts[part], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("place", "value"), [(0, 1e6), (0, 0.0), (1, 1e9), (1, float("nan"))])
def test_a_site_answers_no_nonsense(place, value, ten, tmp_path):
    federation = Federation("marginals", ten["table"], SCHEMA, tmp_path)
    algorithm, state = federation.begun()
    question = state.parts["question"].clone()
    question[place] = value
    lying = replace(state, parts={**state.parts, "question": question})
    with pytest.raises(FedsynthError):
        run(algorithm, federation.link, lying, Rng(1), nothing, nothing, 1)
    results = [message for _, message in federation.seen if isinstance(message, Result)]
    assert all(len(message.blob) < 200 for message in results)
