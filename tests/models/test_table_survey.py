"""From noisy answers to the next question and the distribution: known dependences come back, no exact count is read."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.models.graphical import project
from fedsynth.models.table_answer import Answer
from fedsynth.models.table_merging import merged_values
from fedsynth.models.table_plan import Plan
from fedsynth.models.table_question import ClientCells
from fedsynth.models.table_survey import Survey

SIZES = (3, 4, 2, 2)
PLAN = Plan(
    SIZES,
    ordered=(0, 4, 0, 0),
    label=3,
    rounds=4,
    pair_rounds=1,
    most_values=8,
    most_cells=1000,
    most_tables=16,
    tree_cells=1000,
    label_weight=2.0,
    entropy=1e-4,
)


def table(seed: int = 0) -> np.ndarray:
    """A chain: the first column decides the second, the second the label, the third is by itself."""
    draw = np.random.default_rng(seed)
    first, third = draw.dirichlet(np.full(3, 5.0)), np.array([0.4, 0.6])
    second = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.4, 0.4, 0.1], [0.1, 0.1, 0.1, 0.7]])
    label = np.array([[0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.1, 0.9]])
    return np.einsum("a,ab,c,bd->abcd", first, second, third, label)


def answered(question, whole: np.ndarray, noise: float, draw: np.random.Generator) -> Answer:
    """The answer of units with these shares."""
    values = []
    for columns, scale in zip(question.tables, question.scale, strict=True):
        shares = project(whole, (0, 1, 2, 3), columns)
        for axis, column in enumerate(columns):
            merged = np.zeros((question.sizes[column], shares.shape[axis]))
            merged[question.maps[column], np.arange(shares.shape[axis])] = 1.0
            shares = np.moveaxis(np.tensordot(merged, shares, (1, axis)), 0, axis)
        values.append(shares.ravel() * scale)
    exact = np.concatenate(values)
    return Answer(question, exact + noise * draw.standard_normal(exact.shape), noise, question.scale)


def surveyed(whole: np.ndarray, noise: float, plan: Plan = PLAN) -> Survey:
    draw, survey = np.random.default_rng(1), Survey(plan, ())
    for _ in range(plan.rounds):
        answer = answered(survey.following(), whole, noise, draw)
        survey = Survey(plan, (*survey.answers, answer))
    return survey


def test_singles_are_asked_first_then_pairs_then_the_edges():
    survey = surveyed(table(), 1e-6)
    assert survey.answers[0].question.tables == ((0,), (1,), (2,), (3,))
    assert set(survey.answers[1].question.tables) == set(PLAN.pairs)
    assert {frozenset(columns) - {3} for columns in survey.answers[2].question.tables} >= {frozenset({0, 1})}
    weights = dict(zip(survey.answers[1].question.tables, survey.answers[1].question.weights, strict=True))
    assert weights[0, 3] == pytest.approx(2.0 * weights[0, 2])  # as many cells, with the label


def test_single_columns_are_asked_again_where_noise_hides_them():
    plan, singles = replace(PLAN, single_rounds=2, smooth=True), ((0,), (1,), (2,), (3,))
    hidden, clear = surveyed(table(), 0.2, plan), surveyed(table(), 1e-4, plan)
    assert [answer.question.tables == singles for answer in hidden.answers] == [True, True, False, False]
    assert [answer.question.tables == singles for answer in clear.answers] == [True, False, False, False]
    first = hidden.answers[0].measured(hidden.total)[0]
    assert hidden.singles[0].precision == pytest.approx(2 * first.precision)
    assert not hidden.fitted()[1][0].min() < 0


def test_without_noise_the_fitted_pairs_are_the_true_ones():
    whole = table()
    survey = surveyed(whole, 1e-6)
    tree, tables = survey.fitted()
    for pair in ((0, 1), (1, 3)):
        place = tree.home(pair)
        assert place is not None
        fitted = project(tables[place], tree.cliques[place], pair)
        assert np.abs(fitted - project(whole, (0, 1, 2, 3), pair)).sum() < 1e-3


def test_a_tree_is_chosen_by_what_goes_together():
    survey = surveyed(table(), 0.003, replace(PLAN, tree_cells=1))
    assert len(survey.edges) == 3 and {(0, 1), (1, 3)} <= set(survey.edges)


@pytest.mark.parametrize("total", [1.0, 400.0])
def test_rows_a_unit_has_change_nothing_but_the_noise(total):
    """Where a unit is a site, its answers are sums over its rows: shares are the same, noise counts less."""
    whole = table()
    few, many = surveyed(whole, 1e-5), surveyed(total * whole, 1e-5 * total)
    assert many.total == pytest.approx(total * few.total, rel=1e-4) and many.edges == few.edges
    both = [survey.fitted()[1] for survey in (few, many)]
    assert all(np.abs(one - other).max() < 1e-3 for one, other in zip(*both, strict=True))


def test_questions_follow_from_noisy_answers_alone():
    """Two tables and two noises with the same sums: whatever is asked and fitted is the same, to the bit."""
    draw = np.random.default_rng(2)
    whole, other = table(0), table(5)
    left = right = Survey(PLAN, ())
    for _ in range(PLAN.rounds):
        question = left.following()
        again = right.following()
        assert question.tables == again.tables and question.weights == again.weights
        assert all(np.array_equal(*maps) for maps in zip(question.maps, again.maps, strict=True))
        noisy = answered(question, whole, 0.01, draw)
        exact = answered(again, other, 0.0, draw)
        noise = noisy.values - exact.values  # the noise that makes the other table's answer the same
        same = replace(exact, values=exact.values + noise, noise=0.01)
        left, right = Survey(PLAN, (*left.answers, noisy)), Survey(PLAN, (*right.answers, same))
    fitted = [survey.fitted() for survey in (left, right)]
    assert fitted[0][0] == fitted[1][0]
    assert all(np.allclose(*tables, atol=1e-9) for tables in zip(fitted[0][1], fitted[1][1], strict=True))


def test_one_round_alone_gives_independent_columns():
    whole = table()
    only = surveyed(whole, 1e-6, replace(PLAN, rounds=1))
    tree, tables = only.fitted()
    assert all(len(clique) == 1 for clique in tree.cliques)
    for clique, fitted in zip(tree.cliques, tables, strict=True):
        assert np.abs(fitted - project(whole, (0, 1, 2, 3), clique)).sum() < 1e-3


def test_pairs_that_do_not_fit_are_left_out_those_with_the_label_last():
    survey = surveyed(table(), 1e-6, replace(PLAN, most_cells=20, rounds=2))
    pairs = survey.answers[1].question
    assert pairs.cells <= 20 and all(3 in pair for pair in pairs.tables[:1])
    survey.fitted()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(-0.05, 0.5), min_size=2, max_size=30),
    st.integers(0, 30),
    st.floats(1e-6, 0.2),
    st.integers(2, 10),
)
def test_merged_values_are_numbered_without_gaps_and_few(shares, ordered, noise, most):
    ordered = min(ordered, len(shares))
    merged = merged_values(np.array(shares), noise, ordered, most)
    groups = set(merged.tolist())
    assert groups == set(range(len(groups))) and len(merged) == len(shares)
    assert len(groups) <= 2 * most
    assert all(0 <= step <= 1 for step in np.diff(merged[:ordered]))


def test_what_noise_hides_is_merged_and_what_is_seen_is_not():
    shares = np.array([0.3, 0.3, 0.002, 0.39, 0.003, 0.005])
    assert merged_values(shares, 0.01, 0, 10).tolist() == [0, 1, 3, 2, 3, 3]
    assert merged_values(shares, 0.0001, 0, 10).tolist() == [0, 1, 2, 3, 4, 5]
    cells = merged_values(np.array([0.2, 0.01, 0.01, 0.2, 0.58]), 0.01, 4, 10)
    assert cells[0] != cells[3] and cells[4] not in cells[:4]


def test_combinations_that_constraints_exclude_have_no_chance():
    allowed = np.ones((3, 4), dtype=bool)
    allowed[0, 3] = allowed[2, :2] = False
    whole = table() * allowed[:, :, None, None]
    survey = surveyed(whole / whole.sum(), 0.02, replace(PLAN, possible=(((0, 1), allowed),)))
    tree, tables = survey.fitted()
    place = tree.home((0, 1))
    assert place is not None
    fitted = project(tables[place], tree.cliques[place], (0, 1))
    merged = [np.unique(one, return_index=True)[1] for one in survey.maps[:2]]
    whole_values = [len(one) == size for one, size in zip(merged, SIZES, strict=False)]
    assert all(whole_values) and (fitted[~allowed] == 0).all() and (fitted[allowed] > 0).all()


def about(rows: int, length: float) -> np.ndarray:
    """Everybody has so many rows, whose sum is so long."""
    cells, told = ClientCells(), np.zeros(ClientCells().size)
    told[[rows - 1, cells.most_rows + int(np.searchsorted(cells.lengths, length))]] = cells.share / np.sqrt(2)
    return told


@pytest.mark.parametrize(
    ("length", "always", "expected"), [(2.0, False, True), (5.5, False, False), (5.5, True, True)]
)
def test_rows_add_up_where_that_says_more_than_clients_means(length, always, expected):
    plan = replace(PLAN, about=ClientCells(), rows_always=always)
    survey = surveyed(table(), 1e-6, plan)
    assert survey.row_weight == 0 and survey.row_counts.size == 0
    survey = Survey(plan, tuple(replace(one, about=about(6, length)) for one in survey.answers))
    assert (survey.row_weight > 0) is expected
    assert survey.row_weight <= 1 / length and survey.row_counts.argmax() == 5
