import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest, norm

from fedsynth.rng import Rng, expand_normal, expand_uniform, subkeys


def keys(count: int, seed: int = 3) -> torch.Tensor:
    return Rng(seed).at("use").keys(np.arange(count))


def test_a_stream_does_not_depend_on_what_was_drawn_before():
    rng = Rng(5)
    first = rng.at("noise", 2).uniforms(4)
    rng.at("cohort", 1).uniforms(1000)
    rng.at("noise", 2).uniforms(7)
    assert (rng.at("noise", 2).uniforms(4) == first).all()


def test_a_longer_draw_starts_with_the_shorter_one():
    assert (Rng(5).at("a").uniforms(10)[:4] == Rng(5).at("a").uniforms(4)).all()


@pytest.mark.parametrize("other", [("a", 2), ("b", 1), ("a", "1"), ("a", 1, 0), ("a1",)])
def test_another_name_is_another_stream(other):
    assert Rng(5).at("a", 1).bytes(16) != Rng(5).at(*other).bytes(16)


def test_a_name_within_a_name_is_the_longer_name():
    assert (
        Rng(5).at("a").at("b", 1).bytes(16) == Rng(5).at("a", "b", 1).bytes(16) != Rng(5).at("b", 1).bytes(16)
    )


def test_another_seed_is_another_stream():
    assert Rng(5).at("a").bytes(16) != Rng(6).at("a").bytes(16)


def test_the_system_source_never_repeats():
    drawn = {Rng().at("noise", 1).bytes(16) for _ in range(1000)}
    assert len(drawn) == 1000
    assert (Rng().keys(np.arange(5)) != Rng().keys(np.arange(5))).all()
    assert not Rng().reproducible and Rng(0).reproducible


def test_a_clients_key_does_not_depend_on_the_others():
    alone = torch.cat([Rng(3).keys(np.array([client])) for client in (7, 2, 9)])
    assert torch.equal(Rng(3).keys(np.array([7, 2, 9])), alone)


def test_keys_differ_between_clients_uses_and_streams():
    ids = np.arange(20_000)
    every = torch.cat(
        [Rng(3).at("a").keys(ids), Rng(3).at("b").keys(ids), subkeys(Rng(3).at("a").keys(ids), 1)]
    )
    assert len(every.unique()) == 60_000


@pytest.mark.parametrize("expand", [expand_uniform, expand_normal])
def test_chunks_and_padding_change_no_number(expand):
    whole = expand(keys(6), (5, 3))
    chunks = torch.cat([expand(keys(6)[:2], (5, 3)), expand(keys(6)[2:], (5, 3))])
    assert torch.equal(whole, chunks)
    assert torch.equal(expand(keys(6), (9, 3))[:, :5], whole)


def test_uniforms_are_uniform_and_never_zero_or_one():
    drawn = expand_uniform(keys(200), (500,)).flatten().numpy()
    assert kstest(drawn, "uniform").pvalue > 1e-3
    assert drawn.min() > 0 and drawn.max() < 1
    system = Rng().uniforms(100_000)
    assert kstest(system, "uniform").pvalue > 1e-8  # drawn anew each time: this may hardly ever fail
    assert system.min() > 0


def test_normals_are_normal_and_a_wrong_scale_would_be_seen():
    drawn = expand_normal(keys(200), (501,)).flatten().numpy()
    assert kstest(drawn, norm.cdf).pvalue > 1e-3
    assert kstest(drawn, norm(scale=1.02).cdf).pvalue < 1e-3


def correlated(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two samples of normals are correlated, at odds of one in a thousand."""
    return abs(np.corrcoef(first.numpy(), second.numpy())[0, 1]) * len(first) ** 0.5 > 3.3


def test_clients_steps_and_neighbouring_entries_are_uncorrelated():
    drawn = expand_normal(keys(3), (40_000,))
    assert not correlated(drawn[0], drawn[1])
    assert not correlated(drawn[0][:-1], drawn[0][1:])
    assert not correlated(drawn[0].square()[:-1], drawn[0].square()[1:])
    later = expand_normal(subkeys(keys(3), 1), (40_000,))
    assert not correlated(drawn[0], later[0])
    assert correlated(drawn[0], drawn[0] + later[0])


def test_pairs_of_uniforms_fill_the_square_evenly():
    first, second = expand_uniform(keys(2), (50_000,))
    cells = (first * 10).int() * 10 + (second * 10).int()
    counts = np.bincount(cells.numpy(), minlength=100)
    assert ((counts - 500) ** 2 / 500).sum() < chi2.ppf(1 - 1e-3, 99)
