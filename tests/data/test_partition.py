import numpy as np
import pytest

from fedsynth.data.partition import Split, by_column, parse_split, split
from fedsynth.errors import BadInput
from fedsynth.rng import Rng

LABELS = np.repeat(["a", "b", "c"], [600, 300, 100])
FEATURES = np.random.default_rng(0).normal(size=(1000, 2))
KINDS = ["uniform", "dirichlet:0.5", "label", "kmeans", "geometric:0.99"]


def owners(kind, count, seed=1):
    return split(kind, count, labels=LABELS, features=FEATURES, rng=Rng(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_has_an_owner_that_the_seed_decides(kind):
    owner = owners(kind, 20)
    assert owner.shape == (1000,) and owner.dtype == np.int64
    assert owner.min() >= 0 and owner.max() < 20
    assert np.array_equal(owner, owners(kind, 20))


@pytest.mark.parametrize("kind", ["uniform", "dirichlet:0.5", "label", "geometric:0.99"])
def test_another_seed_deals_otherwise(kind):
    assert not np.array_equal(owners(kind, 20, 1), owners(kind, 20, 2))


def test_uniform_deals_evenly_and_not_in_the_order_of_rows():
    owner = owners("uniform", 30)
    assert set(np.bincount(owner)) == {33, 34}
    assert len(set(owner[:30].tolist())) < 30


def test_more_clients_than_rows_leaves_clients_empty():
    assert (np.bincount(owners("uniform", 5000), minlength=5000) == 0).sum() == 4000


def test_each_client_of_a_label_split_holds_one_label():
    owner = owners("label", 20)
    assert all(len(set(LABELS[owner == client])) == 1 for client in range(20))


def test_a_label_is_never_spread_out_when_there_are_fewer_clients_than_labels():
    owner = owners("label", 2)
    assert all(len(set(owner[label == LABELS])) == 1 for label in "abc")


def test_a_small_concentration_leaves_a_label_with_few_clients():
    def largest_share(alpha):
        mine = owners(f"dirichlet:{alpha}", 20)[LABELS == "a"]
        return np.bincount(mine).max() / len(mine)

    assert largest_share(0.05) > 0.3
    assert largest_share(100) < 0.1


def test_kmeans_gives_a_client_rows_that_lie_together():
    far = np.r_[np.zeros((50, 2)), np.full((50, 2), 9.0)] + np.random.default_rng(0).normal(size=(100, 2)) / 9
    owner = split("kmeans", 2, features=far, rng=Rng(1))
    assert len(set(owner[:50])) == len(set(owner[50:])) == 1 and owner[0] != owner[50]


def test_the_geometric_split_follows_the_thesis():
    # N = 30 and a = 0.99 give p = 0.14 (thesis, section 4.4.1)
    owner = split("geometric:0.99", 30, rows=200_000, rng=Rng(1))
    share = np.bincount(owner, minlength=30) / len(owner)
    p = 1 - (1 - 0.99) ** (1 / 30)
    assert round(p, 2) == 0.14
    expected = p * (1 - p) ** np.arange(30) / 0.99
    assert np.abs(share - expected).max() < 0.004
    assert np.abs(share - expected[::-1]).max() > 0.1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("unifrom", "did you mean 'uniform'"),
        ("dirichlet", "for example 'dirichlet:0.5'"),
        ("dirichlet:x", "expected a number"),
        ("dirichlet:0", "above 0"),
        ("dirichlet:nan", "above 0"),
        ("geometric:1", "in \\(0, 1\\)"),
        ("uniform:3", "takes no parameter"),
    ],
)
def test_a_split_that_cannot_be_read_is_told_with_an_example(text, told):
    with pytest.raises(BadInput, match=told):
        parse_split(text)


def test_a_split_is_read_with_its_parameter():
    assert parse_split("geometric:0.9") == Split("geometric", 0.9)


@pytest.mark.parametrize(
    ("kind", "needed"), [("label", "a label"), ("dirichlet:1", "a label"), ("kmeans", "features")]
)
def test_a_split_says_what_it_needs(kind, needed):
    with pytest.raises(BadInput, match=f"needs {needed}"):
        split(kind, 3, rows=10, rng=Rng(1))


def test_no_clients_are_refused():
    with pytest.raises(BadInput, match="clients=0"):
        split("uniform", 0, rows=10, rng=Rng(1))


def test_owners_by_a_column_keep_their_names():
    owner, names = by_column([7, 9, 7])
    assert (owner.tolist(), names) == ([0, 1, 0], ("7", "9"))


def test_a_row_without_an_owner_is_refused():
    with pytest.raises(BadInput, match="1 of 2 rows have no client"):
        by_column(["a", None])
