"""The announcement of a masked round and what each side makes of it; the server's link stage by stage."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from masked_federation import NAMES, Federation

from fedsynth.deploy.link.masked import MaskedLink, MaskingSite, _Order, _wire_of, masking
from fedsynth.deploy.link.messages import Result, Staged
from fedsynth.deploy.link.remote import Remote
from fedsynth.deploy.participation import compose
from fedsynth.errors import BadInput, Incompatible
from fedsynth.federation.state import ServerState
from fedsynth.transport.agreement import Aborted, Agreement, Cheated
from fedsynth.transport.primitives import Identity
from fedsynth.transport.ring import Parties, Ring
from fedsynth.transport.secagg import SecAgg

ORDER = _Order(7, "round", ("ada", "bern", "cern", "dorn"), (1, 1, 1, 1), 2)
KEYS = {name: name.encode() for name in ("ada", "bern", "cern", "dorn", "eve")}


def said(**changes):
    plain = {"number": 7, "job": "round", "sites": list(ORDER.sites), "clients": [1] * 4, "minimum": 2}
    return json.dumps({**plain, **changes}).encode()


def test_an_order_comes_back_as_it_was():
    assert _Order.from_bytes(ORDER.to_bytes()) == ORDER == _Order.from_bytes(said())
    edge = _Order(0, "balance", ("ada",), (1,), 0)
    assert _Order.from_bytes(edge.to_bytes()) == edge


@pytest.mark.parametrize(
    "changes",
    [
        {"number": -1},
        {"number": 1.0},
        {"number": True},
        {"job": 3},
        {"sites": ["ada", "bern", "cern", 4]},
        {"sites": ["ada", "bern", "cern", "ada"]},
        {"sites": ["ada", "bern", "cern"]},
        {"clients": [1, 1, 1]},
        {"clients": [1, 1, 1, 0]},
        {"clients": [1, 1, 1, -1]},
        {"clients": [1, 1, 1, "1"]},
        {"minimum": -1},
        {"minimum": None},
    ],
)
def test_an_order_that_means_nothing_is_refused(changes):
    with pytest.raises(BadInput, match="has a number, a job, the names of different sites and their clients"):
        _Order.from_bytes(said(**changes))


@pytest.mark.parametrize("name", ["number", "job", "sites", "clients", "minimum"])
def test_an_order_without_one_of_its_fields_cannot_be_read(name):
    fields = json.loads(said())
    del fields[name]
    for payload in (json.dumps(fields).encode(), said(sites=3), b"{", b"7"):
        with pytest.raises(BadInput, match="cannot be read"):
            _Order.from_bytes(payload)


def ring(count=4, threshold=3, colluders=0, largest=1):
    return Ring(50, 20, Parties(count, threshold, colluders, largest), share=4.5)


def test_the_terms_of_a_round_are_made_from_the_order_and_the_noise():
    roster = {0: b"ada", 1: b"bern", 2: b"cern", 3: b"dorn"}
    expected = Agreement("run round", 7, 50, 20, 3, roster, 0, {}, 3, 4.5)
    assert ORDER.agreement("run", ring(), KEYS) == expected
    assert replace(ORDER, minimum=4).agreement("run", ring(), KEYS).threshold == 4
    assert replace(ORDER, minimum=9).agreement("run", ring(), KEYS).threshold == 4  # no more than there are
    helped = ORDER.agreement("run", ring(4, 4, colluders=1), KEYS)
    assert (helped.colluders, helped.least, helped.threshold) == (1, 4, 4)


def test_sites_with_several_clients_count_as_many_shares():
    order = _Order(8, "balance", ("bern", "eve"), (2, 3), 2)
    terms = order.agreement("run", ring(5, 5, largest=3), KEYS)
    expected = Agreement("run balance", 8, 50, 20, 2, {0: b"bern", 1: b"eve"}, 0, {0: 2, 1: 3}, 5, 4.5)
    assert terms == expected


@pytest.mark.parametrize(
    ("order", "wire", "reason"),
    [
        (ORDER, ring(count=5, threshold=5), "4 clients at 4 sites for noise in 5 shares"),
        (ORDER, ring(count=3), "4 clients at 4 sites for noise in 3 shares"),
        (
            _Order(1, "round", ("ada", "bern"), (3, 1), 2),
            ring(4, 4, largest=2),
            "a site with 3 clients knows as many",
        ),
        (ORDER, Ring(50, 20), "this mechanism shares none out"),
    ],
)
def test_a_cohort_that_the_noise_was_not_made_for_is_refused(order, wire, reason):
    with pytest.raises(Incompatible, match=reason):
        order.agreement("run", wire, KEYS)


@pytest.fixture
def federation(schema, ten, tmp_path):
    return Federation("site_vae", ten["table"], schema, tmp_path)


def half(federation, folder, **changes):
    algorithm = compose(federation.terms, federation.schema)
    plain = ("run", algorithm, folder, "ada", federation.identities["ada"], federation.known, 3)
    return replace(MaskingSite(*plain), **changes)


def test_a_site_says_who_it_is_and_remembers_the_last_round_on_disk(federation, tmp_path):
    site = half(federation, tmp_path / "deep" / "seal")
    assert site.stage(0, "identity", b"") == federation.known["ada"]
    site.stage(0, "advertise", said(number=12))
    assert (tmp_path / "deep" / "seal" / "last").read_text() == "12"
    again = half(federation, tmp_path / "deep" / "seal")
    with pytest.raises(Cheated, match="the last was 12"):
        again.stage(0, "advertise", said(number=12))
    again.stage(0, "advertise", said(number=13))
    half(federation, tmp_path / "other").stage(0, "advertise", said(number=0))  # the very first


def test_a_site_agrees_to_no_fewer_parties_than_its_own_minimum(federation, tmp_path):
    with pytest.raises(Cheated, match="over 3 parties was asked for; this one agrees to 4"):
        half(federation, tmp_path, minimum=4).stage(0, "advertise", said())
    half(federation, tmp_path, minimum=3).stage(0, "advertise", said())


def test_shares_are_kept_for_the_work_and_earlier_answers_end_with_their_round(federation, tmp_path):
    site = half(federation, tmp_path)
    first = site.stage(0, "advertise", said(number=1))
    assert site.stage(0, "mask", b"shares") == b"" and site._delivered == b"shares"
    second = site.stage(0, "advertise", said(number=2))
    assert second != first and site.stage(0, "advertise", said(number=2)) == second
    with pytest.raises(Cheated, match="asked again"):
        site.stage(0, "advertise", said(number=1))  # what was answered before is forgotten, not repeated
    with pytest.raises(Cheated, match="which has none"):
        site.unseal(b"x")


def test_a_site_masks_its_vector_only_for_the_job_of_the_round(federation, tmp_path):
    site = half(federation, tmp_path)
    site.stage(0, "advertise", said())
    with pytest.raises(Cheated, match="job='balance': this masked round was begun for the job 'round'"):
        site.seal("balance", torch.zeros(1, 3), 1)
    for total, clients in ((torch.zeros(2, 3), 1), (torch.zeros(1, 3), 2), (torch.zeros(0, 3), 1)):
        with pytest.raises(Cheated, match="this site's message is one vector with the 1 shares"):
            site.seal("round", total, clients)


def test_the_site_s_half_is_made_with_what_it_was_given(federation, tmp_path):
    identity, algorithm = Identity.fresh(), compose(federation.terms, federation.schema)
    site = masking("bern", identity, KEYS, 4, 5)("run 9", algorithm, tmp_path)
    assert (site.run, site.name, site.minimum, site.clients) == ("run 9", "bern", 4, 5)
    assert site.algorithm is algorithm and site.identity is identity and site.known is KEYS
    assert site.folder == tmp_path
    usual = masking("bern", identity, KEYS)("run 9", algorithm, tmp_path)
    assert (usual.minimum, usual.clients) == (2, 1)


def test_a_job_has_the_wire_of_its_message(federation):
    algorithm = compose(federation.terms, federation.schema)
    assert _wire_of(algorithm, "round") == algorithm.wire
    assert _wire_of(algorithm, "balance") == algorithm.opening.wire
    for other, job in ((algorithm, "shell"), (replace(algorithm, opening=None), "balance")):
        with pytest.raises(BadInput, match=f"job='{job}': this run has no such job"):
            _wire_of(other, job)


def test_each_round_has_a_number_that_no_other_session_or_round_has(federation):
    algorithm, state = federation.begun()
    ids, numbers = np.arange(4), []
    for version in range(2):
        federation.link.start(algorithm, ids, replace(state, version=version))
        numbers.append(federation.link._round.agreement.number)
    session = federation.link.remote.roster.session
    assert numbers == [session * 2**24 + 1, session * 2**24 + 2]
    terms = federation.link._round.agreement
    assert terms.run == "run round" and list(terms.roster.values()) == [
        federation.known[name] for name in NAMES
    ]
    federation.link.start(algorithm.opening, ids, state)
    assert federation.link._round.agreement.run == "run balance"


def test_a_server_learns_who_the_sites_are_and_needs_all_of_them(federation):
    federation.link.known = {}
    algorithm, state = federation.begun()
    federation.link.start(algorithm, np.arange(4), state)
    assert federation.link.known == federation.known
    asked = [
        site
        for site, message in federation.seen
        if isinstance(message, Staged) and message.name == "identity"
    ]
    assert sorted(asked) == list(NAMES)
    federation.link._introduce(0)
    assert len([m for _, m in federation.seen if getattr(m, "name", "") == "identity"]) == 4  # asked once


def test_a_site_that_does_not_say_who_it_is_stops_the_first_round(federation):
    federation.link.known = {name: federation.known[name] for name in ("ada", "dorn")}
    federation.dead = {"cern": "identity", "bern": "identity"}
    algorithm, state = federation.begun()
    with pytest.raises(Aborted, match="^bern, cern did not say who they are"):
        federation.link.start(algorithm, np.arange(4), state)


def test_a_vector_that_does_not_fit_is_lost_and_told(federation):
    words = []
    algorithm, state = federation.begun()
    federation.link.remote.tell = lambda *told: words.append(told)
    federation.link.start(algorithm, np.arange(4), state)
    arrived = federation.link.remote.next()
    site = federation.link.remote.roster.owner(int(arrived.ids[0]))
    federation.link.remote.next = lambda: replace(arrived, messages=arrived.messages[:, :-1], lost=2)
    spoilt = federation.link.next()
    assert spoilt.lost == 3 and spoilt.ids.tolist() == [] and spoilt.ids.dtype == np.int64
    assert spoilt.messages.shape == (0, algorithm.wire.dim) and words[0][0] == site
    assert words[0][1] == 0 and words[0][2].startswith("is left out of the masked sum: ")
    federation.link.remote.next = lambda: replace(arrived, messages=arrived.messages.float())
    assert federation.link.next().lost == 1
    federation.link.remote.next = lambda: replace(arrived, ids=arrived.ids[:0], lost=1)
    assert federation.link.next().messages is arrived.messages  # news of somebody who will not come
    federation.link.remote.next = lambda: arrived
    good = federation.link.next()
    assert good.ids.tolist() == arrived.ids.tolist() and good.lost == arrived.lost and len(good.messages) == 0


def test_the_link_beneath_keeps_the_books(federation):
    algorithm, state = federation.begun()
    link = federation.link
    assert (
        link.absent().tolist() == [] == link.absent(for_good=True).tolist()
        and link.absent().dtype == np.int64
    )
    link.start(algorithm, np.arange(4), state)
    while link.next().ids[0] != 3:
        pass
    total = link.open()
    assert total.dtype == torch.int64 and len(total) == algorithm.wire.dim
    link.commit()
    index = link.index()
    used = [member.used for member in link.remote.roster.members.values()]
    assert all(len(names) == 1 for names in used) and index.keys() == link.remote.index().keys()
    other = MaskedLink(Remote(link.remote.channel, "run"))
    other.restore(index)
    assert [member.used for member in other.remote.roster.members.values()] == used
    link.close(ServerState(1, state.parts, {}, {}))
    assert all(site._standing("run").over for site in federation.sites.values())


def test_the_server_runs_the_algorithm_over_sums_that_the_link_opens(federation):
    algorithm = compose(federation.terms, federation.schema)
    routed = federation.link.routed(algorithm)
    assert routed.transport.link is federation.link is routed.opening.transport.link
    assert isinstance(routed.transport.hidden, SecAgg) and routed.transport.hidden == algorithm.transport
    assert routed.opening.transport.hidden == algorithm.opening.transport
    alone = federation.link.routed(replace(algorithm, opening=None))
    assert alone.opening is None and alone.transport.link is federation.link


def test_results_are_packed_bytes_alone(federation):
    algorithm, state = federation.begun()
    federation.link.start(algorithm, np.arange(4), state)
    arrival = federation.link.next()
    assert arrival.messages.shape == (0, algorithm.wire.dim) and arrival.messages.dtype == torch.int64
    results = [message for _, message in federation.seen if isinstance(message, Result)]
    assert results and all(message.blob and set(message.tensors) == {"ids"} for message in results)
