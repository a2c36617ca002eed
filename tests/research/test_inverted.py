import pytest

from fedsynth.errors import BadInput
from fedsynth.recipes.budget import Target
from fedsynth.research.datasets import data_folder
from fedsynth.research.inverted import inverted


@pytest.mark.skipif(
    data_folder() is None, reason="the data sets are not here; set FEDSYNTH_DATA to their folder"
)
def test_a_row_of_adult_is_read_off_its_update_and_not_off_the_noisy_sum():
    single, noisy = inverted("fvae", "adult", Target(8.0, 1e-5), 500, {})
    assert single.value > 0.95
    assert noisy.value < noisy.detail["baseline"] + 0.1


def test_data_that_nobody_knows_is_refused():
    with pytest.raises(BadInput, match="adlt"):
        inverted("fvae", "adlt", None, 500, {})
