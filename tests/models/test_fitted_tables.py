"""What a run of counts releases: it is packed into one vector, and rows are drawn from it as it says."""

import numpy as np
import torch

from fedsynth.data.column import Column
from fedsynth.data.schema import Schema
from fedsynth.models.distribution import Distribution
from fedsynth.models.graphical import JunctionTree
from fedsynth.models.marginals import MarginalModel
from fedsynth.models.table_domain import TableDomain
from fedsynth.models.table_question import QuestionForm
from fedsynth.rng import Rng

CODES = tuple("abcde")
SCHEMA = Schema(
    columns=(
        Column("code", "categorical", categories=CODES),
        Column("sex", "categorical", categories=("F", "M")),
        Column("ill", "binary", categories=("no", "yes")),
    ),
    label="ill",
)
DOMAIN = TableDomain(SCHEMA)
MODEL = MarginalModel(DOMAIN, QuestionForm(DOMAIN.sizes, 6, 100))


def distribution() -> Distribution:
    """Codes c, d and e are one merged value, of shares 0.2, 0 and 0.1; the label goes with the code."""
    tree = JunctionTree.over([(0, 2), (1, 2)], (3, 2, 2))
    tables = {
        (0, 2): np.array([[0.4, 0.1], [0.1, 0.1], [0.0, 0.3]]),
        (1, 2): np.array([[0.25, 0.1], [0.25, 0.4]]),
    }
    maps = [np.array([0, 1, 2, 2, 2]), np.arange(2), np.arange(2)]
    shares = [np.array([0.5, 0.2, 0.2, -0.01, 0.1]), np.array([0.35, 0.65]), np.array([0.5, 0.5])]
    return Distribution(tree, [tables[clique] for clique in tree.cliques], maps, shares)


def test_what_is_packed_is_unpacked():
    before = distribution()
    after = Distribution.unpack(before.pack())
    assert after.tree == before.tree
    for name in ("tables", "maps", "shares"):
        pairs = zip(getattr(before, name), getattr(after, name), strict=True)
        assert all(np.allclose(one, other, atol=1e-6) and one.shape == other.shape for one, other in pairs)
    assert torch.equal(after.pack(), before.pack())


def test_a_value_inside_a_merged_one_is_drawn_by_its_own_share():
    rows = distribution().draw(200_000, np.random.default_rng(0))
    shares = np.bincount(rows[:, 0], minlength=5) / len(rows)
    assert np.abs(shares - [0.5, 0.2, 0.2, 0.0, 0.1]).max() < 0.005
    assert np.abs(distribution().marginal(0) - [0.5, 0.2, 0.2, 0.0, 0.1]).max() < 1e-9


def test_conditions_hold_for_values_inside_merged_ones():
    last = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    rows = distribution().draw(1000, np.random.default_rng(0), likely={0: last})
    assert set(rows[:, 0]) == {4} and set(rows[:, 2]) == {1}  # only the ill have such codes


def test_rows_have_the_labels_that_are_asked_for():
    params = {"fitted": {"values": distribution().pack()}}
    labels = torch.tensor([0, 1]).repeat(50_000)
    rows = MODEL.sample(params, labels, Rng(1))
    codes = DOMAIN.codes(rows, labels).numpy()
    for label, expected in ((0, [0.8, 0.2, 0, 0, 0]), (1, [0.2, 0.2, 0.4, 0, 0.2])):
        shares = np.bincount(codes[codes[:, 2] == label, 0], minlength=5) / 50_000
        assert np.abs(shares - expected).max() < 0.01
    assert torch.equal(rows, MODEL.sample(params, labels, Rng(1)))


def with_partner() -> Distribution:
    """Of the merged codes only c has sex F and only e sex M."""
    tree = JunctionTree.over([(0, 1), (1, 2)], (3, 2, 2))
    tables = {
        (0, 1): np.array([[0.25, 0.25], [0.1, 0.1], [0.2, 0.1]]),
        (1, 2): np.array([[0.25, 0.3], [0.25, 0.2]]),
    }
    maps = [np.array([0, 1, 2, 2, 2]), np.arange(2), np.arange(2)]
    detail = np.array([[0.25, 0.25], [0.1, 0.1], [0.2, 0.0], [0.0, 0.0], [0.0, 0.1]])
    shares = [detail, np.array([0.55, 0.45]), np.array([0.5, 0.5])]
    return Distribution(tree, [tables[clique] for clique in tree.cliques], maps, shares, (1, -1, -1))


def test_a_merged_value_is_drawn_by_the_partner():
    fitted = Distribution.unpack(with_partner().pack())
    assert fitted.partners == (1, -1, -1)
    rows = fitted.draw(10_000, np.random.default_rng(0))
    assert set(rows[rows[:, 0] == 2, 1]) == {0} and set(rows[rows[:, 0] == 4, 1]) == {1}
    counts = np.bincount(rows[:, 0], minlength=5) / len(rows)
    assert np.abs(counts - [0.5, 0.2, 0.2, 0.0, 0.1]).max() < 0.005
    last = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    rows = fitted.draw(1000, np.random.default_rng(0), likely={0: last})
    assert set(rows[:, 0]) == {4} and set(rows[:, 1]) == {1}


def test_vectors_of_before_partners_are_read():
    before = distribution()
    old = before.pack()
    head = len(old) - 3 - sum(map(len, before.shares))
    plain = torch.cat([old[:head], old[head + 3 :]])
    assert torch.equal(Distribution.unpack(plain).pack(), old)
