"""Masked sums over the channel that sites are behind: what opens, what is survived, what sites refuse."""

import json

import numpy as np
import pytest
import torch
from masked_federation import NAMES, VALUES, Federation

from fedsynth.deploy.link.masked import MaskingSite
from fedsynth.deploy.link.messages import Result
from fedsynth.deploy.participation import compose
from fedsynth.errors import Incompatible
from fedsynth.privacy.ledger import Ledger
from fedsynth.transport.agreement import Aborted, Cheated
from fedsynth.transport.bits import unpack


@pytest.mark.parametrize("name", VALUES)
def test_sites_over_a_channel_compute_what_the_simulation_computes(name, schema, ten, tmp_path):
    federation = Federation(name, ten["table"], schema, tmp_path)
    together = federation.run()
    alone = federation.simulated()
    for part in alone.parts:
        torch.testing.assert_close(together.parts[part], alone.parts[part], rtol=0, atol=1e-6)


def test_what_crosses_the_channel_is_masked_and_packed(schema, ten, tmp_path):
    federation = Federation("site_vae", ten["table"], schema, tmp_path)
    federation.run(1)
    wire = compose(federation.terms, schema).wire
    results = [
        message for _, message in federation.seen if isinstance(message, Result) and len(message.blob) > 200
    ]
    assert len(results) == 4
    for message in results:
        assert set(message.tensors) == {"ids"}
        values = unpack(message.blob, wire.dim, wire.bits) / 2**wire.bits
        assert abs(values.mean() - 0.5) < 0.1 and 0.2 < values.std() < 0.37


def test_every_site_pays_in_its_own_ledger_before_it_sends(schema, ten, tmp_path):
    Federation("site_vae", ten["table"], schema, tmp_path).run()
    for site in NAMES:
        lines = Ledger(tmp_path / site / "ledger.jsonl").lines()
        assert {line.trust for line in lines} == {"distributed"} and len(lines) == 3


@pytest.mark.parametrize("stage", ["advertise", "share", "work", "confirm", "reveal"])
def test_a_site_that_drops_out_at_any_stage_is_survived(stage, schema, ten, tmp_path):
    federation = Federation("site_vae", ten["table"], schema, tmp_path)
    federation.dead = {"bern": stage}
    assert federation.run(1).version == 1


def test_too_few_sites_open_nothing(schema, ten, tmp_path):
    federation = Federation("site_vae", ten["table"], schema, tmp_path)
    federation.dead = {"bern": "confirm", "cern": "confirm"}
    with pytest.raises(Aborted, match="nothing was opened"):
        federation.run(1)


@pytest.mark.parametrize("name", VALUES)
def test_several_clients_at_a_site_are_one_masked_sum(name, schema, ten, tmp_path):
    shares = (1, 2, 3, 4)
    federation = Federation(name, ten["table"], schema, tmp_path, shares=shares, threshold=6)
    together = federation.run()
    for part, expected in federation.simulated().parts.items():
        torch.testing.assert_close(together.parts[part], expected, rtol=0, atol=1e-6)
    answers = [message for _, message in federation.seen if isinstance(message, Result)]
    assert {len(message.tensors["ids"]) for message in answers} == set(shares)
    assert all(set(message.tensors) == {"ids"} for message in answers)


def test_a_sum_needs_clients_enough_for_its_noise_whatever_the_number_of_sites(schema, ten, tmp_path):
    shares = (1, 2, 3, 4)
    federation = Federation("dpd_fvae", ten["table"], schema, tmp_path, shares=shares, threshold=7)
    federation.dead = {"ada": "work", "bern": "work"}  # seven clients are left, at too few sites
    with pytest.raises(Aborted, match="2 of 4 parties"):
        federation.run(1)
    federation = Federation("dpd_fvae", ten["table"], schema, tmp_path / "again", shares=shares, threshold=7)
    federation.dead = {"dorn": "work"}  # three sites are left, with too few clients
    with pytest.raises(Aborted, match="6 clients are in the sum, 7 are needed"):
        federation.run(1)


def test_a_site_that_is_said_to_have_other_clients_refuses(schema, ten, tmp_path):
    with pytest.raises(Cheated, match="said to have 5 clients; it has 1"):
        half(tmp_path, schema, ten).stage(0, "advertise", order(1, clients=[5, 1, 1, 1]))


def half(tmp_path, schema, ten):
    federation = Federation("site_vae", ten["table"], schema, tmp_path)
    algorithm = compose(federation.terms, schema)
    identity = federation.identities["ada"]
    return MaskingSite("run", algorithm, tmp_path / "seal", "ada", identity, federation.known, minimum=3)


def order(number, sites=NAMES, job="round", clients=None):
    counts = clients or [1] * len(sites)
    said = {"number": number, "job": job, "sites": list(sites), "clients": counts, "minimum": 2}
    return json.dumps(said).encode()


def test_a_repeated_request_gets_the_same_answer_and_an_old_round_none(schema, ten, tmp_path):
    site = half(tmp_path, schema, ten)
    first = site.stage(0, "advertise", order(7))
    assert site.stage(0, "advertise", order(7)) == first
    restarted = half(tmp_path, schema, ten)  # after a crash, from the same disk
    restarted.folder = site.folder
    for number in (7, 6):
        with pytest.raises(Cheated, match="asked again"):
            restarted.stage(0, "advertise", order(number))
    assert restarted.stage(0, "advertise", order(8)) != first


@pytest.mark.parametrize(
    ("sites", "reason"),
    [
        (("ada", "bern", "cern", "eve"), "'eve' is not among"),
        (("bern", "cern", "dorn"), "does not have this site"),
    ],
)
def test_cohorts_of_strangers_or_without_oneself_are_refused(sites, reason, schema, ten, tmp_path):
    with pytest.raises(Cheated, match=reason):
        half(tmp_path, schema, ten).stage(0, "advertise", order(1, sites))


def test_a_cohort_of_one_is_refused_by_a_site(schema, ten, tmp_path):
    with pytest.raises(Incompatible, match="noise in 4 shares"):
        half(tmp_path, schema, ten).stage(0, "advertise", order(1, ["ada"]))


def test_stages_before_the_round_are_refused(schema, ten, tmp_path):
    with pytest.raises(Cheated, match="before its round"):
        half(tmp_path, schema, ten).stage(0, "share", b"")
    with pytest.raises(Cheated, match="before its round"):
        half(tmp_path, schema, ten).seal("round", torch.zeros(1, 3), 1)


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"number": 1, "job": "round", "sites": [1]}'])
def test_orders_that_cannot_be_read_are_refused(payload, schema, ten, tmp_path):
    with pytest.raises(ValueError, match="order"):
        half(tmp_path, schema, ten).stage(0, "advertise", payload)


def test_numbers_of_clients_are_those_of_sites(schema, ten, tmp_path):
    federation = Federation("site_vae", ten["table"], schema, tmp_path)
    federation.run(1)
    ids = [message.tensors["ids"].tolist() for _, message in federation.seen if isinstance(message, Result)]
    assert sorted(np.unique(ids)) == [0, 1, 2, 3]
