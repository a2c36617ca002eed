"""Rows drawn given what is known of them have the distribution that the whole table says."""

import numpy as np
import pytest

from fedsynth.models.evidence import sample_given
from fedsynth.models.graphical import JunctionTree, Walk, project, spread

SIZES = (2, 3, 2, 4, 3)


@pytest.fixture(scope="module")
def law():
    draw = np.random.default_rng(1)
    tree = JunctionTree.over([(0, 1), (1, 2), (2, 3), (1, 3), (3, 4)], SIZES)
    walk = Walk(tree, [draw.random(shape) for shape in tree.shapes])
    walk.calibrate([np.ones([SIZES[column] for column in shared]) for shared in tree.separators])
    tables = [table / table.sum() for table in walk.tables]
    joint, every = np.ones(SIZES), tuple(range(len(SIZES)))
    for table, clique, shared in zip(tables, tree.cliques, tree.separators, strict=True):
        joint = joint * spread(table, clique, every)
        joint = joint / spread(project(table, clique, shared), shared, every) if shared else joint
    return tree, tables, joint


@pytest.mark.parametrize(
    "known", [{0: 1, 4: 2}, {1: 0}, {0: 0, 1: 1, 3: 2}, {2: 1, 4: 0}, {0: 0, 1: 0, 2: 1, 3: 3}]
)
def test_rows_have_the_conditional_distribution(law, known):
    tree, tables, joint = law
    rows = 40_000
    drawn = sample_given(
        tree,
        tables,
        {column: np.full(rows, value) for column, value in known.items()},
        np.random.default_rng(2),
    )
    wanted = joint[tuple(known.get(column, slice(None)) for column in range(len(SIZES)))]
    free = [column for column in range(len(SIZES)) if column not in known]
    counts = np.zeros([SIZES[column] for column in free])
    np.add.at(counts, tuple(drawn[:, column] for column in free), 1 / rows)
    assert np.abs(counts - wanted / wanted.sum()).sum() / 2 < 0.02
    for column, value in known.items():
        assert (drawn[:, column] == value).all()


def test_each_row_has_its_own_evidence(law):
    tree, tables, joint = law
    values = np.tile(np.arange(4), 20_000)
    drawn = sample_given(tree, tables, {3: values}, np.random.default_rng(3))
    by_value = joint.sum(axis=(0, 1, 2))
    for value in range(4):
        shares = np.bincount(drawn[values == value, 4], minlength=3) / 20_000
        assert np.abs(shares - by_value[value] / by_value[value].sum()).max() < 0.02
