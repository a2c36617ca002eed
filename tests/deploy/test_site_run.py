"""One run at a site between messages: whose memory is kept, what is sent in which form, and which state clients see."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_buffered_site import Server
from test_site import POLICY, VALUES, make, started, terms, told, work_of  # noqa: F401
from three_sites import holdings, terms_for

from fedsynth.deploy.link.messages import Begin, Done, Refuse, Result, Settle
from fedsynth.deploy.participation import compose
from fedsynth.deploy.site.site import Site
from fedsynth.federation.schedule import Rotation
from fedsynth.federation.state import SEALED
from fedsynth.privacy.banded import BandedGaussian
from fedsynth.privacy.clip import Clip
from fedsynth.rng import Rng

# ruff: noqa: F811
FREE = replace(
    POLICY, recipes=("fvae", "dpd_fvae", "dp_fed_wae"), transports=("clear", "he"), without_privacy=True
)


def message(site, state, ids, **changes):
    answer = told(site, work_of(state, ids=ids, **changes))
    assert isinstance(answer, Result)
    return answer.tensors["messages"]


def test_clients_send_one_sum_and_one_client_what_it_computed(make, terms, tmp_path):
    sums = {}
    for ids in ((3,), (5,), (3, 5)):
        site = make(folder=tmp_path / str(ids))
        _, state = started(site, terms)
        result = told(site, work_of(state, ids=ids))
        assert result.blob == b"" and set(result.tensors) == {"ids", "messages"}
        assert result.tensors["ids"].tolist() == list(ids)
        sums[ids] = result.tensors["messages"]
    algorithm = compose(terms, site.holding.schema)
    assert {tuple(sent.shape) for sent in sums.values()} == {(1, algorithm.dim)}
    assert sums[(3,)].dtype == torch.float32 and sums[3, 5].dtype == torch.float64 and sums[(3,)].any()
    torch.testing.assert_close(sums[3, 5], sums[(3,)].double() + sums[(5,)].double(), rtol=0, atol=1e-6)


def test_messages_that_do_not_add_up_are_sent_one_by_one(make, schema):
    values = {
        "latent": 2,
        "hidden": (4,),
        "group": 2,
        "participations": 2,
        "rounds": 2,
        "pretraining": 2,
        "epsilon": 8.0,
    }
    local = terms_for("dp_fed_wae", schema, values, minimum_cohort=2, epsilon=8.0)
    site = make(FREE)
    algorithm = compose(local, schema)
    state = algorithm.init(Rng(1).at("init"))
    answer = told(site, Begin("run", 1, local, 3, 3, {}))
    assert isinstance(answer, Done), answer
    sent = told(site, work_of(state, ids=(4, 5), tensors=_all_parts(state, (4, 5))))
    assert isinstance(sent, Result), sent
    assert len(sent.tensors["messages"]) == 2


def _all_parts(state, ids):
    return {"ids": torch.tensor(ids), **{f"parts/{name}": flat for name, flat in state.parts.items()}}


def test_only_clients_whose_result_was_used_remember_it(make, terms, tmp_path):
    later = {}
    for case in ("trained", "fresh"):
        site = make(folder=tmp_path / case)
        _, state = started(site, terms)
        if case == "trained":
            used = told(site, work_of(state, ids=(3,))).name
            told(site, work_of(state, ids=(5,), part=1))
            assert isinstance(told(site, Settle("run", 1, 1, 1, (used,))), Done)
        for client in (3, 5):
            later[case, client] = message(site, state, (client,), version=1, part=client)
    assert torch.equal(later["trained", 5], later["fresh", 5])
    assert not torch.equal(later["trained", 3], later["fresh", 3])


def test_what_a_server_asked_before_it_was_started_again_is_forgotten(make, terms, tmp_path):
    later = {}
    for case in ("again", "fresh"):
        site = make(folder=tmp_path / case)
        _, state = started(site, terms)
        if case == "again":
            told(site, work_of(state, ids=(3, 5)))
        assert isinstance(started(site, terms, session=2)[0], Done)
        used = told(site, work_of(state, ids=(3, 4), session=2)).name
        later[case] = message(site, state, (5,), version=1, session=2, used=(used,))
    assert torch.equal(later["again"], later["fresh"])


def test_nothing_waits_once_a_run_is_over(make, terms):
    site = make()
    _, state = started(site, terms)
    told(site, work_of(state))
    assert len(site._standing("run").waiting) == 1
    told(site, Settle("run", 1, 0, 0, (), over=True))
    over = make()._standing("run")
    assert over.over and over.waiting == ()


def test_equal_results_of_different_work_have_different_names(schema, ten, terms, tmp_path):
    """A client without rows sends the same nothing in every round."""
    site = Site(holdings(ten["table"], schema)["ada"], POLICY, tmp_path, compose, seed=1)
    algorithm = compose(terms, schema)
    state = algorithm.init(Rng(1).at("init"))
    told(site, Begin("run", 1, terms, 0, 3, {"encoder": state.parts["encoder"]}))
    results = [told(site, work_of(state, ids=(0,), version=version)) for version in (0, 1)]
    assert torch.equal(*(one.tensors["messages"] for one in results)) and results[0].name != results[1].name


def banded(terms, schema):
    algorithm = compose(terms, schema)
    clip = algorithm.mechanism.clip
    turns = Rotation(algorithm.schedule.clients, 2)
    return replace(algorithm, mechanism=BandedGaussian(Clip(clip.bound, clip.blocks), 2.0, 2), schedule=turns)


def test_clients_see_the_broadcast_and_nothing_else_of_the_server(make, terms):
    site = make(make_algorithm=banded)
    answer, state = started(site, terms, make_algorithm=banded)
    assert isinstance(answer, Done)
    values = state.mechanism["values"]
    tensors = {
        "ids": torch.tensor([3]),
        "parts/decoder": state.parts["decoder"] + 1,
        "mechanism/values": values + 2,
    }
    run = site._run("run")
    seen = run._state(work_of(state, version=1, tensors=tensors), run.algorithm)
    assert seen.version == 1 and seen.memory == {} and set(seen.mechanism) == {"values"}
    assert torch.equal(seen.mechanism["values"], values + 2)
    assert torch.equal(seen.parts["decoder"], state.parts["decoder"] + 1)
    assert torch.equal(seen.parts["encoder"], state.parts["encoder"])
    for wrong in (values.float() if values.dtype != torch.float32 else values.double(), values[None]):
        answer = told(site, work_of(state, tensors={**tensors, "mechanism/values": wrong}))
        assert isinstance(answer, Refuse) and "mechanism/values is" in answer.reason


class Envelope:
    """A sealer whose seals anybody can open: the bytes of the numbers."""

    def __init__(self, run, algorithm, folder):
        self.parts = {name: algorithm.layouts[name].size for name in algorithm.broadcast}
        self.sealed = []

    def seal(self, job, total, clients):
        self.sealed.append((job, clients))
        return total.double().numpy().tobytes()

    def unseal(self, sealed):
        numbers = torch.frombuffer(bytearray(sealed), dtype=torch.float32)
        return dict(zip(self.parts, numbers.split(list(self.parts.values())), strict=True))


@pytest.fixture
def blind(schema):
    values = {"latent": 2, "hidden": (4,), "rounds": 3, "batch_size": 4, "momentum": 0.0}
    return terms_for("fvae", schema, values, private=False, transport="he", minimum_cohort=2)


def begun(make, blind, folder):
    site = make(FREE, folder=folder, seals={"he": Envelope})
    algorithm = compose(blind, site.holding.schema)
    assert isinstance(told(site, Begin("run", 1, blind, 3, 3, {})), Done)
    return site, algorithm.init(Rng(1).at("init"))


def test_a_sealed_average_is_opened_at_the_site_and_its_sum_is_sealed_again(make, blind, tmp_path):
    site, state = begun(make, blind, tmp_path / "open")
    parts = {name: flat + 0.1 for name, flat in state.parts.items()}
    plain = told(site, work_of(state, tensors=_all_parts(replace(state, parts=parts), (3, 5))))
    other, _ = begun(make, blind, tmp_path / "sealed")
    joined = torch.cat([parts[name] for name in other._run("run").sealer.parts])
    sealed = torch.frombuffer(bytearray(joined.numpy().tobytes()), dtype=torch.uint8)
    hidden = told(other, work_of(state, tensors={"ids": torch.tensor([3, 5]), SEALED: sealed}))
    assert isinstance(plain, Result) and isinstance(hidden, Result)
    assert set(hidden.tensors) == {"ids"} and len(hidden.blob) > 8 and hidden.blob == plain.blob
    assert other._run("run").sealer.sealed == [("round", 2)]
    for wrong in (sealed.long(), sealed[None], sealed[:0]):
        again = work_of(state, version=1, tensors={"ids": torch.tensor([3, 5]), SEALED: wrong})
        answer = told(other, again)
        assert isinstance(answer, Refuse) and "expected bytes" in answer.reason


def test_a_sealer_leaves_what_is_sent_in_the_clear_alone(make, terms):
    site = make(seals={"clear": Envelope})
    _, state = started(site, terms)
    result = told(site, work_of(state))
    assert result.blob == b"" and "messages" in result.tensors and site._run("run").sealer.sealed == []


def test_asking_a_client_once_more_is_one_more_turn_by_the_sites_books(tmp_path):
    server = Server(tmp_path, "central")
    turns = server.algorithm.schedule.turns
    for version in range(turns):
        assert isinstance(server.ask(version), Result)
    server.begin()
    again = server.ask(turns - 1)
    assert isinstance(again, Refuse) and again.code == "turns" and len(server.lines()) == turns


def test_clients_are_computed_one_by_one_where_the_site_says_so(make, terms, tmp_path):
    """What one client sends then has the same bits whoever else is asked."""
    wide = replace(terms, values={**VALUES, "hidden": (64,), "batch_size": 8})
    sums = {}
    for ids in ((3,), (4,), (5,), (3, 4, 5)):
        site = make(folder=tmp_path / str(ids), chunk=1)
        _, state = started(site, wide)
        sums[ids] = message(site, state, ids).double()
    assert torch.equal(sums[3, 4, 5], sum(sums[(client,)] for client in (3, 4, 5)))
    assert np.isfinite(sums[3, 4, 5].numpy()).all()
