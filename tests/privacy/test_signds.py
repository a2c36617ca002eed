import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from fedsynth.errors import BadInput
from fedsynth.privacy.draw import ONE, below
from fedsynth.privacy.signds import SignDS, SignedIndex, _index_at, _places, hit_table
from fedsynth.rng import Rng


def message_probabilities(mechanism, x):
    """The exact probability of every message, from the integers that the sampler compares."""
    dim = len(x)
    favored = mechanism.favored(dim)
    bounds = (0, *hit_table(dim, favored, mechanism.count, mechanism.epsilon).cumulative, ONE)
    by_hits = [Fraction(high - low, ONE) for low, high in zip(bounds, bounds[1:], strict=False)]
    probabilities = {}
    for sign in (1, -1):
        top = set(torch.topk(torch.tensor(x) * sign, favored).indices.tolist())
        for chosen in itertools.combinations(range(dim), mechanism.count):
            hits = len(top & set(chosen))
            ways = math.comb(favored, hits) * math.comb(dim - favored, mechanism.count - hits)
            message = tuple(sorted(sign * (index + 1) for index in chosen))
            probabilities[message] = by_hits[hits] / ways / 2
    assert sum(probabilities.values()) == 1
    return probabilities


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize(("dim", "top", "count"), [(4, 1, 1), (5, 2, 1), (6, 3, 2), (6, 2, 3), (6, 5, 2)])
def test_ratio_of_any_message_is_at_most_exp_epsilon(dim, top, count, epsilon):
    mechanism = SignDS(epsilon, top=top, count=count)
    every = {}  # a contribution matters through its order alone, so all orders are all neighbors
    for x in itertools.permutations(range(dim)):
        probabilities = message_probabilities(mechanism, [float(value) for value in x])
        every[tuple(probabilities.values())] = probabilities
    worst = max(a[m] / b[m] for a, b in itertools.product(every.values(), repeat=2) for m in a)
    assert float(worst) <= math.exp(epsilon)
    assert float(worst) >= math.exp(epsilon) * 0.999 or min(top, dim - top) == 0


def test_ratio_holds_for_all_sign_patterns_and_ties():
    mechanism = SignDS(1.5, top=2)
    tables = [message_probabilities(mechanism, x) for x in itertools.product([-1.0, 0.0, 1.0], repeat=5)]
    worst = max(max(t[m] for t in tables) / min(t[m] for t in tables) for m in tables[0])
    assert float(worst) <= math.exp(1.5)


def test_one_index_has_the_papers_probability():
    p = math.exp(2.0) * 10 / (90 + math.exp(2.0) * 10)
    table = hit_table(100, 10, 1, 2.0)
    assert 1 - table.cumulative[0] / ONE == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize(("dim", "top", "count"), [(6, 2, 1), (6, 3, 2), (5, 1, 3)])
def test_messages_come_as_often_as_stated(dim, top, count):
    mechanism = SignDS(1.0, top=top, count=count)
    x = [0.5, -2.0, 3.0, 0.1, -0.7, 1.0][:dim]
    clients = 60_000
    sent = mechanism.privatize(torch.tensor(x).expand(clients, -1), {}, Rng(), np.arange(clients))
    expected = message_probabilities(mechanism, x)
    observed = dict.fromkeys(expected, 0)
    for message, times in zip(
        *np.unique(np.sort(sent.numpy(), axis=1), axis=0, return_counts=True), strict=True
    ):
        observed[tuple(message.tolist())] += int(times)
    fit = chisquare(list(observed.values()), [clients * float(p) for p in expected.values()])
    assert fit.pvalue > 1e-6
    off = SignDS(1.15, top=top, count=count)
    wrong = message_probabilities(off, x)
    assert chisquare(list(observed.values()), [clients * float(p) for p in wrong.values()]).pvalue < 1e-6


def test_the_order_of_indices_does_not_tell_which_are_favored():
    sent = SignDS(3.0, top=4, count=5).privatize(torch.randn(200, 30), {}, Rng(), np.arange(200))
    assert torch.equal(sent.abs(), sent.abs().sort(dim=1).values)
    assert ((sent > 0).all(1) | (sent < 0).all(1)).all()
    assert (sent.abs().diff(dim=1) > 0).all() and sent.abs().max() <= 30


def test_places_are_uniform_sets():
    clients = 40_000
    words = np.frombuffer(Rng(2).bytes(8 * 3 * clients), dtype="<u8").reshape(clients, 3)
    places = _places(np.full(clients, 2), 4, 7, words, Rng(2))
    sets, counts = np.unique(np.sort(places, axis=1), axis=0, return_counts=True)
    assert len(sets) == math.comb(4, 2) * 3 and (sets[:, 1] < 4).all() and (sets[:, 2] >= 4).all()
    assert chisquare(counts).pvalue > 1e-6


def test_places_name_the_favored_and_then_all_others():
    largest = torch.tensor([[1, 4, 5]])
    assert _index_at(torch.arange(7)[None], largest).tolist() == [[1, 4, 5, 0, 2, 3, 6]]


def test_integers_below_a_limit_are_uniform_though_words_are_redrawn():
    limits = np.full(3000, 3 << 62, dtype=np.uint64)  # a quarter of all words would favor the low ones
    words = np.frombuffer(Rng(3).bytes(8 * 3000), dtype="<u8")
    drawn = below(limits, words, Rng(3)).astype(np.uint64)
    assert chisquare(np.bincount((drawn >> np.uint64(62)).astype(int), minlength=3)).pvalue > 1e-6


def test_large_coordinates_are_favored_with_their_sign():
    x = torch.zeros(20_000, 50)
    x[:, 7], x[:, 31] = 5.0, -5.0
    mechanism = SignDS(6.0, top=1)
    wire = mechanism.wire(50)
    sent = mechanism.privatize(x, {}, Rng(1), np.arange(20_000))
    mean, _ = mechanism.estimate(wire.add(wire.zero(), sent, torch.ones(20_000)), 20_000.0, {}, Rng(1))
    p = math.exp(6.0) / (49 + math.exp(6.0))
    assert mean[7] == pytest.approx(p / 2, abs=0.02) and mean[31] == pytest.approx(-p / 2, abs=0.02)


def test_chunking_clients_changes_nothing():
    mechanism = SignDS(1.0, ratio=0.2, count=3)
    x, ids = torch.randn(6, 20, generator=torch.Generator().manual_seed(1)), np.array([5, 2, 9, 1, 0, 7])
    whole = mechanism.privatize(x, {}, Rng(4), ids)
    parts = [mechanism.privatize(x[i : i + 2], {}, Rng(4), ids[i : i + 2]) for i in (0, 2, 4)]
    assert torch.equal(whole, torch.cat(parts))


def test_contributions_that_are_not_finite_still_give_messages():
    x = torch.tensor([[float("nan"), float("inf"), 1.0, -float("inf")]])
    sent = SignDS(1.0, top=2).privatize(x, {}, Rng(), np.arange(1))
    assert 1 <= int(sent.abs()) <= 4


def test_a_ratio_of_one_draws_uniformly():
    x = torch.arange(5.0).expand(30_000, -1)
    sent = SignDS(5.0, ratio=1.0).privatize(x, {}, Rng(), np.arange(30_000))
    assert chisquare(np.bincount(sent.abs().flatten().numpy())[1:]).pvalue > 1e-6


def test_weights_scale_a_message():
    wire = SignedIndex(3, 2)
    total = wire.add(wire.zero(), torch.tensor([[1, 3], [-2, -3]]), torch.tensor([1.0, 0.5]))
    assert total.tolist() == [1.0, -0.5, 0.5]


def test_the_release_is_pure_and_local():
    release = SignDS(0.7, top=3).release
    assert (release.trust, release.event.epsilon, release.event.delta) == ("local", 0.7, 0.0)


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: SignDS(0.0, top=1), "epsilon="),
        (lambda: SignDS(float("inf"), top=1), "epsilon="),
        (lambda: SignDS(1.0), "top="),
        (lambda: SignDS(1.0, top=1, ratio=0.5), "top="),
        (lambda: SignDS(1.0, top=0), "top="),
        (lambda: SignDS(1.0, ratio=0.0), "ratio="),
        (lambda: SignDS(1.0, ratio=1.1), "ratio="),
        (lambda: SignDS(1.0, top=1, count=0), "count="),
        (lambda: SignDS(1.0, top=6).wire(6), "top=6"),
        (lambda: SignDS(1.0, top=2, count=6).wire(6), "count=6"),
    ],
)
def test_values_that_mean_nothing_are_refused_by_name(build, name):
    with pytest.raises(BadInput, match=name):
        build()


def test_many_indices_of_a_large_model_are_quick():
    import time

    mechanism = SignDS(4.0, ratio=0.05, count=200)
    x = torch.randn(20, 20_000)
    mechanism.wire(20_000)
    began = time.process_time()
    mechanism.privatize(x, {}, Rng(), np.arange(20))
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("messages", "clients", "fitting"),
    [
        (torch.tensor([[1, -5], [5, 2]]), 2, True),
        (torch.tensor([[1, -5]]), 2, False),
        (torch.tensor([[1], [2]]), 2, False),
        (torch.tensor([[0, 1], [5, 2]]), 2, False),
        (torch.tensor([[1, 6], [5, 2]]), 2, False),
        (torch.tensor([[1, -6], [5, 2]]), 2, False),
        (torch.tensor([[1.0, 2.0], [5.0, 2.0]]), 2, False),
    ],
)
def test_a_message_is_signed_indices_of_each_client(messages, clients, fitting):
    assert SignedIndex(5, 2).fits(messages, clients) is fitting


def test_the_wire_has_the_length_and_count_of_the_message():
    assert SignDS(1.0, top=2, count=3).wire(9) == SignedIndex(9, 3)
    assert SignedIndex(9).zero().tolist() == [0.0] * 9 and SignedIndex(9).zero().dtype == torch.float64


def test_the_ledger_reads_what_was_released():
    release = SignDS(0.7, top=3).release
    assert (release.what, release.unit) == ("sign and indices of large coordinates", "client")


@pytest.mark.parametrize(
    ("ratio", "dim", "favored"), [(0.2, 50, 10), (0.001, 50, 1), (1.0, 50, 50), (0.55, 10, 6)]
)
def test_a_ratio_favors_its_share_and_at_least_one(ratio, dim, favored):
    assert SignDS(1.0, ratio=ratio).favored(dim) == favored


def test_all_but_one_may_be_favored_or_sent():
    assert SignDS(1.0, top=5).favored(6) == 5 and SignDS(1.0, top=1, count=5).favored(6) == 1


def test_the_estimate_is_the_mean_sign_times_the_magnitude():
    mean, state = SignDS(1.0, top=1, magnitude=3.0).estimate(torch.tensor([4.0, -2.0]), 8.0, {}, Rng())
    assert mean.tolist() == [1.5, -0.75] and state == {}


@pytest.mark.parametrize(("dim", "favored", "count"), [(6, 2, 3), (6, 5, 3), (9, 4, 2), (20, 3, 6)])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_the_threshold_is_the_one_with_most_hits(dim, favored, count, epsilon):
    """By all thresholds, with the numbers of sets counted out."""
    ways = [math.comb(favored, hits) * math.comb(dim - favored, count - hits) for hits in range(count + 1)]
    most = 0.0
    for threshold in range(1, min(count, favored) + 1):
        tilted = [way * (math.exp(epsilon) if hits >= threshold else 1.0) for hits, way in enumerate(ways)]
        most = max(most, sum(hits * weight for hits, weight in enumerate(tilted)) / sum(tilted))
    bounds = (0, *hit_table(dim, favored, count, epsilon).cumulative, ONE)
    chances = [(high - low) / ONE for low, high in itertools.pairwise(bounds)]
    assert sum(hits * chance for hits, chance in enumerate(chances)) == pytest.approx(most, rel=1e-9)


def test_seeded_signs_are_drawn_for_each_client_and_both_come():
    sent = SignDS(1.0, top=1).privatize(torch.randn(200, 5), {}, Rng(3), np.arange(200))
    assert 60 < int((sent > 0).sum()) < 140


@pytest.mark.parametrize("epsilon", [-1.0, float("nan")])
def test_a_budget_that_means_nothing_is_refused(epsilon):
    with pytest.raises(BadInput, match="epsilon="):
        SignDS(epsilon, top=1)


def test_the_table_is_exact_far_beyond_the_share_of_epsilon_that_is_kept_back():
    with localcontext(prec=90):
        gain = (Decimal(2) * (1 - Decimal(2) ** -40)).exp() * 10
        missed = Fraction(90 / (90 + gain))
    assert abs(Fraction(hit_table(100, 10, 1, 2.0).cumulative[0], ONE) - missed) < Fraction(1, 2**120)


def test_words_that_would_favor_some_places_are_drawn_again_for_each_client():
    highest = np.full((60, 1), 2**64 - 1, dtype=np.uint64)  # 2^64 words are no whole turns of three places
    assert set(_places(np.zeros(60, dtype=np.int64), 4, 7, highest, Rng(2))[:, 0].tolist()) == {4, 5, 6}
