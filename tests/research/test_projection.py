"""Projections keep the noise in the mean, and are marked."""

import pytest

from fedsynth.errors import BadInput
from fedsynth.research.projection import ProjectedTraining, default_delta, project_central, project_local

SIMULATED = ProjectedTraining(clients=3400, cohort=10, noise_multiplier=0.01, rounds=1000)


def test_the_cohort_grows_with_the_noise_multiplier():
    found = project_central(SIMULATED, 250_000, delta=4e-8)
    assert found.projection and found.cohort == pytest.approx(1000) and found.noise_multiplier == 1
    assert found.noise_multiplier / found.cohort == pytest.approx(SIMULATED.noise_in_mean)
    assert found.epsilon == pytest.approx(1.03, abs=0.005)


def test_the_published_projection_is_the_fixed_size_one_relative_to_the_sensitivity():
    found = project_central(
        ProjectedTraining(3400, 10, 0.02, 1000),
        250_000,
        delta=4e-8,
        noise_multiplier=2.0,
        sampling="fixed",
        adjacency="replace-one",
        accountant="rdp-legacy",
    )
    assert found.epsilon == pytest.approx(2.38, abs=0.005)


def test_local_noise_is_the_global_one_times_the_root_of_the_cohort():
    found = project_local(ProjectedTraining(20, 10, 0.1, 1500), 10_000)
    assert found.cohort == 5000 and found.releases == 750
    assert found.noise_multiplier == pytest.approx(0.01 * 5000**0.5)
    assert found.delta == default_delta(10_000)


def test_a_population_below_the_cohort_is_refused():
    with pytest.raises(BadInput, match="cohort of 1000"):
        project_central(SIMULATED, 500)
