import numpy as np
import pytest
import torch

from fedsynth.cli.main import main
from fedsynth.data.clients import Clients
from fedsynth.data.schema import Schema
from fedsynth.data.table import Table
from fedsynth.research.inversion import inversion_attack
from fedsynth.rng import Rng
from samples import TABLE, make_frame

SCHEMA = Schema.from_dict(TABLE)
BLOCKS = Table(SCHEMA).blocks


def rows(count=60):
    x, y = Table(SCHEMA).encode(make_frame(np.arange(count)).drop(columns="owner"))
    return Clients(x, y, np.array([0, count]))


@pytest.mark.parametrize("name", ["fvae", "dpd_fvae"])
def test_a_clear_update_of_one_row_is_that_row(name, build):
    single, noisy = inversion_attack(build(name, clients=60), rows(), BLOCKS, Rng(1))
    assert single.value > 0.95 and single.detail["visible"]
    assert noisy.value < single.detail["baseline"] + 0.1 < 0.7


def test_without_noise_the_sum_still_hides_one_among_many(build):
    single, summed = inversion_attack(build("fvae", clients=60, private=False), rows(), BLOCKS, Rng(1))
    assert single.value > 0.95 and summed.value < 0.7


def test_the_same_seed_gives_the_same_scores(build):
    first, second = (inversion_attack(build("fvae"), rows(20), BLOCKS, Rng(3)) for _ in range(2))
    assert first == second


def test_what_the_closed_form_does_not_know_fails_with_its_reason(build):
    images = Clients(torch.zeros(5, 1, 8, 8), torch.zeros(5, dtype=torch.int64), np.array([0, 5]))
    for data, reason in ((images, "images"), (rows(1), "at least 2")):
        scores = inversion_attack(build("fvae"), data, BLOCKS, Rng(1))
        assert len(scores) == 2 and all(reason in score.failed for score in scores)


def test_a_recipe_that_cannot_be_attacked_is_refused_without_a_number(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["experiment", "inversion", "marginals", "--data", "rand_health", "--clients", "20"])
    told = capsys.readouterr()
    assert ended.value.code == 2 and not told.out
    assert "the closed form needs a decoder" in told.err and "attack another recipe" in told.err
