"""Whatever a server says, a sum that opens has the noise that the sites' ledgers count on."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from masked_federation import NAMES, Federation

from fedsynth.deploy.link.codec import decode, encode
from fedsynth.deploy.link.masked import MaskingSite
from fedsynth.deploy.link.messages import Begin, Refuse, Result, Work, read, write
from fedsynth.deploy.participation import compose
from fedsynth.errors import Incompatible
from fedsynth.privacy.ledger import Ledger
from fedsynth.transport.agreement import Aborted, Cheated
from fedsynth.transport.bits import frame

SHARES = (3, 3, 4)


def three(ten, schema, folder, shares=SHARES, **values):
    """Three sites of several patients each, who are what is protected."""
    values = {"threshold": sum(shares), "batch_size": sum(shares), **values}
    return Federation("site_vae", ten["table"], schema, folder, shares=shares, unit="client", **values)


def lines_of(folder):
    return [line for path in folder.glob("*/ledger.jsonl") for line in Ledger(path).lines()]


def opened(federation, algorithm, state, ids):
    """What a server opens that asks these clients for a round."""
    federation.link.start(algorithm, np.asarray(ids), state)
    for _ in federation.sites:
        federation.link.next()
    return federation.link.open()


def test_a_server_that_asks_one_patient_of_each_site_opens_nothing(schema, ten, tmp_path):
    federation = three(ten, schema, tmp_path)
    algorithm, state = federation.begun()
    with pytest.raises(Aborted):
        opened(federation, algorithm, state, [0, 3, 6])
    refused = [message for _, message in federation.seen if isinstance(message, Refuse)]
    assert [message.reason.partition(":")[0] for message in refused] == ["ids"] * 3
    assert not lines_of(tmp_path) and not any(isinstance(message, Result) for _, message in federation.seen)


def test_the_opened_sum_has_the_noise_that_every_site_s_ledger_counts(schema, ten, tmp_path):
    federation = three(ten, schema, tmp_path, clip=1e-9, hidden=(64,))
    algorithm, state = federation.begun()
    total = opened(federation, algorithm, state, range(10))
    mechanism = algorithm.mechanism
    found = float(mechanism.wire(mechanism.dim).centered(total).std()) / mechanism.limit**0.5
    (line,) = {json.dumps([line.event, line.public]): line for line in lines_of(tmp_path)}.values()
    assert found == pytest.approx(line.public["noise_multiplier"], rel=0.1)
    assert line.event["noise_multiplier"] == 1.0  # of the six shares of ten that a site of four does not know
    assert line.public["noise_multiplier"] == pytest.approx((10 / 6) ** 0.5)


@pytest.mark.parametrize("ids", [[0, 0, 1], [0, 1, 3], [1, 2, 3], []])
def test_ids_that_are_no_cohort_of_the_site_are_refused(ids, schema, ten, tmp_path):
    federation = three(ten, schema, tmp_path)
    algorithm, state = federation.begun()
    tensors = {"ids": torch.tensor(ids, dtype=torch.int64)}
    work = Work("run", 1, "round", 0, 0, 3, 0, (), tensors)
    answer = read(federation.sites["ada"].handle(write(work)))
    assert isinstance(answer, Refuse) and "ids" in answer.reason and not lines_of(tmp_path)


def test_the_opening_question_needs_every_client_of_a_site_too(schema, ten, tmp_path):
    federation = three(ten, schema, tmp_path)
    algorithm, state = federation.begun()
    assert algorithm.opening is not None
    with pytest.raises(Aborted):
        opened(federation, algorithm.opening, state, [0, 3, 6])
    assert not lines_of(tmp_path)


def order(number, clients=SHARES, job="round", sites=NAMES[:3]):
    said = {"number": number, "job": job, "sites": list(sites), "clients": list(clients), "minimum": 2}
    return json.dumps(said).encode()


def halves(federation, **other_values):
    """Each site's half of the protocol; all but the first were sent terms with other values."""
    changed = replace(federation.terms, values={**federation.terms.values, **other_values})
    return {
        name: MaskingSite(
            "run",
            compose(federation.terms if name == NAMES[0] else changed, federation.schema),
            site.folder / "half",
            name,
            federation.identities[name],
            federation.known,
            minimum=3,
            clients=len(site.holding.clients),
        )
        for name, site in federation.sites.items()
    }


def keys_of(sites, said):
    return frame(
        [
            place.to_bytes(4, "big") + site.stage(0, "advertise", said)
            for place, site in enumerate(sites.values())
        ]
    )


def masked_until_the_work(sites, said):
    """Run the stages before the work: every site is ready to seal."""
    keys = keys_of(sites, said)
    for site in sites.values():
        site.stage(0, "share", keys)


@pytest.mark.parametrize("shares_of_noise", [0, 2, 4, 30])
def test_a_vector_with_another_number_of_shares_is_not_sealed(shares_of_noise, schema, ten, tmp_path):
    sites = halves(three(ten, schema, tmp_path))
    masked_until_the_work(sites, order(1))
    dim = sites["ada"].algorithm.wire.dim
    with pytest.raises(Cheated, match=f"{shares_of_noise} shares of noise"):
        sites["ada"].seal("round", torch.zeros(1, dim, dtype=torch.int64), shares_of_noise)


def test_two_vectors_are_not_sealed_as_one(schema, ten, tmp_path):
    sites = halves(three(ten, schema, tmp_path))
    masked_until_the_work(sites, order(1))
    with pytest.raises(Cheated, match="in 2 vectors"):
        sites["ada"].seal("round", torch.zeros(2, sites["ada"].algorithm.wire.dim, dtype=torch.int64), 3)


def test_a_masked_round_is_for_the_job_that_it_was_begun_for(schema, ten, tmp_path):
    """The ring of another job may be larger, and a sum that is not reduced tells more than the noise covers."""
    sites = halves(three(ten, schema, tmp_path))
    masked_until_the_work(sites, order(1, job="balance"))
    dim = sites["ada"].algorithm.opening.wire.dim
    with pytest.raises(Cheated, match="begun for the job 'balance'"):
        sites["ada"].seal("round", torch.zeros(1, dim, dtype=torch.int64), 3)


def test_a_masked_round_takes_one_vector(schema, ten, tmp_path):
    federation = three(ten, schema, tmp_path)
    algorithm, state = federation.begun()
    opened(federation, algorithm, state, range(10))
    site = federation.sites["ada"]._run("run")
    with pytest.raises(Cheated, match="expects nothing more"):
        site.sealer.seal("round", torch.zeros(1, algorithm.wire.dim, dtype=torch.int64), 3)


@pytest.mark.parametrize("other", [{"noise_multiplier": 0.1}, {"bits": 23}, {"threshold": 9}])
def test_sites_that_were_told_different_terms_do_not_sum_together(other, schema, ten, tmp_path):
    """Each accounts for the shares of the others as if they were as large as its own."""
    sites = halves(three(ten, schema, tmp_path), **other)
    keys = keys_of(sites, order(1))
    with pytest.raises(Cheated, match="not signed by its identity"):
        sites["ada"].stage(0, "share", keys)


def test_sites_that_were_told_different_jobs_do_not_sum_together(schema, ten, tmp_path):
    sites = halves(three(ten, schema, tmp_path))
    wire = sites["ada"].algorithm.wire
    balance = replace(
        sites["ada"].algorithm.opening, mechanism=sites["ada"].algorithm.mechanism, dim=wire.dim
    )
    for site in sites.values():
        site.algorithm = replace(site.algorithm, opening=balance)  # two jobs whose sums have the same form
    said = {name: order(1, job="round" if name == "ada" else "balance") for name in sites}
    keys = frame(
        [
            place.to_bytes(4, "big") + site.stage(0, "advertise", said[name])
            for place, (name, site) in enumerate(sites.items())
        ]
    )
    with pytest.raises(Cheated, match="not signed by its identity"):
        sites["ada"].stage(0, "share", keys)


def test_the_same_terms_and_job_do_sum_together(schema, ten, tmp_path):
    masked_until_the_work(halves(three(ten, schema, tmp_path)), order(1))


@pytest.mark.parametrize(
    ("clients", "reason"), [((3, 3, 400), "noise in 10 shares"), ((3, 2, 5), "a site with 5 clients knows")]
)
def test_lies_about_the_size_of_other_sites_are_refused(clients, reason, schema, ten, tmp_path):
    with pytest.raises(Incompatible, match=reason):
        halves(three(ten, schema, tmp_path))["ada"].stage(0, "advertise", order(1, clients))


def test_a_thousand_clients_that_are_not_there_open_nothing(schema, ten, tmp_path):
    """Shares as small as for 1,000 clients need 999 clients in the sum, each vouched for by the site that has it."""
    federation = three(ten, schema, tmp_path, threshold=999)
    federation.terms = replace(federation.terms, clients=1000, largest=600)
    sites, said = halves(federation), order(1, (3, 397, 600))
    own = bytes(4) + sites["ada"].stage(0, "advertise", said)
    for site, count in (("bern", 397), ("cern", 600)):
        with pytest.raises(Cheated, match=f"said to have {count} clients"):
            sites[site].stage(0, "advertise", said)
    with pytest.raises(Cheated, match="a cohort of 1"):
        sites["ada"].stage(0, "share", frame([own]))


@pytest.mark.parametrize("largest", [1, 3])
def test_a_site_that_is_larger_than_the_terms_say_does_not_begin(largest, schema, ten, tmp_path):
    federation = three(ten, schema, tmp_path)
    terms = replace(federation.terms, largest=largest)
    answer = read(federation.sites["cern"].handle(write(Begin("run", 1, terms, 6, 3))))
    assert isinstance(answer, Refuse) and f"largest={largest}: this site has 4 clients" in answer.reason


@pytest.mark.parametrize("largest", [10, 1000])
def test_a_participant_said_to_have_all_shares_does_not_make_them_count_as_secret(
    largest, schema, ten, tmp_path
):
    federation = three(ten, schema, tmp_path)
    federation.terms = replace(federation.terms, largest=largest)
    with pytest.raises(Incompatible, match="which counts on 0 at most"):
        halves(federation)["ada"].stage(0, "advertise", order(1))


def test_terms_of_before_are_read_as_those_of_sites_with_one_client(schema, ten, tmp_path):
    begin = Begin("run", 1, replace(three(ten, schema, tmp_path).terms, largest=1), 0, 3)
    envelope = decode(write(begin))
    terms = {name: value for name, value in envelope.fields["terms"].items() if name != "largest"}
    assert read(encode(replace(envelope, fields={**envelope.fields, "terms": terms}))) == read(write(begin))
