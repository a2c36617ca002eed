"""The opened sum is the plain sum, whoever drops out when; what the server sees of each is noise."""

import tracemalloc

import numpy as np
import pytest
from cohort import Cohort
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from fedsynth.transport.agreement import STAGES, Aborted
from fedsynth.transport.bits import unpack
from fedsynth.transport.masking_server import ServerRound
from fedsynth.transport.primitives import KEY, derive, mask
from fedsynth.transport.shamir import SHARE, join


@st.composite
def cohorts(draw):
    count = draw(st.integers(2, 9))
    threshold = draw(st.integers(count // 2 + 1, count))
    threshold = max(2, threshold)
    gone = draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count - threshold))
    stages = [draw(st.sampled_from(STAGES)) for _ in gone]
    drops = {
        stage: [party for party, when in zip(gone, stages, strict=True) if when == stage] for stage in STAGES
    }
    return (
        count,
        threshold,
        draw(st.integers(1, 40)),
        draw(st.integers(2, 32)),
        drops,
        draw(st.integers(0, 999)),
    )


@settings(max_examples=40, deadline=None)
@given(cohorts())
def test_the_opened_sum_is_the_plain_sum_of_the_survivors_whoever_drops_out_when(case):
    count, threshold, dim, bits, drops, seed = case
    cohort = Cohort(count, threshold, dim, bits, seed=seed)
    opened = cohort.run(drops)
    early = {party for stage in STAGES[:3] for party in drops[stage]}
    assert set(cohort.server.survivors) == set(range(count)) - early
    assert opened.tolist() == cohort.plain_sum().tolist()


@pytest.mark.parametrize("stage", STAGES)
def test_below_the_threshold_the_round_aborts_and_nothing_opens(stage):
    cohort = Cohort(5, 4)
    with pytest.raises(Aborted, match="begin a new round"):
        cohort.run({stage: [0, 1]})
    with pytest.raises(Aborted):
        cohort.server.open()


def test_above_a_hundred_parties_neighbors_are_enough():
    cohort = Cohort(110, 100, dim=5, colluders=5)
    degree, needed = cohort.agreement.degree
    assert needed < degree < 60
    drops = {"advertise": [3], "share": [9], "mask": [20, 50, 51], "confirm": [7], "reveal": [99]}
    assert cohort.run(drops).tolist() == cohort.plain_sum().tolist()
    assert len(cohort.server.survivors) == 105


def masked_vectors(cohort):
    cohort.run_until("mask")
    sent = {}
    for party, request in cohort.server.requests().items():
        answer = cohort.answer(party, request)
        sent[party] = unpack(answer, cohort.agreement.dim, cohort.agreement.bits)
    return sent


def looks_uniform(vector, bits):
    bins = np.bincount(vector >> np.uint32(bits - 6), minlength=64)
    low = np.bincount(vector & np.uint32(63), minlength=64)
    ranks = kstest((vector + 0.5) / 2**bits, "uniform").pvalue
    return min(chisquare(bins).pvalue, chisquare(low).pvalue, ranks) > 1e-6


def test_masked_vectors_look_uniform_and_tell_nothing_of_the_vector():
    cohort = Cohort(4, 3, dim=50_000)
    cohort.vectors = {party: np.full(50_000, 5, dtype=np.uint32) for party in range(4)}
    sent = masked_vectors(cohort)
    assert not looks_uniform(cohort.vectors[0], 20)
    for party, vector in sent.items():
        assert looks_uniform(vector, 20)
        for other in range(party):
            difference = (vector - sent[other]) & np.uint32(2**20 - 1)
            assert looks_uniform(difference, 20)


def attack(cohort, victim, helpers, sent):
    """All that the server and `helpers` can take away from the victim's masked vector with what they hold."""
    terms = cohort.agreement
    left = sent[victim].copy()
    for helper in helpers:  # the masks between them and the victim
        between = mask(cohort.parties[helper]._pair_seed(victim), terms.dim)
        left = left - between if victim < helper else left + between
    held = {helper: cohort.parties[helper]._held[victim] for helper in helpers}
    own = join({helper: shares[:SHARE] for helper, shares in held.items()}, len(held)) or bytes(KEY)
    paired = join({helper: shares[SHARE:] for helper, shares in held.items()}, len(held)) or bytes(KEY)
    left = left - mask(derive(own, terms.context, b"own"), terms.dim)
    stolen = cohort.parties[victim]
    guess = type(stolen)(terms, victim, stolen.identity, _keys=stolen._keys)
    guess._masking = type(stolen._masking)(paired)
    for other in set(range(len(sent))) - {victim, *helpers}:
        between = mask(guess._pair_seed(other), terms.dim)
        left = left - between if victim < other else left + between
    return left & np.uint32(2**terms.bits - 1)


def test_fewer_than_the_threshold_cannot_open_anothers_vector_and_the_threshold_could():
    cohort = Cohort(6, 4, dim=20_000)
    cohort.vectors[0] = np.full(20_000, 77, dtype=np.uint32)
    sent = masked_vectors(cohort)
    tried = attack(cohort, 0, [1, 2, 3], sent)
    assert looks_uniform(tried, 20) and np.mean(tried == 77) < 1e-3
    opened = attack(cohort, 0, [1, 2, 3, 4], sent)  # the attack itself works: one share more and it is over
    assert (opened == 77).all()


def absorb_peak(count):
    cohort = Cohort(count, count, dim=200_000)
    cohort.run_until("mask")
    answers = ((p, cohort.answer(p, request)) for p, request in cohort.server.requests().items())
    peak = 0
    for party, answer in answers:
        tracemalloc.start()
        cohort.server.take(party, answer)
        peak = max(peak, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return peak, sum(value.nbytes for value in vars(cohort.server).values() if isinstance(value, np.ndarray))


def test_the_servers_memory_does_not_grow_with_the_number_of_vectors():
    few, many = absorb_peak(3), absorb_peak(12)
    assert few[1] == many[1] == 4 * 200_000
    assert many[0] < 1.1 * few[0]


def test_a_server_round_opens_nothing_before_its_time():
    with pytest.raises(Aborted):
        ServerRound(Cohort(3, 2).agreement).open()
