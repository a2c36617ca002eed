"""A question: what it says survives its vector, whatever it says has a bounded answer, and nonsense is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.errors import BadInput
from fedsynth.models.table_question import WIDEST, Question, QuestionForm, unmerged

SIZES = (3, 4, 2, 5)
FORM = QuestionForm(SIZES, most_tables=10, most_cells=200)


@st.composite
def questions(draw) -> Question:
    """Any question over these columns that its form allows."""
    maps = []
    for size in SIZES:
        groups = draw(st.lists(st.integers(0, size - 1), min_size=size, max_size=size))
        maps.append(np.array(groups))
    columns = st.lists(st.integers(0, 3), min_size=1, max_size=WIDEST, unique=True).map(tuple)
    tables = draw(st.lists(columns, min_size=1, max_size=4))
    weight = st.floats(2.0**-60, 2.0**60, width=32)
    return Question(tuple(maps), tuple(tables), tuple(draw(weight) for _ in tables))


def written() -> torch.Tensor:
    return FORM.write(Question(unmerged(SIZES), ((0, 1), (2,)), (1.0, 2.0)))


@settings(max_examples=100, deadline=None)
@given(questions())
def test_what_is_written_is_read(question):
    again = FORM.read(FORM.write(question))
    assert again.tables == question.tables and again.weights == question.weights
    assert all(np.array_equal(one, other) for one, other in zip(again.maps, question.maps, strict=True))


@settings(max_examples=100, deadline=None)
@given(questions())
def test_every_row_counts_once_in_every_table(question):
    codes = torch.stack(torch.meshgrid(*map(torch.arange, SIZES), indexing="ij"), -1).reshape(-1, 4)
    places = question.places(codes)
    for number, (start, stop) in enumerate(zip(question.starts, question.starts[1:], strict=False)):
        assert bool(((places[:, number] >= start) & (places[:, number] < stop)).all())
    assert np.isclose(np.square(question.scale).sum(), 1.0)


def test_a_cell_is_where_the_merged_values_say():
    merged = Question((np.array([0, 1, 1]), *unmerged(SIZES)[1:]), ((3,), (0, 1)), (1.0, 1.0))
    places = merged.places(torch.tensor([[2, 3, 0, 4]]))
    assert places.tolist() == [[4, 5 + 1 * 4 + 3]] and merged.cells == 5 + 2 * 4
    answer = np.arange(merged.cells)
    assert merged.split(answer)[1][1, 3] == answer[places[0, 1]]


def changed(place: int, value: float) -> torch.Tensor:
    vector = written().clone()
    vector[place] = value
    return vector


FIRST_TABLE = 1 + sum(SIZES)
NONSENSE = {
    "no number": changed(3, float("nan")),
    "infinite": changed(0, float("inf")),
    "no table": changed(0, 0),
    "too many tables": changed(0, 11),
    "an empty table": changed(0, 3),
    "a merged value beyond the column": changed(1, 3),
    "a negative merged value": changed(1, -2),
    "a huge merged value": changed(1, 1e30),
    "a column that is not there": changed(FIRST_TABLE, 2 * len(SIZES)),
    "a huge column": changed(FIRST_TABLE, 1e30),
    "a column twice": changed(FIRST_TABLE + 1, 0),
    "no weight": changed(FIRST_TABLE + WIDEST, 0),
    "a negative weight": changed(FIRST_TABLE + WIDEST, -1),
    "too short": written()[:-1],
    "too long": torch.cat([written(), torch.zeros(1)]),
    "empty": torch.zeros(0),
}


@pytest.mark.parametrize("vector", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_in_one_sentence(vector):
    with pytest.raises(BadInput, match="question"):
        FORM.read(vector)


def test_more_cells_than_an_answer_has_are_refused():
    large = Question(unmerged(SIZES), ((0, 1, 3),) * 4, (1.0,) * 4)
    with pytest.raises(BadInput, match="240 cells: at most 200 fit"):
        FORM.read(FORM.write(large))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whatever_a_server_says_is_refused_or_fits(seed):
    draw = np.random.default_rng(seed)
    vector = written().numpy().copy()
    for _ in range(draw.integers(1, 6)):
        vector[draw.integers(len(vector))] = draw.choice([-1, 0, 1, 2, 3, 0.5, 4, 1e9, 1e-30, 1e38])
    try:
        question = FORM.read(torch.from_numpy(vector))
    except BadInput:
        return
    codes = torch.from_numpy(np.stack([draw.integers(0, size, 20) for size in SIZES], axis=1))
    places = question.places(codes)
    assert int(places.min()) >= 0 and int(places.max()) < question.cells <= FORM.most_cells
    assert np.square(question.scale).sum() <= 1 + 1e-9


def test_a_question_of_another_version_says_what_to_do():
    with pytest.raises(BadInput, match="another version of fedsynth began has to be begun anew"):
        FORM.read(written()[:-1])
