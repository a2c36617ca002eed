"""Losses composed with themselves and read at many epsilons: the library's numbers, to the bit or to ten digits."""

import numpy as np
import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as library

from fedsynth.privacy.accountant import quiet
from fedsynth.privacy.gaussian_loss import gaussian_loss
from fedsynth.privacy.loss_distribution import deltas_of, self_composed, tail_bounds, together

LOSSES = {
    "sampled": lambda: gaussian_loss(1.1, 0.05, 2e-3),
    "often sampled": lambda: gaussian_loss(0.8, 0.7, 4e-3),
    "unsampled": lambda: gaussian_loss(3.0, 1.0, 1e-3),
    "laplace": lambda: library.from_laplace_mechanism(1.0, value_discretization_interval=1e-3),
    "sparse": lambda: library.from_privacy_parameters(common.DifferentialPrivacyParameters(0.5, 0.0)),
}


@pytest.mark.parametrize("count", [1, 2, 12, 400])
@pytest.mark.parametrize("name", LOSSES)
def test_it_is_the_library_s_to_the_bit(name, count):
    with quiet():
        loss = LOSSES[name]()
        count = min(count, 12) if name == "sparse" else count  # there the library itself is asked
        shown, expected = self_composed(loss, count), loss.self_compose(count)
        assert shown.get_epsilon_for_delta(1e-6) == expected.get_epsilon_for_delta(1e-6)
    for half in ("_pmf_remove", "_pmf_add"):
        mine, other = (getattr(pld, half).to_dense_pmf() for pld in (shown, expected))
        assert mine._lower_loss == other._lower_loss and mine._infinity_mass == other._infinity_mass
        np.testing.assert_array_equal(mine._probs, other._probs)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("other", [None, "sparse", "coarse", "laplace"])
def test_two_releases_are_composed_as_by_the_library_to_the_bit(name, other):
    with quiet():
        loss = LOSSES[name]()
        step = loss._pmf_remove._discretization
        others = {
            None: lambda: library.identity(value_discretization_interval=step),
            "sparse": lambda: library.from_privacy_parameters(
                common.DifferentialPrivacyParameters(0.5, 1e-7), value_discretization_interval=step
            ),
            "coarse": lambda: gaussian_loss(2.0, 0.3, step).self_compose(3),
            "laplace": lambda: library.from_laplace_mechanism(2.0, value_discretization_interval=step),
        }
        second = others[other]()
        for shown, expected in [
            (together(loss, second), loss.compose(second)),
            (together(together(second, loss), second), second.compose(loss).compose(second)),
        ]:
            for half in ("_pmf_remove", "_pmf_add"):
                mine, its = (getattr(pld, half) for pld in (shown, expected))
                assert type(mine) is type(its)
                mine, its = mine.to_dense_pmf(), its.to_dense_pmf()
                assert (mine._lower_loss, mine._infinity_mass) == (its._lower_loss, its._infinity_mass)
                np.testing.assert_array_equal(mine._probs, its._probs)


def test_releases_on_other_grids_are_not_composed():
    with pytest.raises(ValueError, match="Discretization intervals"):
        together(gaussian_loss(2.0, 0.3, 1e-3), gaussian_loss(2.0, 0.3, 2e-3))


@pytest.mark.parametrize("count", [1, 12, 5000])
def test_the_tails_begin_where_the_library_cuts_them(count):
    draw = np.random.default_rng(count)
    for size in (1200, 5003, 20_000):
        masses = draw.random(size) ** 8 * np.exp(-(np.linspace(-5, 5, size) ** 2))
        masses /= masses.sum() * (1 + 1e-9)
        assert tail_bounds(masses, count) == common.compute_self_convolve_bounds(masses, count, 1e-15)


def test_masses_that_are_all_zero_are_cut_nowhere():
    assert tail_bounds(np.zeros(5), 3) == (0, 12)


@pytest.mark.parametrize("name", LOSSES)
def test_all_deltas_at_once_are_the_library_s_one_by_one(name):
    epsilons = np.concatenate([np.linspace(0.0, 4.0, 21), [9.0, 16.0]])
    for count in (1, 40):
        with quiet():
            loss = LOSSES[name]().self_compose(count)
            expected = [loss.get_delta_for_epsilon(float(epsilon)) for epsilon in epsilons]
            np.testing.assert_allclose(deltas_of(loss, epsilons), expected, rtol=1e-10, atol=1e-16)
