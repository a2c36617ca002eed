"""Noisy bits: what they hide, how often they are replaced, and what sums of them tell."""

import math

import numpy as np
import pytest
import torch

from fedsynth.errors import BadInput
from fedsynth.privacy.account import EpsilonDeltaDpEvent
from fedsynth.privacy.mechanism import Release
from fedsynth.privacy.rappor import Rappor, lasso
from fedsynth.rng import Rng


@pytest.mark.parametrize("epsilon", [0.5, 4.0, 100.0])
def test_bits_of_any_two_rows_differ_in_chance_by_at_most_exp_epsilon(epsilon):
    """Exact: every bit is 1 with chance 1 - f/2 or f/2; two values differ in at most 2h bits of each column."""
    rappor = Rappor((2, 3, 5), epsilon, hashes=2)
    ratio = math.log((1 - rappor.flip / 2) / (rappor.flip / 2))
    filters = [each.astype(int) for each in rappor.patterns]
    worst = sum(max(np.abs(a - b).sum() for a in each for b in each) * ratio for each in filters)
    assert worst <= epsilon and 2 * 2 * 3 * ratio <= epsilon
    assert 2 * 2 * 3 * ratio == pytest.approx(epsilon, rel=1e-5)
    first, second = (
        np.concatenate([f[c] for f, c in zip(filters, row, strict=True)]) for row in rappor.extremes
    )
    assert np.abs(first - second).sum() * ratio == pytest.approx(worst)


def bits_of(rappor, codes, rng, ids=None):
    ids = np.arange(len(codes)) if ids is None else ids
    sent = rappor.privatize(torch.as_tensor(codes), {}, rng, ids)
    return np.unpackbits(sent.numpy(), axis=1, count=int(rappor.starts[-1])), sent


def test_bits_are_replaced_as_often_as_stated():
    rappor = Rappor((2,), 1.0, hashes=1)
    told, _ = bits_of(rappor, np.zeros((50_000, 1)), Rng(1))
    pattern = rappor.patterns[0][0]
    assert told[:, pattern == 1].mean() == pytest.approx(1 - rappor.flip / 2, abs=0.01)
    assert told[:, pattern == 0].mean() == pytest.approx(rappor.flip / 2, abs=0.01)


def test_a_client_without_rows_reports_like_one_with_some_row():
    """All bits as coins would be told from a row's 58 bits of ten values by 6.8 where epsilon is 2."""
    truth, noisy = Rappor((10, 3), math.inf), Rappor((10,), 2.0)
    bits, _ = bits_of(truth, -np.ones((3_000, 2)), Rng(1))
    start = truth.starts[1]
    for filters, own in zip(truth.patterns, (bits[:, :start], bits[:, start:]), strict=True):
        shares = (own @ filters.T == truth.hashes).mean(0)  # each report is just one value's filter
        assert shares == pytest.approx(np.full(len(filters), 1 / len(filters)), abs=0.04)
        assert (own.sum(1) == truth.hashes).all()
    told, _ = bits_of(noisy, -np.ones((50_000, 1)), Rng(1))
    expected = noisy.flip / 2 + (1 - noisy.flip) * noisy.patterns[0].mean(0)
    assert told.mean(0) == pytest.approx(expected, abs=0.015)


def test_sums_are_the_same_in_any_chunks_and_tell_the_distributions():
    draw = np.random.default_rng(0)
    first = draw.integers(0, 3, 20_000)
    codes = np.stack([first, np.where(draw.random(20_000) < 0.8, first > 0, draw.integers(0, 2, 20_000))], 1)
    rappor = Rappor((3, 2), 12.0, hashes=2)
    wire = rappor.wire(2)
    _, sent = bits_of(rappor, codes, Rng(1))
    whole = wire.add(wire.zero(), sent, torch.ones(len(sent)))
    parts = wire.zero()
    for part in sent.split(6000):
        parts = wire.add(parts, part, torch.ones(len(part)))
    assert wire.zero().dtype == torch.float64  # whole to 2^53 reports
    assert torch.equal(whole, parts) and wire.fits(sent, len(sent)) and not wire.fits(sent[:, 1:], len(sent))
    truth = np.histogram2d(*codes.T, bins=(3, 2))[0] / len(codes)
    assert rappor.joint(whole, 0, 1) == pytest.approx(truth, abs=0.05)
    assert rappor.columns(whole)[0] == pytest.approx(truth.sum(1), abs=0.03)


def test_a_report_costs_its_client_epsilon_and_names_it():
    expected = Release("noisy bits of all columns", "client", "local", EpsilonDeltaDpEvent(3.0))
    assert Rappor((2, 3), 3.0).release == expected and Rappor((2, 3), math.inf).release is None


def test_a_filter_is_as_long_as_half_of_its_bits_need():
    assert [Rappor((2,), 1.0, hashes=4).length(size) for size in (1, 2, 10)] == [8, 12, 58]
    filters = Rappor((10,), 1.0).patterns[0]
    assert filters.shape == (10, 58) and (filters.sum(1) == 4).all() and filters.dtype == np.uint8
    assert len({*map(bytes, filters)}) == 10


def test_the_contrast_of_true_reports_counts_the_bits_that_tell_them_apart():
    rappor = Rappor((5, 3), math.inf)
    _, sent = bits_of(rappor, rappor.extremes, Rng(1))
    first, second = rappor.contrast(sent)
    bits = np.unpackbits(sent.numpy(), axis=1, count=int(rappor.starts[-1])).astype(int)
    assert second == -first == np.abs(bits[0] - bits[1]).sum() / 2


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_noise_is_taken_off_before_distributions_are_read(share):
    rappor = Rappor((2, 2), 3.0, hashes=1)
    codes = np.stack([np.arange(200_000) < share * 200_000, np.zeros(200_000)], 1)
    wire = rappor.wire(2)
    _, sent = bits_of(rappor, codes, Rng(2))
    total = wire.add(wire.zero(), sent, torch.ones(len(sent)))
    assert rappor.columns(total)[0] == pytest.approx([1 - share, share], abs=0.03)
    assert rappor.joint(total, 0, 1)[:, 0] == pytest.approx([1 - share, share], abs=0.06)


def test_the_lasso_takes_nothing_negative_and_is_even_where_nothing_is_seen():
    filters = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])
    assert lasso(filters, filters.T @ np.array([[1.2], [-0.2]]))[:, 0] == pytest.approx([1.0, 0.0])
    assert lasso(filters, -np.ones((4, 1)))[:, 0] == pytest.approx([0.5, 0.5])
    truth = np.array([[0.1, 0.4], [0.3, 0.2]])
    assert lasso(filters, filters.T @ truth @ filters, filters) == pytest.approx(truth, abs=2e-3)


@pytest.mark.parametrize(("epsilon", "hashes", "words"), [(0.0, 4, "epsilon=0"), (1.0, 0, "hashes=0")])
def test_bad_settings_are_refused(epsilon, hashes, words):
    with pytest.raises(BadInput, match=words):
        Rappor((2,), epsilon, hashes)
