import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.models.graphical import JunctionTree, Measured, conditioned, fit, project
from fedsynth.models.tree_sampling import sample

SIZES = (2, 3, 2, 4)
PAIRS = [(0, 1), (1, 2), (0, 2), (2, 3)]
REFERENCE = Path(__file__).parent / "private_pgm_reference.json"


def whole_table(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(np.prod(SIZES))).reshape(SIZES)


def marginal(table: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
    return project(table, (0, 1, 2, 3), columns)


def exact(columns: tuple[int, ...], table: np.ndarray) -> Measured:
    return Measured(columns, marginal(table, columns), 1e9)


def joint(tree: JunctionTree, tables: list[np.ndarray]) -> np.ndarray:
    """The whole distribution, by multiplying cliques and dividing by separators, cell by cell."""
    result = np.ones(tree.sizes)
    for values in product(*map(range, tree.sizes)):
        for clique, shared, table in zip(tree.cliques, tree.separators, tables, strict=True):
            result[values] *= table[tuple(values[column] for column in clique)]
            if shared:
                result[values] /= project(table, clique, shared)[tuple(values[column] for column in shared)]
    return result


def test_measured_tables_without_noise_come_back():
    table = whole_table()
    tree = JunctionTree.over(PAIRS, SIZES)
    fitted = fit(tree, [exact(pair, table) for pair in PAIRS], entropy=1.0, sweeps=500, tolerance=1e-9)
    for pair in PAIRS:
        place = tree.home(pair)
        found = project(fitted[place], tree.cliques[place], pair)
        assert np.abs(found - marginal(table, pair)).sum() < 1e-4


def test_neighboring_cliques_agree_on_what_they_share():
    table = whole_table()
    noisy = np.random.default_rng(1)
    tree = JunctionTree.over(PAIRS, SIZES)
    measured = [
        Measured(pair, marginal(table, pair) + noisy.normal(0, 0.02, marginal(table, pair).shape), 2500.0)
        for pair in PAIRS
    ]
    fitted = fit(tree, measured, entropy=1.0)
    for place, (parent, shared) in enumerate(zip(tree.parents, tree.separators, strict=True)):
        if parent >= 0:
            mine = project(fitted[place], tree.cliques[place], shared)
            assert np.allclose(mine, project(fitted[parent], tree.cliques[parent], shared), atol=1e-12)
    assert all((one >= 0).all() and abs(one.sum() - 1) < 1e-12 for one in fitted)


def test_among_equal_fits_the_one_of_most_entropy_is_taken():
    table = whole_table(2)
    tree = JunctionTree.over([(0, 1, 2, 3)], SIZES)
    singles = [exact((column,), table) for column in range(4)]
    (fitted,) = fit(tree, singles, entropy=1.0, sweeps=500, tolerance=1e-10)
    apart = np.einsum("a,b,c,d->abcd", *(marginal(table, (column,)) for column in range(4)))
    assert np.abs(fitted - apart).sum() < 1e-4


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([(a, b) for a in range(5) for b in range(a)]), max_size=8), st.randoms())
def test_every_pair_lies_in_a_clique_and_cliques_with_a_column_are_connected(pairs, random):
    sizes = tuple(random.randint(2, 4) for _ in range(5))
    tree = JunctionTree.over(pairs, sizes)
    assert all(tree.home(pair) is not None for pair in [*pairs, *((column,) for column in range(5))])
    for column in range(5):
        holding = {place for place, clique in enumerate(tree.cliques) if column in clique}
        roots = {place for place in holding if tree.parents[place] not in holding}
        assert len(roots) == 1
    assert all(parent < place for place, parent in enumerate(tree.parents))


def test_impossible_combinations_stay_impossible():
    table = whole_table()
    tree = JunctionTree.over(PAIRS, SIZES)
    place = tree.home((0, 1))
    start = [np.ones(shape) for shape in tree.shapes]
    index = [slice(None)] * len(tree.cliques[place])
    index[tree.cliques[place].index(0)], index[tree.cliques[place].index(1)] = 0, 2
    start[place][tuple(index)] = 0.0
    fitted = fit(tree, [exact(pair, table) for pair in PAIRS], entropy=10.0, start=start)
    assert project(fitted[place], tree.cliques[place], (0, 1))[0, 2] == 0


def test_samples_have_the_distribution():
    table = whole_table()
    tree = JunctionTree.over(PAIRS, SIZES)
    fitted = fit(tree, [exact(pair, table) for pair in PAIRS], entropy=1.0, sweeps=200)
    rows = sample(tree, fitted, 200_000, np.random.default_rng(0))
    places = np.ravel_multi_index(tuple(rows.T), SIZES)
    shares = np.bincount(places, minlength=int(np.prod(SIZES))).reshape(SIZES) / len(rows)
    assert 0.5 * np.abs(shares - joint(tree, fitted)).sum() < 0.01


def test_conditions_are_met_exactly():
    table = whole_table()
    tree = JunctionTree.over(PAIRS, SIZES)
    fitted = fit(tree, [exact(pair, table) for pair in PAIRS], entropy=1.0, sweeps=200)
    whole = joint(tree, fitted)
    given_three = conditioned(tree, fitted, {(3,): np.array([0.0, 1.0, 0.0, 0.5])})
    wanted = whole * np.array([0.0, 1.0, 0.0, 0.5])
    assert np.abs(joint(tree, given_three) - wanted / wanted.sum()).max() < 1e-12
    rows = sample(tree, given_three, 1000, np.random.default_rng(0))
    assert set(rows[:, 3]) <= {1, 3}


def test_a_fit_agrees_with_private_pgm():
    """mbi 2.0's mirror descent after 20,000 steps, on noisy tables that both were given."""
    reference = json.loads(REFERENCE.read_text())
    sizes, total = reference["sizes"], reference["total"]

    def shaped(entry: dict, values: str) -> np.ndarray:
        return np.array(entry[values]).reshape([sizes[column] for column in entry["columns"]])

    measured = [
        Measured(tuple(one["columns"]), shaped(one, "counts") / total, total**2 / one["sigma"] ** 2)
        for one in reference["measured"]
    ]
    tree = JunctionTree.over([one.columns for one in measured], sizes)
    fitted = fit(tree, measured, entropy=reference["entropy"], sweeps=4000, tolerance=1e-9)
    for one in reference["fitted"]:
        columns = tuple(one["columns"])
        place = tree.home(columns)
        if place is not None:
            found = project(fitted[place], tree.cliques[place], columns)
            assert 0.5 * np.abs(found - shaped(one, "shares")).sum() < 1e-3, columns


def test_a_table_in_no_clique_is_our_mistake():
    tree = JunctionTree.over([(0, 1)], (2, 2, 2))
    with pytest.raises(AssertionError, match="no clique"):
        fit(tree, [Measured((0, 2), np.full((2, 2), 0.25), 1.0)], entropy=1.0)
